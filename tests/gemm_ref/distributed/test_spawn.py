"""One rank's fault ends all, with its message, and no process is left over."""

from __future__ import annotations

import os
import signal
import time

import pytest

from gemm_ref.distributed import spawn

HERE = "tests.gemm_ref.distributed.in_ranks"


@pytest.fixture
def forked(monkeypatch):
    """Ranks are forked from the test's process, because torch takes seconds to import.

    A forked rank has the starter's pipes to the ranks before it, so these are killed.
    """
    monkeypatch.setattr(spawn, "START_METHOD", "fork")
    monkeypatch.setattr(spawn, "_EXIT_S", 0.5)
    monkeypatch.setattr(spawn, "_FAILURES_S", 0.5)


def gone(pid: int) -> bool:
    """Whether a process has ended; what waits to be asked for its status has."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def ends(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(pid)


def test_an_error_of_one_rank_ends_all():
    with pytest.raises(spawn.RanksFailed, match=r"rank 1 of 2: ValueError: planted \(in_ranks.py, line \d+\)"):
        list(spawn.run_on_ranks(f"{HERE}:fail", 1, 2, "cpu", 300.0, 250.0))


def test_a_rank_that_never_comes_is_an_error_in_time(forked):
    said = spawn.run_on_ranks(f"{HERE}:be_silent", 1, 2, "cpu", collective_timeout_s=1.0)
    pid, begun = next(said), time.monotonic()
    with pytest.raises(spawn.RanksFailed, match="rank 0 of 2: .*[Tt]im.*rank 1 last sent a message"):
        next(said)
    assert ends(pid) and time.monotonic() - begun < 30


def test_ranks_that_say_nothing_are_not_waited_for(forked):
    said = spawn.run_on_ranks(f"{HERE}:all_silent", None, 2, "cpu", silence_timeout_s=1.0)
    pid = next(said)
    with pytest.raises(
        spawn.RanksFailed, match="rank 0 last sent a message .* rank 1 .*; no rank has sent a message for 1 s"
    ):
        next(said)
    assert ends(pid)


def test_ranks_end_with_who_started_them(forked):
    said = spawn.run_on_ranks(f"{HERE}:all_silent", None, 2, "cpu")
    pid = next(said)
    said.close()  # as Ctrl-C does
    assert ends(pid)


def test_a_rank_that_does_not_begin_is_reported_with_what_it_wrote(forked, monkeypatch):
    monkeypatch.setattr(spawn, "_join_group", lambda *_: (os.write(2, b"no GPU"), os._exit(3)))
    with pytest.raises(spawn.RanksFailed, match=r"ended without a message \(exit code 3\).*the ranks wrote: .*no GPU"):
        list(spawn.run_on_ranks(f"{HERE}:fail", 1, 2, "cpu"))


def test_stopped_ranks_are_killed(forked):
    """A process that a driver holds does not react to the end of its pipe; a stopped one stands for it."""
    said = spawn.run_on_ranks(f"{HERE}:all_silent", None, 2, "cpu")
    pid = next(said)
    os.kill(pid, signal.SIGSTOP)
    said.close()
    assert ends(pid)
