"""What the commands say of a full disk, of folders that cannot be written, of Ctrl-C, and how soon they answer."""

from __future__ import annotations

import errno
import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import cli, doctor
from experiments.explore.traces import TraceSet
from experiments.records import store
from experiments.records.contenders import Contender
from gemm_ref.build import BuildError
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows, raising, renamed, right
from tests.imports import ROOT

NOWHERE = Path("/proc/nowhere")  # not even root makes a folder there
needs_proc = pytest.mark.skipif(not NOWHERE.parent.is_dir(), reason="there is no /proc, where nobody can write")


@pytest.fixture
def run(invoke, monkeypatch, example_study):
    """`run("report")`: the command's exit code, and what it says."""
    contender = Contender("s01_naive", "default", "cuda", "cuda", "fp32", ("cpu",), lambda: right)
    monkeypatch.setattr("experiments.explore.traces.gather_traces", lambda bars: TraceSet((), {}))
    monkeypatch.setattr("experiments.explore.times.gather_times", lambda items, bars: {})

    def run(*arguments):
        result = invoke(*arguments, pool=[contender])
        return result.exit_code, result.said

    return run


@pytest.mark.usefixtures("svg_alone")
def test_a_full_disk_is_told_and_the_old_files_stay(run, monkeypatch, tmp_path):
    store.save(tmp_path, "example", renamed("example", ladder_rows((64,))), ENVIRONMENT)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    full = raising(OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("gemm_ref.build.os.fdopen", full)
    code, said = run("run", "example", "--device", "cpu", "--results", tmp_path)
    assert code == 2 and "No space left on device: 2 rows of example are lost; make room" in said
    for arguments in (("report",), ("plot", "example")):
        code, said = run(*arguments, "--results", tmp_path)
        assert code == 2 and "cannot be written: No space left on device" in said
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@needs_proc
def test_a_folder_that_cannot_be_written_is_told(run, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    for folder, why in (
        (NOWHERE, f"{NOWHERE} cannot be written"),
        (tmp_path / "file", f"{tmp_path / 'file'} is a file, not a folder; pass another --results"),
        (tmp_path / "file" / "in" / "it", f"{tmp_path / 'file'} is a file, not a folder; pass another --results"),
    ):
        code, said = run("run", "example", "--device", "cpu", "--results", folder)
        assert code == 2 and f"error: {why}" in said
    store.save(tmp_path, "example", renamed("example", ladder_rows((64,))), ENVIRONMENT)
    code, said = run("report", "--results", tmp_path, "--output", NOWHERE / "report.html")
    assert code == 2 and f"{NOWHERE} cannot be written" in said


@needs_proc
def test_doctor_says_where_built_files_go(monkeypatch, tmp_path):
    monkeypatch.setattr("gemm_ref.build.CACHE", tmp_path / "cache")
    assert (doctor._cache().state, doctor._cache().finding) == ("ok", str(tmp_path / "cache"))
    monkeypatch.setattr("gemm_ref.build.CACHE", NOWHERE)
    assert doctor._cache().state == "missing" and "GEMM_LADDER_BUILD" in doctor._cache().advice


def test_a_missing_compiler_is_told_and_other_errors_are_not_hidden(monkeypatch, tmp_path):
    arguments = ["check", str(tmp_path / "kernel.cu"), "--device", "cpu"]
    monkeypatch.setattr("experiments.check.command.check", raising(BuildError("install g++")))
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 2 and "error: install g++" in result.output
    missing = FileNotFoundError(errno.ENOENT, "No such file", "a file of ours")
    monkeypatch.setattr("experiments.check.command.check", raising(missing))
    assert CliRunner().invoke(cli.app, arguments).exception is missing


# Each command ends with its code, and has imported none of the libraries that it can do without.
WITHOUT_IMPORTS = """
import sys
from experiments.cli import main

libraries = {"torch", "numpy", "pandas", "seaborn", "matplotlib", "triton", "hypothesis", "jinja2"}
for code, needed, *arguments in (
    (0, set(), "list"),
    (0, set(), "--version"),
    (2, set(), "run", "--stage", "s04_shard"),
    (2, set(), "run", "corectness"),
    (2, set(), "which", "12x"),
    (2, {"torch", "numpy", "triton"}, "check", sys.argv[1]),
):
    sys.argv[1:] = arguments
    try:
        main("gemm")
    except SystemExit as end:
        found = libraries & sys.modules.keys() - needed
        if end.code != code or found:
            print(arguments, "ended with", end.code, "and imported", found)
            sys.exit(1)
"""


def test_no_command_waits_for_a_library_that_it_does_not_use(tmp_path):
    (tmp_path / "kernel.py").write_text("x = 1", encoding="utf-8")
    command = [sys.executable, "-c", WITHOUT_IMPORTS, str(tmp_path / "kernel.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


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


def test_an_installed_package_keeps_results_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("gemm_ref.build.CHECKOUT", None)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("store_of_a_wheel", store.__file__)
    installed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(installed)
    assert installed.RESULTS == tmp_path / "results"
    assert installed.PUBLISHED == store.PUBLISHED and installed.PUBLISHED in installed.holding("ladder")
