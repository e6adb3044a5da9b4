"""What the commands say of a full disk, of folders that cannot be written, of Ctrl-C, and how soon they answer."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cuda_kernels.__main__ import app as cuda_kernels_app
from experiments import cli, doctor, selection
from experiments.explore.traces import TraceSet
from experiments.records import store
from experiments.records.contenders import Contender, contenders
from experiments.records.request import Request
from gemm_ref import STAGES
from gemm_ref.build import BuildError
from gemm_ref.version import version
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows, raising, right
from tests.imports import ROOT

NOWHERE = Path("/proc/nowhere")  # not even root makes a folder there
needs_proc = pytest.mark.skipif(not NOWHERE.parent.is_dir(), reason="there is no /proc, where nobody can write")


@pytest.fixture
def run(invoke, monkeypatch):
    """`run("report")`: the command's exit code, and what it says."""
    contender = Contender("s01_naive", "default", "cuda", "cuda", "fp32", ("cpu",), lambda: right)
    monkeypatch.setattr("experiments.explore.traces.gather_traces", lambda bars: TraceSet((), {}))

    def run(*arguments):
        result = invoke(*arguments, pool=[contender])
        return result.exit_code, result.said

    return run


@pytest.fixture
def full_disk(monkeypatch):
    """From when it is called on, nothing more can be written."""
    full = raising(OSError(errno.ENOSPC, "No space left on device"))
    return lambda: monkeypatch.setattr("gemm_ref.build.os.fdopen", full)


def run_correctness(run, folder):
    return run("run", "correctness", "--size", "8", "--device", "cpu", "--results", folder)


@pytest.mark.usefixtures("svg_alone")
def test_a_full_disk_is_told_and_the_old_files_stay(run, full_disk, tmp_path):
    store.save(tmp_path, "ladder", ladder_rows((64,)), ENVIRONMENT)
    assert run_correctness(run, tmp_path)[0] == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    full_disk()
    code, said = run_correctness(run, tmp_path)
    assert code == 2 and "No space left on device: 3 rows of correctness are lost; make room" in said
    for arguments in (("report",), ("plot", "ladder")):
        code, said = run(*arguments, "--results", tmp_path)
        assert code == 2 and "cannot be written: No space left on device" in said
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@needs_proc
@pytest.mark.parametrize("command", ["run", "report"])
def test_a_folder_that_cannot_be_written_is_told(run, command):
    if command == "run":
        code, said = run_correctness(run, NOWHERE)
    else:
        code, said = run("report", "--results", store.PUBLISHED, "--output", NOWHERE / "report.html")
    assert code == 2 and "/proc/nowhere cannot be written" in said


@needs_proc
def test_doctor_says_where_built_files_go(monkeypatch, tmp_path):
    monkeypatch.setattr("gemm_ref.build.CACHE", tmp_path / "cache")
    assert (doctor._cache().state, doctor._cache().finding) == ("ok", str(tmp_path / "cache"))
    monkeypatch.setattr("gemm_ref.build.CACHE", NOWHERE)
    assert doctor._cache().state == "missing" and "GEMM_LADDER_BUILD" in doctor._cache().advice


def test_a_compiler_that_is_missing_is_told(run, monkeypatch, tmp_path):
    monkeypatch.setattr("experiments.check.command.check", raising(BuildError("install g++")))
    code, said = run("check", tmp_path / "kernel.cu", "--device", "cpu")
    assert code == 2 and "error: install g++" in said


def test_other_errors_are_not_hidden(monkeypatch, tmp_path):
    missing = FileNotFoundError(errno.ENOENT, "No such file", "a file of ours")
    monkeypatch.setattr("experiments.check.command.check", raising(missing))
    result = CliRunner().invoke(cli.app, ["check", str(tmp_path / "kernel.cu"), "--device", "cpu"])
    assert isinstance(result.exception, FileNotFoundError)


@pytest.mark.usefixtures("svg_alone")
def test_a_run_in_which_all_was_skipped_says_so(run, tmp_path):
    code, said = run("run", "correctness", "--size", "4096", "--device", "cpu", "--results", tmp_path)
    assert code == 1 and "about 11 minutes" in said and "nothing was measured: all of it was skipped" in said
    code, said = run("run", "correctness", "--size", "4096", "--size", "8", "--device", "cpu", "--results", tmp_path)
    assert code == 0 and "nothing was measured" not in said


def test_filters_that_leave_nothing_are_explained():
    pool = contenders()
    for stage in STAGES.values():
        for math in {"fp32", "bf16"} - set(stage.maths):
            said = selection.why_none(Request("cpu", stages=(stage.id,), math=math), pool)
            assert said == f"{stage.id} has no kernel in {math}: it has {', '.join(stage.maths)}"
    said = selection.why_none(Request("cpu", stages=("s13_split_k",), backends=("gluon",)), pool)
    assert said == "s13_split_k has no kernel in gluon: it has cuda, triton"


def test_a_backend_is_listed_once():
    assert len(set(selection.known_backends())) == len(selection.known_backends())


def test_version(run):
    assert run("--version") == (0, f"gemm-ladder {version()}")
    assert CliRunner().invoke(cuda_kernels_app, ["--version"]).output == f"gemm-ladder {version()}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", version())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("list", 0), ("--version", 0), ("run --stage s04_shard", 2), ("run --backend tritn", 2), ("run corectness", 2)],
)
def test_what_computes_nothing_does_not_wait_for_torch(arguments, code):
    program = (
        "import sys\n"
        "from experiments.cli import app\n"
        "try:\n"
        "    app()\n"
        "except SystemExit as end:\n"
        "    found = {'torch', 'numpy', 'pandas', 'matplotlib', 'triton'} & sys.modules.keys()\n"
        "    sys.exit(f'imported {found}' if found else end.code)"
    )
    command = [sys.executable, "-c", program, *arguments.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code, done.stderr


# Nearly all of its time is in callbacks of weak references, out of which nothing can be raised.
BUSY = """
import signal, sys, time, weakref
from experiments import interrupt

signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background, it is ignored

class Thing: pass

def callback(_):
    until = time.perf_counter() + 0.005
    while time.perf_counter() < until: pass

with interrupt.always_raised():
    try:
        print("ready", flush=True)
        end = time.perf_counter() + 60
        while time.perf_counter() < end:
            thing = Thing()
            reference = weakref.ref(thing, callback)
            del thing
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
@pytest.mark.parametrize("delay_s", [0.05, 0.11, 0.17])
def test_ctrl_c_in_a_callback_is_raised(delay_s):
    process = subprocess.Popen([sys.executable, "-c", BUSY], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130


def test_documents_are_written_in_a_checkout_alone(run, monkeypatch):
    monkeypatch.setattr("experiments.publish.blocks.CHECKOUT", None)
    code, said = run("readme")
    assert code == 2 and "run this in a checkout of the repo" in said


def test_an_installed_package_keeps_results_in_the_working_folder(tmp_path):
    program = (
        "from pathlib import Path\n"
        "from gemm_ref import build\n"
        "build.CHECKOUT = None\n"
        "from experiments.records import store\n"
        "assert store.RESULTS == Path.cwd() / 'results', store.RESULTS\n"
        "assert store.PUBLISHED in store.holding('ladder')"
    )
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
