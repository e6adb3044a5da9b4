"""Many contenders on all cores: the same rows in the same order, and an end when somebody asks for one."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice

import pytest

from experiments import processes
from experiments.bench import parallel
from experiments.records.contenders import contenders
from experiments.records.rows import CheckedRow
from gemm_ref import Problem
from tests.experiments.fixtures import NoBars

MANY = [contender for contender in contenders() if contender.kernel][: parallel.MIN_JOBS]
PARTS = [(Problem(1, 1, k), "normal") for k in (1, 2)]
JOBS = [(contender, PARTS) for contender in MANY]


@pytest.fixture(autouse=True)
def _two_at_most(monkeypatch):
    """Each process takes seconds to start."""
    monkeypatch.setattr(processes, "_cores", lambda: 2)


@pytest.fixture
def forked(monkeypatch):
    """Processes are forked, which is quick; one test starts new ones, as a run does."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(processes.multiprocessing, "get_context", lambda method: fork)


def rows_of(contender, parts):
    """Each row says in which process it was made."""
    for problem, kind in parts:
        yield [CheckedRow.about("example", contender, problem, inputs=kind, detail=str(os.getpid()))]


def slow_after_the_first(contender, parts):
    if contender != MANY[0]:
        time.sleep(600)
    return rows_of(contender, parts)


def killed(contender, parts):
    os._exit(1)


def failing(contender, parts):
    raise ValueError(f"no measure of {contender}")


def measure(jobs, work):
    with contextlib.closing(parallel.measure_parts(jobs, work, NoBars(), None)) as found:
        for rows in found:
            yield from rows


def test_rows_are_those_of_one_process_in_its_order():
    few = [row for job in JOBS for row in measure([job], rows_of)]
    many = list(measure(JOBS, rows_of))
    assert [replace(row, detail="") for row in many] == [replace(row, detail="") for row in few]
    assert {row.detail for row in few} == {str(os.getpid())} and str(os.getpid()) not in {row.detail for row in many}
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("forked")
def test_a_command_starts_its_processes_once():
    """Even after work that nobody waited for, there are none left of another pool."""
    with processes.shared():
        first, second = ({row.detail for row in measure(JOBS, rows_of)} for _ in range(2))
        assert len(first | second) <= 2
        next(measure(JOBS, slow_after_the_first))
        assert multiprocessing.active_children() == []
    assert multiprocessing.active_children() == []


def test_what_is_not_of_the_registry_stays_in_this_process():
    jobs = [(replace(contender, kernel=None), parts) for contender, parts in JOBS]
    assert {row.detail for row in measure(jobs, rows_of)} == {str(os.getpid())}


@pytest.mark.usefixtures("forked")
def test_whoever_stops_listening_waits_for_nobody():
    found = measure(JOBS, slow_after_the_first)
    assert len(list(islice(found, len(PARTS)))) == len(PARTS)
    began = time.monotonic()
    found.close()
    assert multiprocessing.active_children() == [] and time.monotonic() - began < 60


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("work", "error", "said"),
    [(failing, ValueError, "no measure of s01_naive cuda"), (killed, BrokenProcessPool, "terminated abruptly")],
)
def test_an_error_comes_through_and_ends_the_others(work, error, said):
    with pytest.raises(error, match=said):
        list(measure(JOBS, work))
    assert multiprocessing.active_children() == []
