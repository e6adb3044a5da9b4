"""The command line: menus, refusals, failing kernels, interruption. Studies and kernels are made up, so it is quick."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

import gemm_ref
from cuda_kernels.__main__ import app as cuda_kernels_app
from experiments import doctor, selection
from experiments.bench.verify import CheckResult
from experiments.records import store, studies
from experiments.records.contenders import Contender
from experiments.records.rows import ERROR
from gemm_ref.build import BuildError
from gemm_ref.version import version
from tests.experiments.fixtures import ENVIRONMENT, interrupting, ladder_rows, raising, renamed, right, wrong

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")


def fake(name, fn, dialect="cuda", load=None):
    return Contender(name, "default", "cuda" if dialect else "cpu", dialect, "fp32", ("cpu",), load or (lambda: fn))


@pytest.fixture
def run(invoke, example_study, tmp_path):
    """`run("example", pool=[...])`: on the reference GPU, into tmp_path."""
    return lambda *arguments, pool: invoke("run", *arguments, "--device", "cpu", "--results", tmp_path, pool=pool)


def test_list_and_help_name_everything(invoke):
    listed, options = invoke("list"), invoke("run", "--help").said
    assert listed.exit_code == 0
    for name in (*studies.names(), *gemm_ref.STAGES, "cublas", "numpy_blas"):
        assert name in listed.output
    assert "[all of them]" in options  # brackets are not markup
    assert all(re.search(rf"\b{name}\b", options) for name in (*gemm_ref.MATHS, *selection.known_backends()))


# Commands that are refused, and how the message begins; of the studies there are `example` and `needs_gpu`.
REFUSALS = re.findall(r"^\$ (.*)\n> (.*)$", Path(__file__).with_name("refusals.txt").read_text(encoding="utf-8"), re.M)


@pytest.mark.usefixtures("example_study")
@pytest.mark.parametrize(("command", "message"), REFUSALS)
def test_what_is_not_understood_is_refused(invoke, tmp_path, monkeypatch, command, message):
    monkeypatch.chdir(tmp_path)
    result = invoke(*command.split())
    assert result.exit_code == 2 and f"error: {message}" in result.said, result.output
    assert list(tmp_path.iterdir()) == []


@no_gpu
def test_a_gpu_that_is_not_there(invoke, tmp_path):
    result = invoke("run", "--device", "cuda", "--results", tmp_path)
    assert result.exit_code == 2 and "torch sees no GPU" in result.said and list(tmp_path.iterdir()) == []


def test_a_failing_kernel_is_reported_and_the_rest_go_on(run, tmp_path):
    long_message = "did not build:\n" + "a warning of no interest\n" * 100 + "x.cu(3): error: what matters"
    pool = [
        fake("s01_naive", wrong),
        fake("s02_coalesced", raising(RuntimeError("no such opcode: frobnicate"))),
        fake("s03_block_tile", None, load=raising(ImportError(long_message))),
        fake("s04_shared_tile", right),
    ]
    result = run("example", pool=pool)
    assert result.exit_code == 1
    assert "failed s01_naive cuda at 3x5x7" in result.said and "elements of C are wrong" in result.said
    assert "frobnicate" in result.said and result.output.count("a warning of no interest\n") == 100  # line by line
    frame = store.read(tmp_path, "example")
    assert frame.groupby("stage")["status"].agg(list).to_dict() == {
        "s01_naive": ["fail", "pass"],  # 1.5 times nothing is nothing
        "s02_coalesced": ["error"] * 2,
        "s03_block_tile": ["error"] * 2,
        "s04_shared_tile": ["pass"] * 2,
    }
    detail = frame[frame["stage"] == "s03_block_tile"].iloc[0]["detail"]
    assert detail.endswith("error: what matters") and len(detail) <= 520
    assert (tmp_path / "example.svg").exists() and (tmp_path / "environment.json").exists()


@pytest.mark.parametrize("stages", [("s01_naive",), ()])
def test_interruption_keeps_the_rows_so_far(run, tmp_path, stages):
    result = run("example", pool=[*(fake(stage, right) for stage in stages), fake("s02_coalesced", interrupting)])
    assert result.exit_code == 130 and ("kept" in result.said) == bool(stages)
    assert list(store.read(tmp_path, "example")["stage"]) == [stage for stage in stages for _ in range(2)]


def test_a_kernel_that_kills_the_gpu_has_a_row(run, tmp_path, monkeypatch):
    lost = CheckResult(ERROR, "illegal access", lost="the GPU is unusable")
    monkeypatch.setattr(studies.load("example", "study"), "verify", lambda *_, **__: lost)
    result = run("example", "--size", "8", pool=[fake("s01_naive", right), fake("s02_coalesced", right)])
    assert result.exit_code == 1 and "stopped: the GPU is unusable" in result.said
    frame = store.read(tmp_path, "example")
    assert list(zip(frame["stage"], frame["status"], strict=True)) == [("s01_naive", "error")]


@pytest.mark.parametrize("file", ["example.csv", "environment.json"])
def test_a_folder_of_foreign_files_is_refused(run, invoke, tmp_path, file):
    """They are refused before anything is measured or drawn."""
    store.save(tmp_path, "example", renamed("example", ladder_rows((64,))), ENVIRONMENT)
    (tmp_path / file).write_text("{" if file.endswith("json") else "a,b\n1,2\n", encoding="utf-8")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    measured = run("example", pool=[fake("s01_naive", interrupting)])
    drawn = invoke("plot", "example", "--results", tmp_path)
    for result in (measured, drawn):
        assert result.exit_code == 2 and file in result.said and "another --results" in result.said
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_in_which_all_was_skipped_fails(run):
    result = run("example", "--size", "4096", pool=[fake("s01_naive", right)])
    assert result.exit_code == 1 and "skipped s01_naive cuda at 4096x4096x4096: it is too deep" in result.said
    assert "nothing was measured" in result.said
    result = run("example", "--size", "4096", "--size", "8", pool=[fake("s01_naive", right)])
    assert result.exit_code == 0 and "nothing was measured" not in result.said


def test_a_system_that_does_not_tell_its_memory(monkeypatch):
    monkeypatch.delattr("os.sysconf")
    assert selection.memory_bytes() is None
    assert selection.make_request((), (), ("99999999",), "fp32", "cpu").problems


@pytest.mark.usefixtures("example_study")
def test_filters(invoke, tmp_path):
    pool = [fake("s01_naive", right), fake("s01_naive", right, dialect="triton"), fake("s02_coalesced", right)]
    folder = tmp_path / "[bold]"
    arguments = "run --stage s01 --backend triton --size 4x5x6 --device cpu --results".split()
    result = invoke(*arguments, folder, pool=pool)  # that nothing runs in the other study is no error
    assert result.exit_code == 0 and f"rows are in {folder}" in result.said and f"drew {folder}" in result.said
    frame = store.read(folder, "example")
    assert frame[["stage", "dialect", "m", "k"]].to_numpy().tolist() == [["s01_naive", "triton", 4, 6]]
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".json", ".png", ".svg"}


@pytest.mark.usefixtures("svg_alone", "example_study")
def test_plot_redraws_from_the_csv(invoke, tmp_path):
    store.save(tmp_path, "example", renamed("example", ladder_rows((1024,))), ENVIRONMENT)
    assert invoke("plot", "example", "--results", tmp_path).exit_code == 0
    assert (tmp_path / "example.svg").exists()
    assert invoke("plot", "needs_gpu", "--results", tmp_path).exit_code == 2


@no_gpu
@pytest.mark.usefixtures("svg_alone", "example_study")
def test_plot_without_own_data_draws_what_was_published(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    store.save(tmp_path / "nvidia-fixture", "example", renamed("example", ladder_rows((1024,))), ENVIRONMENT)
    result = invoke("plot", "example")
    assert result.exit_code == 0
    assert "NVIDIA Fixture" in result.said and "2020-02-02" in result.said
    svg = tmp_path / "cpu" / "published-nvidia-fixture" / "example.svg"
    assert "NVIDIA Fixture" in svg.read_text(encoding="utf-8")
    assert not list((tmp_path / "nvidia-fixture").glob("*.svg"))


def test_a_document_is_stale_until_it_is_written(invoke, tmp_path, monkeypatch):
    path = tmp_path / "README.md"
    path.write_text("# Title\n\n<!-- ladder:begin -->\nold\n<!-- ladder:end -->\n\nkept\n", encoding="utf-8")
    monkeypatch.setattr("experiments.publish.blocks.DOCUMENTS", {path: ("ladder",)})
    monkeypatch.setattr("experiments.publish.blocks.PAGES", {})
    assert [invoke("readme", *check).exit_code for check in (["--check"], [], ["--check"])] == [1, 0, 0]
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Title\n") and text.endswith("\nkept\n") and "\nold\n" not in text
    path.write_text("no markers\n", encoding="utf-8")
    result = invoke("readme")
    assert (
        result.exit_code == 2 and "ladder:begin" in result.said and path.read_text(encoding="utf-8") == "no markers\n"
    )
    monkeypatch.setattr("experiments.publish.blocks.CHECKOUT", None)
    assert "run this in a checkout of the repo" in invoke("readme").said


def test_version(invoke):
    assert invoke("--version").said == f"gemm-ladder {version()}"
    assert CliRunner().invoke(cuda_kernels_app, ["--version"]).output == f"gemm-ladder {version()}\n"


# --- doctor --------------------------------------------------------------------------------------------------


def test_doctor_says_what_to_do_about_what_is_missing(invoke, monkeypatch):
    monkeypatch.setattr("experiments.doctor.find_cxx", raising(BuildError("install g++")))
    result = invoke("doctor")
    assert result.exit_code == 1 and "install g++" in result.said
    for what in ("Python", "torch", "triton", "ninja", "nvcc", "GPU", "hardware counters"):
        assert what in result.output


def test_doctor_on_a_compiler_that_does_not_run(invoke, monkeypatch):
    monkeypatch.setattr(doctor, "version_of", raising(BuildError("reinstall it")))
    monkeypatch.setattr(doctor, "find_cxx", lambda: "/bin/[cxx]")
    monkeypatch.setattr(doctor, "find_ninja", lambda: "/bin/ninja")
    result = invoke("doctor")
    assert result.exit_code == 1 and "/bin/[cxx] does not run" in result.said and "reinstall it" in result.said


@no_gpu
def test_doctor_on_a_driver_that_torch_cannot_use(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_DRIVER", tmp_path)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.cuda.init", raising(RuntimeError("the NVIDIA driver is too old")))
    (finding,) = doctor._gpus()
    assert (finding.state, finding.finding) == ("missing", "the NVIDIA driver is too old")


@pytest.mark.parametrize(
    ("capability", "state", "advice"),
    [((7, 0), "absent", "older"), ((8, 9), "ok", ""), ((9, 0), "ok", ""), ((12, 0), "absent", "newer")],
)
def test_doctor_compares_the_gpu_with_the_build_of_torch(monkeypatch, capability, state, advice):
    properties = SimpleNamespace(name="a GPU", major=capability[0], minor=capability[1], total_memory=2**30)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    monkeypatch.setattr("torch.cuda.get_arch_list", lambda: ["sm_75", "sm_80", "sm_90a", "sm_100", "compute_100"])
    monkeypatch.setattr(doctor, "_driver", lambda: "1.2")
    finding = doctor._gpu(0)
    assert finding.state == state and advice in finding.advice
