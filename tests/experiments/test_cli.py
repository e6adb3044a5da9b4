"""The command line: menus, refusals, failing kernels, interruption. Kernels are fakes, so it is quick."""

import re
from types import SimpleNamespace

import pytest
import torch

import gemm_ref
from experiments import doctor, selection
from experiments.bench import measure
from experiments.bench.rounds import MIN_USEFUL_ROUNDS
from experiments.bench.verify import CheckResult
from experiments.records import store, studies, workloads
from experiments.records.contenders import Contender
from experiments.records.rows import ERROR
from gemm_ref.build import BuildError
from tests.experiments.fixtures import ENVIRONMENT, interrupting, ladder_rows, raising, right, wrong

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")


def fake(name, fn, dialect="cuda", load=None):
    return Contender(name, "default", "cuda" if dialect else "cpu", dialect, "fp32", ("cpu",), load or (lambda: fn))


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch):
    monkeypatch.setattr(workloads, "ON_CPU", ((3, 5, 7), (0, 1, 2)))
    monkeypatch.setattr(workloads, "ON_CPU_FEW", workloads.ON_CPU)
    monkeypatch.setattr(workloads, "FEW_EDGES_PARTIAL", (5, 3, 2))
    monkeypatch.setitem(workloads.LADDER, "cpu", ((8, 8, 8), (16, 16, 16)))


@pytest.fixture
def run(invoke, tmp_path):
    """`run("ladder", pool=[...])`: on the reference GPU, into tmp_path."""
    return lambda *arguments, pool: invoke("run", *arguments, "--device", "cpu", "--results", tmp_path, pool=pool)


def test_list_names_everything(invoke):
    result = invoke("list")
    assert result.exit_code == 0
    for name in (*studies.names(), *gemm_ref.STAGES, "cublas", "numpy_blas"):
        assert name in result.output


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("run", "corectness"), ("corectness", "did you mean correctness?")),
        (("plot", "laddr"), ("laddr", "did you mean ladder?")),
        (("run", "--stage", "s04_shard"), ("s04_shard", "s04_shared_tile")),
        (("run", "--backend", "tritn"), ("tritn", "there are cuda, triton, gluon,", "did you mean triton?")),
        (("run", "--size", "2147483647x1x1"), ("2147483647x1x1", "32 bits")),
        (("run", "--size", "99999999"), ("99999999", "GiB for A, B, C", "smaller --size")),
        (("run", "ladder", "--size", "0", "--device", "cpu"), ("nothing to time at size 0x0x0",)),
        (("run", "ladder", "--stage", "s01", "--device", "cpu"), ("rungs are timed only on a GPU",)),
        (("run", "ladder", "--backend", "cublas", "--device", "cpu"), ("on the cpu: cublas needs a GPU",)),
        (("run", "correctness", "--backend", "numpy", "--device", "cpu"), ("baselines are not part of it",)),
        (("run", "--size", "12x"), ("12x", "1021x509x131")),
        (("run", "--math", "fp33"), ("fp33", "fp32")),
        (("run", "--device", "tpu"), ("tpu", "cpu")),
        (("run", "--preset", "fulll"), ("fulll", "there are default, full", "did you mean full?")),
        (("run", "modes", "--device", "cpu"), ("the timing modes need a GPU",)),
        (("run", "host", "--device", "cpu"), ("is the cost of a launch on a GPU",)),
        (("run", "ladder", "--math", "tf32", "--device", "cpu"), ("nothing to run in ladder",)),
    ],
)
def test_what_is_not_understood_is_refused(invoke, tmp_path, arguments, messages):
    result = invoke(*arguments, "--results", tmp_path)
    assert result.exit_code == 2
    assert all(message in result.said for message in messages), result.output
    assert list(tmp_path.iterdir()) == []


@no_gpu
def test_a_gpu_that_is_not_there(invoke, tmp_path):
    result = invoke("run", "ladder", "--device", "cuda", "--results", tmp_path)
    assert result.exit_code == 2
    assert "torch sees no GPU" in result.said and "doctor" in result.said
    assert list(tmp_path.iterdir()) == []


def test_a_failing_kernel_is_reported_and_the_rest_go_on(run, tmp_path):
    pool = [
        fake("s01_naive", wrong),
        fake("s02_coalesced", raising(RuntimeError("no such opcode: frobnicate"))),
        fake("s03_block_tile", None, load=raising(ImportError("no compiler"))),
        fake("s04_shared_tile", right),
    ]
    result = run("correctness", pool=pool)
    assert result.exit_code == 1
    text = result.said
    assert "failed s01_naive cuda at 3x5x7" in text and "elements of C are wrong" in text
    assert "frobnicate" in text and "no compiler" in text
    frame = store.read(tmp_path, "correctness")
    checks = 7  # two problems with three kinds of inputs, and one with one
    assert list(frame[frame["stage"] == "s04_shared_tile"]["status"]) == ["pass"] * checks
    for stage in ("s02_coalesced", "s03_block_tile"):  # an error is not repeated for each size
        assert list(frame[frame["stage"] == stage]["status"]) == ["error"] + ["skipped"] * (checks - 1)
    empty = (frame["stage"] == "s01_naive") & (frame["m"] == 0)
    assert set(frame[empty]["status"]) == {"pass"}  # 1.5 times nothing is nothing
    assert (tmp_path / "correctness.svg").exists() and (tmp_path / "environment.json").exists()


def test_a_wrong_contender_is_never_timed(run, tmp_path):
    pool = [fake("numpy_blas", wrong, dialect=""), fake("torch_blas", right, dialect="")]
    result = run("ladder", pool=pool)
    assert result.exit_code == 1
    frame = store.read(tmp_path, "ladder").set_index("stage")
    assert frame.loc["numpy_blas", "median_us"].isna().all()
    assert (frame.loc["torch_blas", "median_us"] > 0).all()
    assert (frame.loc["torch_blas", "repeats"] >= measure.CPU_PLAN.min_rounds).all()
    assert list(frame.loc["torch_blas", "m"]) == [8, 16]


def test_all_pass(run, tmp_path):
    result = run("correctness", pool=[fake("s01_naive", right)])
    assert result.exit_code == 0, result.output
    assert "failed" not in result.output


@pytest.mark.parametrize(
    ("stages", "said"), [(("s01_naive",), "the rows above are kept"), ((), "nothing was measured")]
)
def test_interruption_keeps_the_rows_so_far(run, tmp_path, stages, said):
    result = run("correctness", pool=[*(fake(stage, right) for stage in stages), fake("s02_coalesced", interrupting)])
    assert result.exit_code == 130 and said in result.said and ("kept" in result.said) == bool(stages)
    if stages:
        assert list(store.read(tmp_path, "correctness")["stage"]) == ["s01_naive"] * 7  # all that there is of it


@pytest.mark.parametrize(("finished", "kept"), [(MIN_USEFUL_ROUNDS, True), (MIN_USEFUL_ROUNDS - 1, False)])
def test_interruption_keeps_the_finished_rounds(run, tmp_path, finished, kept):
    calls = []

    def interrupted_while_timed(a, b, out=None):
        calls.append(1)
        if len(calls) > 2 + finished:  # after two checks
            raise KeyboardInterrupt
        return torch.mm(a, b, out=out)

    pool = [fake("numpy_blas", interrupted_while_timed, dialect="")]
    result = run("ladder", "--size", "8", pool=pool)
    assert result.exit_code == 130
    assert list(store.read(tmp_path, "ladder")["repeats"]) == ([finished] if kept else [])


@pytest.mark.parametrize("name", ["correctness", "ladder"])
def test_a_kernel_that_kills_the_gpu_has_a_row(run, tmp_path, monkeypatch, name):
    result = CheckResult(ERROR, "illegal access", lost="the GPU is unusable")
    monkeypatch.setattr(
        f"experiments.{'bench.measure' if name == 'ladder' else f'studies.{name}.study'}.verify",
        lambda *_, **__: result,
    )
    pool = [fake(stage, right, dialect="cuda" if name == "correctness" else "") for stage in ("s01_naive", "s02_x")]
    result = run(name, "--size", "8", pool=pool)
    assert result.exit_code == 1 and "stopped: the GPU is unusable" in result.said
    frame = store.read(tmp_path, name)
    assert list(zip(frame["stage"], frame["status"], strict=True)) == [("s01_naive", "error")]


def test_the_whole_message_is_printed_and_its_end_is_kept(run, tmp_path):
    said = "did not build:\n" + "a warning of no interest\n" * 100 + "x.cu(3): error: what matters"
    pool = [fake("s01_naive", None, load=raising(RuntimeError(said)))]
    result = run("correctness", pool=pool)
    assert result.output.count("a warning of no interest\n") == 100  # once, line by line
    details = store.read(tmp_path, "correctness")["detail"]
    assert all(detail.endswith("error: what matters") and len(detail) <= 520 for detail in details)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("correctness.csv", "a,b\n1,2\n", "no column experiment"),
        ("correctness.csv", "", "is not a results file"),
        ("ladder.csv", "a,b\n1,2\n", "no column experiment"),
        ("environment.json", "{", "is not a record of environments"),
        ("environment.json", '{"a": 1}', "is not a record of environments"),
    ],
)
def test_a_folder_of_foreign_files_is_refused_before_measuring(run, tmp_path, file, text, message):
    (tmp_path / file).write_text(text, encoding="utf-8")
    pool = [fake("s01_naive", interrupting)]
    result = run("correctness", pool=pool)
    assert result.exit_code == 2, result.output
    assert message in result.said and file in result.said and "another --results" in result.said
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("file", ["ladder.csv", "environment.json"])
def test_plot_refuses_foreign_files(invoke, tmp_path, file):
    store.save(tmp_path, "ladder", ladder_rows((1024,)), ENVIRONMENT)
    (tmp_path / file).write_text("", encoding="utf-8")
    result = invoke("plot", "ladder", "--results", tmp_path)
    assert result.exit_code == 2 and file in result.said


def test_a_folder_that_cannot_be_written_is_refused(invoke, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    for folder in ("file", "file/within/it"):
        arguments = ("--device", "cpu", "--results", tmp_path / folder)
        result = invoke("run", "correctness", *arguments, pool=[fake("s01_naive", interrupting)])
        assert result.exit_code == 2
        assert f"error: {tmp_path / 'file'} is a file, not a folder; pass another --results" in result.said


def test_what_the_reference_gpu_is_too_slow_for_is_skipped(run, tmp_path):
    result = run("correctness", "--size", "1x1x1048577", "--size", "4096", pool=[fake("s01_naive", right)])
    assert result.exit_code == 0, result.output
    frame = store.read(tmp_path, "correctness")
    assert set(frame[frame["k"] == 4096]["status"]) == {"skipped"} and "about 11 minutes" in result.said
    assert set(frame[frame["k"] == 1048577]["inputs"]) == {"normal", "one_hot"}  # integers would not be exact


def test_a_system_that_does_not_tell_its_memory(monkeypatch):
    monkeypatch.delattr("os.sysconf")
    assert selection.memory_bytes() is None
    assert selection.make_request((), (), ("99999999",), "fp32", "cpu").problems


def test_help_has_brackets_modes_and_backends(invoke, tmp_path):
    text = invoke("run", "--help").said
    assert "[all of them]" in text and "[experiments/results/<device>]" in text
    assert all(re.search(rf"\b{name}\b", text) for name in (*gemm_ref.MATHS, *selection.known_backends()))
    folder = tmp_path / "[bold]"
    result = invoke("run", "correctness", "--device", "cpu", "--results", folder, pool=[fake("s01_naive", right)])
    assert f"rows are in {folder}" in result.said and f"drew {folder}" in result.said


def test_filters(run, tmp_path):
    pool = [fake("s01_naive", right), fake("s01_naive", right, dialect="triton"), fake("s02_coalesced", right)]
    assert run("correctness", *"--stage s01 --backend triton --size 4x5x6".split(), pool=pool).exit_code == 0
    frame = store.read(tmp_path, "correctness")
    assert set(frame[["stage", "dialect", "m", "k"]].itertuples(index=False, name=None)) == {
        ("s01_naive", "triton", 4, 6)
    }
    assert set(frame["inputs"]) == {"normal", "integers", "one_hot"}


def test_an_experiment_with_nothing_to_run(run, tmp_path):
    named = run("ladder", "--stage", "s01", pool=[fake("s01_naive", right)])
    assert named.exit_code == 2 and "nothing to run in ladder" in named.said
    assert run("--stage", "s01", pool=[fake("s01_naive", right)]).exit_code == 0  # correctness is enough
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".json", ".png", ".svg"}


@pytest.mark.usefixtures("svg_alone")
def test_plot_redraws_from_the_csv(invoke, tmp_path):
    store.save(tmp_path, "ladder", ladder_rows((1024, 2048)), ENVIRONMENT)
    result = invoke("plot", "ladder", "--results", tmp_path)
    assert result.exit_code == 0
    assert (tmp_path / "ladder_vs_cublas.svg").exists()
    assert invoke("plot", "correctness", "--results", tmp_path).exit_code == 2


@no_gpu
@pytest.mark.usefixtures("svg_alone")
def test_plot_without_own_data_draws_what_was_published(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    store.save(tmp_path / "nvidia-fixture", "ladder", ladder_rows((1024,)), ENVIRONMENT)
    result = invoke("plot", "ladder")
    assert result.exit_code == 0
    assert "NVIDIA Fixture" in result.said and "2020-02-02" in result.said
    svg = tmp_path / "cpu" / "published-nvidia-fixture" / "ladder_tflops.svg"
    assert "NVIDIA Fixture" in svg.read_text(encoding="utf-8")
    assert not list((tmp_path / "nvidia-fixture").glob("*.svg"))


def test_readme_check(invoke, tmp_path, monkeypatch):
    path = tmp_path / "README.md"
    path.write_text("<!-- ladder:begin -->\n<!-- ladder:end -->\n", encoding="utf-8")
    monkeypatch.setattr("experiments.publish.blocks.DOCUMENTS", {path: ("ladder",)})
    monkeypatch.setattr("experiments.publish.blocks.PAGES", {})
    assert invoke("readme", "--check").exit_code == 1
    assert invoke("readme").exit_code == 0
    assert invoke("readme", "--check").exit_code == 0
    path.write_text("no markers\n", encoding="utf-8")
    assert invoke("readme").exit_code == 2


def test_doctor_says_what_to_do_about_what_is_missing(invoke, monkeypatch):
    monkeypatch.setattr("experiments.doctor.find_cxx", raising(BuildError("install g++")))
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "install g++" in result.said
    for what in ("Python", "torch", "triton", "ninja", "nvcc", "GPU", "hardware counters"):
        assert what in result.output


def test_doctor_on_a_compiler_that_does_not_run(invoke, monkeypatch):
    monkeypatch.setattr(doctor, "version_of", raising(BuildError("reinstall it")))
    monkeypatch.setattr(doctor, "find_cxx", lambda: "/bin/[cxx]")
    monkeypatch.setattr(doctor, "find_ninja", lambda: "/bin/ninja")
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "/bin/[cxx] does not run" in result.said and "reinstall it" in result.said


@no_gpu
def test_doctor_on_a_driver_that_torch_cannot_use(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_DRIVER", tmp_path)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.cuda.init", raising(RuntimeError("the NVIDIA driver is too old")))
    (finding,) = doctor._gpus()
    assert (finding.state, finding.finding) == ("missing", "the NVIDIA driver is too old")
    assert "CUDA_VISIBLE_DEVICES" in finding.advice and "update the driver" in finding.advice


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


def test_again_reads_what_cannot_have_changed(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr("gemm_ref.build.CACHE", tmp_path / "cache")
    arguments = ("run", "correctness", "--stage", "s02", "--backend", "cuda", "--size", "8", "--device", "cpu")
    arguments += ("--results", tmp_path / "results")
    assert "correctness: 3 pass rows are in" in invoke(*arguments).said
    files = {path: path.read_bytes() for path in (tmp_path / "results").iterdir() if path.suffix in (".csv", ".json")}
    assert "3 pass (3 read from earlier runs of the same kernels; --fresh measures all)" in invoke(*arguments).said
    assert files == {path: path.read_bytes() for path in files}
    assert "correctness: 3 pass rows are in" in invoke(*arguments, "--fresh").said
