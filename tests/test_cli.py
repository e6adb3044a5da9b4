"""The command line: menus, refusals, failing kernels, interruption. Kernels are fakes, so it is quick."""

import re

import pytest
import torch
from experiment_fixtures import ENVIRONMENT, ladder_rows
from typer.testing import CliRunner

import gemm_ref
from experiments import cli, correctness, ladder, results
from experiments.contenders import Contender

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")


def right(a, b, out=None):
    return torch.mm(a, b, out=out)


def wrong(a, b, out=None):
    return torch.mm(a, b, out=out).mul_(1.5)


def broken(a, b, out=None):
    raise RuntimeError("no such opcode: frobnicate")


def interrupting(a, b, out=None):
    raise KeyboardInterrupt


def unloadable():
    raise ImportError("no compiler")


def fake(name, fn, dialect="cuda", load=None):
    return Contender(name, "default", "cuda" if dialect else "cpu", dialect, "fp32", ("cpu",), load or (lambda: fn))


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.setattr(cli.out, "width", 200)
    monkeypatch.setattr(correctness, "ON_CPU", ((3, 5, 7), (0, 1, 2)))
    monkeypatch.setattr(correctness, "ALL_EDGES_PARTIAL", (5, 3, 2))
    monkeypatch.setitem(ladder.SIZES, "cpu", (8, 16))

    def run(*arguments, pool=None):
        if pool is not None:
            monkeypatch.setattr("experiments.contenders.contenders", lambda: pool)
        # The consoles were made at import; they print to whatever is stdout now.
        return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])

    return run


def said(result):
    return re.sub(r"\s+", " ", result.output)


def test_list_names_everything(invoke):
    result = invoke("list")
    assert result.exit_code == 0
    for name in ("correctness", "ladder", *gemm_ref.STAGES, "cublas", "numpy_blas"):
        assert name in result.output


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("run", "corectness"), ("corectness", "did you mean correctness?")),
        (("plot", "laddr"), ("laddr", "did you mean ladder?")),
        (("run", "--stage", "s04_shard"), ("s04_shard", "s04_shared_tile")),
        (("run", "--backend", "tritn"), ("tritn", "triton")),
        (("run", "--size", "12x"), ("12x", "1021x509x131")),
        (("run", "--math", "fp33"), ("fp33", "fp32")),
        (("run", "--device", "tpu"), ("tpu", "cpu")),
    ],
)
def test_what_is_not_understood_is_refused(invoke, tmp_path, arguments, messages):
    result = invoke(*arguments, "--results", tmp_path)
    assert result.exit_code == 2
    assert all(message in said(result) for message in messages), result.output
    assert list(tmp_path.iterdir()) == []


@no_gpu
def test_a_gpu_that_is_not_there(invoke, tmp_path):
    result = invoke("run", "ladder", "--device", "cuda", "--results", tmp_path)
    assert result.exit_code == 2
    assert "torch sees no GPU" in said(result) and "doctor" in said(result)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_kernel_is_reported_and_the_rest_go_on(invoke, tmp_path):
    pool = [
        fake("s01_naive", wrong),
        fake("s02_coalesced", broken),
        fake("s03_block_tile", None, load=unloadable),
        fake("s04_shared_tile", right),
    ]
    result = invoke("run", "correctness", "--device", "cpu", "--results", tmp_path, pool=pool)
    assert result.exit_code == 1
    text = said(result)
    assert "failed s01_naive cuda at 3x5x7" in text and "elements of C are wrong" in text
    assert "frobnicate" in text and "no compiler" in text
    frame = results.read(tmp_path, "correctness")
    checks = 7  # two problems with three kinds of inputs, and one with one
    assert list(frame[frame["stage"] == "s04_shared_tile"]["status"]) == ["pass"] * checks
    for stage in ("s02_coalesced", "s03_block_tile"):  # an error is not repeated for each size
        assert list(frame[frame["stage"] == stage]["status"]) == ["error"] + ["skipped"] * (checks - 1)
    empty = (frame["stage"] == "s01_naive") & (frame["m"] == 0)
    assert set(frame[empty]["status"]) == {"pass"}  # 1.5 times nothing is nothing
    assert (tmp_path / "correctness.svg").exists() and (tmp_path / "environment.json").exists()


def test_a_wrong_contender_is_never_timed(invoke, tmp_path):
    pool = [fake("numpy_blas", wrong, dialect=""), fake("torch_blas", right, dialect="")]
    result = invoke("run", "ladder", "--device", "cpu", "--results", tmp_path, pool=pool)
    assert result.exit_code == 1
    frame = results.read(tmp_path, "ladder").set_index("stage")
    assert frame.loc["numpy_blas", "median_us"].isna().all()
    assert (frame.loc["torch_blas", "median_us"] > 0).all()
    assert (frame.loc["torch_blas", "repeats"] >= ladder.CPU_MIN_ROUNDS).all()
    assert list(frame.loc["torch_blas", "m"]) == [8, 16]


def test_all_pass(invoke, tmp_path):
    result = invoke("run", "correctness", "--device", "cpu", "--results", tmp_path, pool=[fake("s01_naive", right)])
    assert result.exit_code == 0, result.output
    assert "failed" not in result.output


def test_interruption_keeps_the_rows_so_far(invoke, tmp_path):
    pool = [fake("s01_naive", right), fake("s02_coalesced", interrupting)]
    result = invoke("run", "correctness", "--device", "cpu", "--results", tmp_path, pool=pool)
    assert result.exit_code == 130
    assert list(results.read(tmp_path, "correctness")["stage"]) == ["s01_naive"]


def test_filters(invoke, tmp_path):
    pool = [
        fake("s01_naive", right),
        fake("s01_naive", right, dialect="triton"),
        fake("s02_coalesced", right),
    ]
    arguments = ("--stage", "s01", "--backend", "triton", "--size", "4x5x6", "--device", "cpu", "--results", tmp_path)
    assert invoke("run", "correctness", *arguments, pool=pool).exit_code == 0
    frame = results.read(tmp_path, "correctness")
    assert set(zip(frame["stage"], frame["dialect"], frame["m"], frame["k"], strict=True)) == {
        ("s01_naive", "triton", 4, 6)
    }
    assert set(frame["inputs"]) == {"normal", "integers", "one_hot"}


def test_an_experiment_with_nothing_to_run(invoke, tmp_path):
    arguments = ("--stage", "s01", "--device", "cpu", "--results", tmp_path)
    named = invoke("run", "ladder", *arguments, pool=[fake("s01_naive", right)])
    assert named.exit_code == 2 and "nothing to run in ladder" in said(named)
    assert invoke("run", *arguments, pool=[fake("s01_naive", right)]).exit_code == 0  # correctness is enough
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".json", ".png", ".svg"}


def test_plot_redraws_from_the_csv(invoke, tmp_path):
    results.save(tmp_path, "ladder", ladder_rows((1024, 2048)), ENVIRONMENT)
    result = invoke("plot", "ladder", "--results", tmp_path)
    assert result.exit_code == 0
    assert (tmp_path / "ladder_vs_cublas.svg").exists()
    assert invoke("plot", "correctness", "--results", tmp_path).exit_code == 2


@no_gpu
def test_plot_without_own_data_draws_what_was_published(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    results.save(tmp_path / "nvidia-fixture", "ladder", ladder_rows((1024,)), ENVIRONMENT)
    result = invoke("plot", "ladder")
    assert result.exit_code == 0
    assert "NVIDIA Fixture" in said(result) and "2020-02-02" in said(result)
    svg = tmp_path / "cpu" / "published-nvidia-fixture" / "ladder_tflops.svg"
    assert "NVIDIA Fixture" in svg.read_text(encoding="utf-8")
    assert not list((tmp_path / "nvidia-fixture").glob("*.svg"))


def test_readme_check(invoke, tmp_path, monkeypatch):
    path = tmp_path / "README.md"
    path.write_text("<!-- ladder:begin -->\n<!-- ladder:end -->\n", encoding="utf-8")
    monkeypatch.setattr("experiments.readme.README", path)
    assert invoke("readme", "--check").exit_code == 1
    assert invoke("readme").exit_code == 0
    assert invoke("readme", "--check").exit_code == 0
    path.write_text("no markers\n", encoding="utf-8")
    assert invoke("readme").exit_code == 2


def test_doctor_says_what_to_do_about_what_is_missing(invoke, monkeypatch):
    from gemm_ref.build import BuildError

    def no_compiler():
        raise BuildError("install g++")

    monkeypatch.setattr("experiments.doctor.find_cxx", no_compiler)
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "install g++" in said(result)
    for what in ("Python", "torch", "triton", "ninja", "nvcc", "GPU", "hardware counters"):
        assert what in result.output
