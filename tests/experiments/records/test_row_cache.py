"""Rows that need not be measured again: read while nothing that they follow from is changed, and else measured anew."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.bench import parallel
from experiments.records import cache, row_cache
from experiments.records.contenders import contenders
from experiments.records.row_cache import RowCache
from experiments.records.rows import ERROR, FAIL, PASS, SKIPPED, TimedRow
from gemm_ref import Problem, build
from tests.experiments.fixtures import ENVIRONMENT, NoBars

VERSIONS = {"python": "3", "torch": "2", "triton": "3.6", "numpy": "2", "nvcc": "13.0"}
FIRST = ENVIRONMENT | VERSIONS | {"date": "2020-01-01T00:00:00Z"}
SECOND = FIRST | {"date": "2020-02-02T00:00:00Z"}
PARTS = [(Problem(1, 2, 3), "normal"), (Problem(4, 5, 6), "integers")]

HOUSE = {
    "own": "cuda_kernels/s04_shared_tile.cu",
    "header": "cuda_kernels/include/tile.cuh",
    "launcher": "cuda_kernels/source.py",
    "simulator": "gemm_ref/ptx/core/machine.py",
    "registry": "gemm_ref/registry.py",
    "check": "experiments/bench/verify.py",
    "question": "experiments/studies/example/study.py",
    "sizes": "experiments/records/workloads.toml",
    "other rung": "cuda_kernels/s05_bank_conflict.cu",
    "other backend": "triton_kernels/launcher.py",
    "picture": "experiments/studies/ladder/picture.py",
    "captions": "experiments/studies/ladder/about.toml",
    "result": "gemm_ref/notes.txt",
}
DOES_NOT_MATTER = ("other rung", "other backend", "picture", "captions", "result")


@pytest.fixture(autouse=True)
def house(tmp_path, monkeypatch, example_study):
    """A tree of a few source files, and a cache of its own."""
    for path in HOUSE.values():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("before", encoding="utf-8")
    monkeypatch.setattr(cache, "_ROOT", tmp_path)
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    return tmp_path


def named(name):
    return next(contender for contender in contenders() if str(contender) == name)


S04 = named("s04_shared_tile cuda")


class Work:
    """A measurement that says how often it was asked, and gives what it is told."""

    def __init__(self, status=PASS):
        self.asked, self.status = [], status

    def __call__(self, contender, parts):
        for problem, kind in parts:
            self.asked.append((problem, kind))
            values = {"inputs": kind, "status": self.status, "rel_error": 0.1 + 0.2}
            yield [TimedRow.about("example", contender, problem, **values)]


def measure(environment=FIRST, work=None, contender=S04, parts=PARTS, fresh=False):
    """(the work that was done, the rows, the environments of those that were read)."""
    work = work or Work()
    store = RowCache("example", environment, fresh=fresh)
    rows = [row for rows in parallel.measure_parts([(contender, parts)], work, NoBars(), store) for row in rows]
    return work.asked, rows, store.environments


def test_what_has_not_changed_is_read_with_the_run_that_measured_it():
    asked, measured, _ = measure()
    assert asked == PARTS
    asked, read, environments = measure(SECOND)
    assert asked == []
    assert read == [replace(row, run=FIRST["date"]) for row in measured]
    assert environments == {FIRST["date"]: FIRST}


def test_only_what_is_lacking_is_measured_and_the_order_stays():
    measure(parts=PARTS[1:])
    asked, rows, _ = measure(SECOND)
    assert asked == PARTS[:1]
    assert [(row.m, row.run) for row in rows] == [(1, ""), (4, FIRST["date"])]
    asked, rows, environments = measure(SECOND)
    assert asked == [] and environments == {run["date"]: run for run in (FIRST, SECOND)}


@pytest.mark.parametrize("file", HOUSE)
def test_a_changed_source(house, file):
    measure()
    (house / HOUSE[file]).write_text("after", encoding="utf-8")
    assert measure()[0] == ([] if file in DOES_NOT_MATTER else PARTS)


def test_a_source_that_is_new_or_gone(house):
    measure()
    new = house / "gemm_ref/ptx/core/events.py"
    for change in (new.touch, new.unlink):
        change()
        assert measure()[0] == PARTS


@pytest.mark.parametrize("name", VERSIONS)
def test_another_version(name):
    measure()
    assert measure(FIRST | {name: "another"})[0] == PARTS


@pytest.mark.parametrize(
    ("name", "matters"), [("NVCC_APPEND_FLAGS", True), ("TRITON_CACHE_DIR", False), ("HOME", False)]
)
def test_a_variable_of_the_environment(monkeypatch, name, matters):
    measure()
    monkeypatch.setenv(name, "another")
    assert measure()[0] == (PARTS if matters else [])


def test_fresh_measures_all_and_keeps_it():
    measure()
    asked, rows, environments = measure(SECOND, fresh=True)
    assert asked == PARTS and environments == {} and not any(row.run for row in rows)
    assert {row.run for row in measure()[1]} == {SECOND["date"]}


@pytest.mark.parametrize("status", [FAIL, ERROR, SKIPPED])
def test_what_did_not_pass_is_measured_again(status):
    """Also where it passed before."""
    measure(work=Work(status))
    assert measure()[0] == PARTS
    measure(work=Work(status), fresh=True)
    assert measure()[0] == PARTS


@settings(max_examples=10, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1), bits=st.integers(0, 255))
def test_a_damaged_file_is_measured_again_and_mended(place, bits):
    """Cut off somewhere, or with another byte there."""
    measure()
    (path,) = (build.CACHE / "cached").iterdir()
    whole = path.read_bytes()
    at = round(place * (len(whole) - 1))
    path.write_bytes(whole[:at] + (bytes([whole[at] ^ bits]) + whole[at + 1 :] if bits else b""))
    assert measure()[0] == PARTS
    assert measure()[0] == []


def test_a_source_that_changes_while_it_is_measured_keeps_nothing(house):
    class Edited(Work):
        def __call__(self, contender, parts):
            (house / HOUSE["own"]).write_text("after", encoding="utf-8")
            return super().__call__(contender, parts)

    for fresh in (False, True):
        measure(work=Edited(), fresh=fresh)
        (house / HOUSE["own"]).write_text("before", encoding="utf-8")
        assert measure(work=Work(FAIL))[0] == PARTS


def test_what_is_not_of_the_registry_is_never_kept():
    brought = replace(S04, kernel=None)
    measure(contender=brought)
    assert measure(contender=brought)[0] == PARTS and measure()[0] == PARTS


def test_contenders_do_not_read_each_others_rows():
    measure()
    for name in ("s04_shared_tile triton", "s05_bank_conflict:padded cuda", "s15_wmma cuda tf32", "s15_wmma cuda bf16"):
        assert measure(contender=named(name))[0] == PARTS, name


def test_every_contender_has_a_file_of_its_own():
    store = RowCache("example", FIRST)
    kernels = [contender for contender in contenders() if contender.kernel]
    assert len({store._name(contender) for contender in kernels}) == len(kernels)


def test_the_newest_are_kept():
    many = [(Problem(1, 1, k), "normal") for k in range(row_cache._MAX_PARTS + 3)]
    measure(parts=many)
    assert measure(parts=many)[0] == many[:3]


MANY = 6


def _write(folder, root, parts):
    cache._ROOT, build.CACHE = root, folder
    for part in parts:
        measure(parts=[part])


def test_two_processes_at_a_time(house):
    """Each replaces the file whole: one may lose what the other wrote, and none reads a part of it."""
    parts = [[(Problem(process, 1, k), "normal") for k in range(MANY)] for process in range(2)]
    context = multiprocessing.get_context("fork")  # new ones would import for seconds
    processes = [context.Process(target=_write, args=(build.CACHE, house, mine)) for mine in parts]
    for process in processes:
        process.start()
    (path,) = [build.CACHE / "cached" / "example-s04-shared-tile-cuda"]
    while any(process.is_alive() for process in processes):
        if path.exists():
            json.loads(path.read_bytes().partition(b"\n")[2])
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(measure(parts=[*parts[0], *parts[1]])[0]) <= MANY  # what was written last has at least all of its own


def test_a_cache_that_cannot_be_written_loses_no_row(monkeypatch):
    monkeypatch.setattr(build, "CACHE", Path("/dev/null/cache"))  # no folder can be made there
    with pytest.warns(
        UserWarning, match="the next run does everything again: nothing can be cached in /dev/null/cache/cached"
    ):
        asked, rows, _ = measure()
    assert asked == PARTS and len(rows) == len(PARTS)
