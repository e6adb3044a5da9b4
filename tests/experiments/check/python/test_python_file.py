"""`experiments check` on Python files, beside what reports.txt has: costs, imports, and what is left as it was."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path

import pytest

from experiments.check import check, cost, explain, limits
from experiments.check.messages import Note, Unchecked, Why
from experiments.check.python.rung import find_file
from experiments.check.python.stand_in import MODELS, StandIn, renamed
from experiments.check.report import Report
from experiments.check.subject import attempt
from experiments.records.request import UsageError
from gemm_ref import STAGES
from gemm_ref.build import CACHE, digest, write_whole
from tests.experiments.check.helpers import check_file, codes, values
from tests.experiments.check.test_reports import CASES

triton = pytest.importorskip("triton")
tma = pytest.importorskip("triton.experimental.gluon.language.nvidia.hopper").tma
TRITON, GLUON, TUNED = (
    CASES[f"sound in {name}"].files["kernel.py"] for name in ("Triton", "Gluon", "Triton, autotuned")
)


def report(text: str, sizes=("33x35x39",), counted: bool = False, **options) -> Report:
    """Returns the report on a text, without the cost of its kernel, which takes half of the time, unless `counted`.

    The file is where it was in earlier runs, since what Triton has compiled is cached by file.
    """
    path = CACHE / "checked-by-tests" / digest(text) / "kernel.py"
    write_whole(path, text)
    with pytest.MonkeyPatch.context() as patch:
        if not counted:
            patch.setattr(cost, "count", lambda subject, problem, quote: ([], [], ""))
        return check_file(path, sizes, **options)


@pytest.mark.parametrize("text", [TRITON, GLUON, TUNED], ids=["triton", "gluon", "autotuned"])
def test_a_sound_kernel(text):
    found = report(text, counted=True)
    assert found.sound, found
    assert {line.array for line in found.lines if line.space == "global"} == {"A", "B", "C"}
    assert all(line.quote for line in found.lines)
    assert found.code[0].kernel == "kernel" and found.code[0].registers > 0
    assert (Note.ALLOCATES_C in codes(found.notes)) == (text is GLUON)


RUNGS = [(rung.id, dialect) for rung in STAGES.values() for dialect in rung.dialects]


IN_TURN = [(each.id, each.dialects[i % len(each.dialects)]) for i, each in enumerate(STAGES.values())]


@pytest.mark.cases("rung, dialect", IN_TURN, RUNGS)
def test_every_rung_is_sound_by_its_name(uncounted, rung, dialect):
    """At five tiles of 32 rows and one of columns, which a grid with exchanged axes does not cover."""
    found = check_file(find_file(Path(rung[:3]), dialect), ("140x30x39",))
    assert found.sound and (found.name, found.dialect) == (rung, dialect), found


def test_a_rung_in_cuda_is_any_file_where_options_say_how_to_launch_it(uncounted):
    found = check_file(find_file(Path("s01"), ""), ("33x35x39",), block="32,32", grid="cdiv(M,32),cdiv(N,32)")
    assert found.sound and found.how.startswith("s01_naive<32, 32>(A, B, C, M, N, K)"), found.how


@pytest.mark.parametrize(
    "file, dialect, words",
    [
        ("s13", "gluon", "s13_split_k has no gluon kernel: pass --dialect with one of cuda, triton"),
        ("s08", "cutile", "--dialect cutile: there are cuda, triton, gluon"),
        ("kernel.py", "gluon", "is for a rung that is called by its name"),
        ("s99", "", "there is no file s99, and no such rung"),
    ],
)
def test_a_name_that_is_no_rung(file, dialect, words):
    with pytest.raises(UsageError, match=words):
        find_file(Path(file), dialect)


@pytest.mark.parametrize("options, words", [({"block": "32"}, "leave out --block"), ({"math": "fp8"}, "it has fp32")])
def test_a_rung_has_its_launch(options, words):
    with pytest.raises(UsageError, match=words):
        check_file(find_file(Path("s08"), "triton"), **options)


def test_a_configuration_is_chosen_by_its_constants():
    wide, first = (report(TUNED, counted=True, define=x) for x in (("BLOCK_M=64",), ()))
    assert wide.sound and wide.code[0].shared_bytes > first.code[0].shared_bytes


def test_a_sum_that_is_added_to_c_is_told_where_whole_sizes_are_too_large_for_detectors(monkeypatch):
    monkeypatch.setattr(explain, "MAX_DETECTED", 100)
    added = "acc + tl.load(c_ptr + row * N + col, mask=(row < M) & (col < N)), mask"
    found = report(TRITON.replace("+ col, acc, mask", f"+ col, {added}"), sizes=())
    assert Why.NEEDS_ZEROED_C in codes(found.why)


def test_a_check_ends_when_its_processor_time_is_used_and_says_what_was_not_tried(monkeypatch):
    runs = []

    def counted(*inputs, **options):
        runs.append(inputs)
        return attempt(*inputs, **options)

    monkeypatch.setattr(explain, "attempt", counted)
    monkeypatch.setattr(limits, "used_s", lambda: 1e9 * (len(runs) > 2))
    found = report(TRITON, sizes=())
    assert found.right_runs == "96x128x160, 67x69x71" and found.untried[0] in found.headline
    assert (
        found.untried == values(found.unchecked, Unchecked.OUT_OF_TIME)["sizes"].split(", ") and len(found.untried) > 2
    )


def test_a_function_of_a_notebook(uncounted, monkeypatch, capsys):
    """Its cells are read again, without those that are no Python, and without what checks in them."""
    again = "import experiments.check\nexperiments.check.check(gemm)"
    cells = ["%matplotlib inline\n" + TRITON, "gemm(", again]
    linecache.cache["<cell 1>"] = (len(TRITON), None, TRITON.splitlines(keepends=True), "<cell 1>")
    notebook = {"__name__": "__main__"}
    exec(compile(TRITON, "<cell 1>", "exec"), notebook)
    monkeypatch.setattr(sys.modules["__main__"], "In", cells, raising=False)
    for function in (notebook["gemm"], notebook["kernel"]):
        found = check(function, ["33x35x39"])
        assert found.sound and found.name == "gemm" and found.headline in capsys.readouterr().out
    monkeypatch.delattr(sys.modules["__main__"], "In")
    with pytest.raises(UsageError, match="in no file"):
        check(notebook["gemm"])


def test_the_driver_is_left_as_it_was():
    before = triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run, triton.runtime.driver._active
    report(TRITON)
    assert (triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run, triton.runtime.driver._active) == before


def test_a_name_that_gluon_has_no_more():
    for old, new in renamed().items():  # none in the oldest Triton
        with pytest.raises(RuntimeError, match="has been removed"):
            getattr(tma, old)(_semantic=True)
        with StandIn(MODELS["sm_90"]).present():
            assert getattr(tma, old) is getattr(tma, new)


HELPERS = """
import not_installed

CONVERTER = not_installed.Converter()


def made(a, b):
    import torch
    from tiles import SIDE
    return torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype), SIDE
"""
MEMBER = (
    GLUON.replace(
        "import torch\n", "import torch\nimport not_installed\nfrom not_installed.of_triton import triton, tl\n"
    )
    .replace("@gluon.jit", "@not_installed.registered\n@gluon.jit")
    .replace("def matmul(a, b)", "def launch(a, b, c, M, N, K)")
    .replace("    (M, K), N = a.shape, b.shape[1]\n    c = torch.empty((M, N), dtype=a.dtype, device=a.device)\n", "")
    .replace("kernel[-(-N // 32), -(-M // 32)]", "kernel[triton.cdiv(N, 32), triton.cdiv(M, 32)]")
    + """

@not_installed.overload
def matmul(a, b):
    from .helpers import made
    c, side = made(a, b)
    assert side == 32 and tl.float32
    return launch(a, b, c, *c.shape, a.shape[1])
"""
)


def test_a_member_of_a_project_of_which_not_all_is_there(tmp_path):
    package = tmp_path / "project" / "ops"
    package.mkdir(parents=True)
    (tmp_path / "setup.py").touch()
    for name, text in {"__init__.py": "import not_installed", "helpers.py": HELPERS, "kernel.py": MEMBER}.items():
        (package / name).write_text(text, encoding="utf-8")
    (tmp_path / "tiles.py").write_text("SIDE = 32", encoding="utf-8")
    before = list(sys.path), list(sys.meta_path), set(sys.modules)
    found = check_file(package / "kernel.py", ("33x35x39",), kernel="matmul")
    assert found.sound and found.name == "matmul", found
    assert (sys.path, sys.meta_path) == before[:2] and not {"tiles", "project.ops"} & (set(sys.modules) - before[2])
