"""What a kernel costs to write, to compile and to hold: measured on real compilers, without a GPU."""

from __future__ import annotations

from dataclasses import asdict

import pytest

import gemm_ref
from cuda_kernels import source
from experiments.bench.machine_code import compile_to_cubin
from experiments.publish.docs import cost as page
from experiments.records import store
from experiments.records.contenders import Contender, contenders
from experiments.records.request import Request
from experiments.records.rows import ERROR, PASS
from experiments.records.source_lines import lines_of
from experiments.studies.cost import study as cost
from experiments.studies.cost.row import CostRow
from gemm_ref import Problem
from gemm_ref.sass import tools
from gemm_ref.sass.listing import parse
from gemm_ref.sass.sections import code_bytes
from tests.experiments.fixtures import CUBLAS, ENVIRONMENT, TFLOPS, NoBars, ladder_rows, raising

triton = pytest.importorskip("triton")  # the tools are in its wheel
COMPILED = ENVIRONMENT | {"nvcc": "13.0.88"}
ALIGNED = Problem(4096, 4096, 4096)


def _kernel(stage: str, dialect: str) -> Contender:
    return next(each for each in contenders() if each.stage[:3] == stage and each.dialect == dialect)


def test_every_variant_takes_part_once_in_each_of_its_dialects():
    chosen = [each for each in contenders() if not cost.unsuited(each, Request("cpu"))]
    everyone = {(item.stage.id, item.variant, item.dialect) for item in gemm_ref.implementations()}
    assert {(each.stage, each.variant, each.dialect) for each in chosen} == everyone and len(chosen) == len(everyone)
    assert {each.math for each in chosen} == {stage.maths[0] for stage in gemm_ref.STAGES.values()}
    in_fp8 = {each.stage for each in contenders() if not cost.unsuited(each, Request("cpu", math="fp8"))}
    assert in_fp8 == {stage.id for stage in gemm_ref.stages_in("fp8")}


def test_a_row_has_the_lines_of_the_rung_and_what_its_machine_code_takes():
    kernels = [_kernel("s13", "cuda"), _kernel("s04", "triton")]
    rows = list(cost.measure(Request("cpu"), kernels, NoBars()))
    assert {(row.m, row.n, row.k) for row in rows} == {(ALIGNED.m, ALIGNED.n, ALIGNED.k)}
    for row, kernel in zip(rows, kernels, strict=True):
        assert row.status == PASS, row.detail
        written = asdict(lines_of(kernel.stage, kernel.dialect))
        assert written.items() <= asdict(row).items() and written["own_lines"] > 0
        assert 0.05 < row.compile_s == row.compile_s_low == row.compile_s_high < 60 and row.compiles == 1
        code = compile_to_cubin(kernel, ALIGNED, (9, 0))
        instructions = {each.name: len(each.code) for each in parse(tools.disassemble(code.cubin))}
        assert code_bytes(code.cubin) == {name: 16 * count for name, count in instructions.items()}
        assert row.code_bytes == 16 * max(instructions.values()) and 32 <= row.registers < 256
    assert [row.shared_bytes for row in rows] == [3 * 16 * (128 + 4 + 128) * 4, 2 * 32 * 32 * 4]
    with pytest.raises(ValueError, match="3 bytes are no cubin"):
        code_bytes(b"ELF")


def test_a_time_is_that_of_a_compiler_that_finds_nothing_compiled(monkeypatch):
    commands, hits = [], []
    run_nvcc = source.run_nvcc
    monkeypatch.setattr(source, "run_nvcc", lambda arguments: commands.append(arguments) or run_nvcc(arguments))
    for anew in (False, True, False):
        compile_to_cubin(_kernel("s01", "cuda"), ALIGNED, (9, 0), anew=anew)
    assert 1 <= len(commands) <= 2
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
        codes = [compile_to_cubin(_kernel("s01", "triton"), ALIGNED, (9, 0), anew=anew) for anew in (True, True)]
    assert hits == [False, False] and codes[0] == codes[1]


def test_the_median_of_several_times_is_told_with_the_least_and_the_most(monkeypatch):
    kernel = _kernel("s01", "cuda")
    code = compile_to_cubin(kernel, ALIGNED, (9, 0))
    monkeypatch.setattr(cost, "compile_to_cubin", lambda *_, **__: code)
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 27.0, 30.0, 34.0, 40.0, 42.0])
    monkeypatch.setattr(cost, "_cpu_seconds", lambda: next(clock))
    (row,) = cost.measure(Request("cpu", problems=(Problem(5, 6, 7),), preset="full"), [kernel], NoBars())
    assert (row.m, row.n, row.k) == (5, 6, 7)
    assert (row.compile_s, row.compile_s_low, row.compile_s_high, row.compiles) == (3.0, 1.0, 7.0, 5)


def test_what_does_not_compile_is_a_row_that_says_so(monkeypatch):
    failing = raising(gemm_ref.build.BuildError("nvcc failed: no such thing"))
    monkeypatch.setattr(cost, "compile_to_cubin", failing)
    (row,) = cost.measure(Request("cpu"), [_kernel("s01", "cuda")], NoBars())
    assert row.status == ERROR and "no such thing" in row.detail and row.own_lines and row.compile_s is None


@pytest.fixture
def data(tmp_path):
    """What `cost` found of every kernel, in a folder of its own."""
    values = {"compile_s": 1.25, "registers": 99, "shared_bytes": 8192, "code_bytes": 4096, "arch": "sm_90a"}
    rows = [
        CostRow.about("cost", each, ALIGNED, **asdict(lines_of(each.stage, each.dialect)), **values)
        for each in contenders()
        if not cost.unsuited(each, Request("cpu"))
    ]
    store.save(tmp_path, "cost", rows, COMPILED)
    return tmp_path


def test_lines_are_drawn_alone_and_against_speeds_where_there_are_some(data, draw_pictures):
    ((name, text),) = draw_pictures("cost").items()
    kernels = [(stage.id, dialect) for stage in gemm_ref.STAGES.values() for dialect in stage.dialects]
    own = {str(lines_of(*kernel).own_lines) for kernel in kernels}
    assert name == "cost_lines" and all(f"<!-- {each} -->" in text for each in own)
    assert "no speeds were measured here" in text and "s18 warp specialized" in text
    store.save(data, "ladder", ladder_rows((4096,)), COMPILED)
    svg = draw_pictures("cost")
    assert "no speeds" not in svg["cost_lines"]
    text = svg["cost_vs_cublas"]
    assert "fp32 at 4096" in text and "bf16" not in text and "<!-- s12 -->" in text


def test_the_page_shows_what_there_is_and_says_what_is_not(data):
    store.save(data, "ladder", ladder_rows((4096,)), COMPILED)
    text = page.render(data)
    stage = gemm_ref.stages_in("fp32")[-1]  # the fastest of the fixture in CUDA
    written = lines_of(stage.id, "cuda")
    best = f"CUDA `{stage.id[:3]}`, {written.own_lines} lines of its own and {written.shared_lines} shared"
    share = f"{100 * TFLOPS[stage.id]['cuda'] / CUBLAS:.1f}% of cuBLAS"
    title, _, fp32, bf16, times, blank, *_ = text.splitlines()
    assert title == "# What a step costs to write" and blank == "" and f"{best}, {share}" in fp32
    assert bf16 == "bf16: not measured." and "CUDA 1.2 (1.2 to 1.2)" in times and "call: not measured" in times
    row = "| `s04_shared_tile` | 1.25 / 1.25 / 1.25 | 99 / 99 / 99 | 8.0 / 8.0 / 8.0 | 4.0 / 4.0 / 4.0 | – / – / – |"
    assert row in text and "compiled on a CPU. nvcc 13.0.88" in text and "cost_lines.png" not in text
    (data / "cost_lines.png").touch()
    assert "cost_lines.png" in page.render(data)
    nothing = page.render(data / "nothing")
    assert "fp32: not measured." in nothing and nothing.count(f"| {written.own_lines} / ") >= 1
