"""Rows that need not be measured again: read while nothing that they follow from is changed, and else measured anew."""

from __future__ import annotations

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
OWN = "cuda_kernels/s04_shared_tile.cu"
SOURCES = (  # from which the rows follow
    OWN,
    "cuda_kernels/include/tile.cuh",
    "cuda_kernels/source.py",
    "gemm_ref/ptx/core/machine.py",
    "gemm_ref/registry.py",
    "experiments/bench/verify.py",
    "experiments/studies/example/study.py",
    "experiments/records/workloads.toml",
)
OTHERS = (
    "cuda_kernels/s05_bank_conflict.cu",
    "triton_kernels/launcher.py",
    "experiments/studies/ladder/picture.py",
    "experiments/studies/ladder/about.toml",
    "gemm_ref/notes.txt",
)


@pytest.fixture(autouse=True)
def house(tmp_path, monkeypatch, example_study):
    """A tree of a few source files, and a cache of its own."""
    for path in (*SOURCES, *OTHERS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("before", encoding="utf-8")
    monkeypatch.setattr(cache, "_ROOT", tmp_path)
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    return tmp_path


def named(name):
    return next(contender for contender in contenders() if str(contender) == name)


S04 = named("s04_shared_tile cuda")


class Work:
    """A measurement that records what it is asked for, and whose rows all have one status."""

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


def test_only_what_is_missing_is_measured_and_the_rest_is_read_with_the_run_that_measured_it():
    _, measured, _ = measure(parts=PARTS[1:])
    asked, rows, environments = measure(SECOND)
    assert asked == PARTS[:1] and environments == {FIRST["date"]: FIRST}
    assert rows[1:] == [replace(row, run=FIRST["date"]) for row in measured]
    assert [(row.m, row.run) for row in rows] == [(1, ""), (4, FIRST["date"])]
    asked, rows, environments = measure(SECOND)
    assert asked == [] and environments == {run["date"]: run for run in (FIRST, SECOND)}
    asked, rows, environments = measure(SECOND, fresh=True)
    assert asked == PARTS and environments == {} and not any(row.run for row in rows)
    assert {row.run for row in measure()[1]} == {SECOND["date"]}


def test_rows_follow_from_some_sources_versions_and_variables(house, monkeypatch):
    measure()

    def is_measured_again(environment=FIRST):
        return {0: False, len(PARTS): True}[len(measure(environment)[0])]

    for path in OTHERS:
        (house / path).write_text("after", encoding="utf-8")
        assert not is_measured_again(), path
    for path in SOURCES:
        (house / path).write_text("after", encoding="utf-8")
        assert is_measured_again(), path
    new = house / "gemm_ref/ptx/core/events.py"
    for change in (new.touch, new.unlink):
        change()
        assert is_measured_again()
    for name in VERSIONS:
        assert is_measured_again(FIRST | {name: "another"}), name
    measure()
    for name, matters in (("HOME", False), ("TRITON_CACHE_DIR", False), ("NVCC_APPEND_FLAGS", True)):
        monkeypatch.setenv(name, "another")
        assert is_measured_again() == matters, name


@pytest.mark.parametrize("status", [FAIL, ERROR, SKIPPED])
def test_what_did_not_pass_is_measured_again(status):
    """It is also measured again where it passed before."""
    measure(work=Work(status))
    assert measure()[0] == PARTS
    measure(work=Work(status), fresh=True)
    assert measure()[0] == PARTS


@settings(max_examples=10, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1), bits=st.integers(0, 255))
def test_a_damaged_file_is_measured_again_and_mended(place, bits):
    """It is cut off somewhere, or has another byte there."""
    measure()
    (path,) = (build.CACHE / "cached").iterdir()
    whole = path.read_bytes()
    at = round(place * (len(whole) - 1))
    path.write_bytes(whole[:at] + (bytes([whole[at] ^ bits]) + whole[at + 1 :] if bits else b""))
    assert measure()[0] == PARTS
    assert measure()[0] == []


def test_a_source_that_changes_while_it_is_measured_caches_nothing(house):
    class Edited(Work):
        def __call__(self, contender, parts):
            (house / OWN).write_text("after", encoding="utf-8")
            return super().__call__(contender, parts)

    for fresh in (False, True):
        measure(work=Edited(), fresh=fresh)
        (house / OWN).write_text("before", encoding="utf-8")
        assert measure(work=Work(FAIL))[0] == PARTS


def test_every_contender_of_the_registry_has_a_file_of_its_own_and_no_other():
    brought = replace(S04, kernel=None)
    measure(contender=brought)
    assert measure(contender=brought)[0] == PARTS and measure()[0] == PARTS
    assert measure(contender=named("s04_shared_tile triton"))[0] == PARTS
    store, kernels = RowCache("example", FIRST), [contender for contender in contenders() if contender.kernel]
    assert len({store._name(contender) for contender in kernels}) == len(kernels)


def test_the_newest_are_kept(monkeypatch):
    monkeypatch.setattr(row_cache, "_MAX_PARTS", 5)
    many = [(Problem(1, 1, k), "normal") for k in range(8)]
    measure(parts=many)
    assert measure(parts=many)[0] == many[:3]


def test_a_cache_that_cannot_be_written_loses_no_row(monkeypatch):
    monkeypatch.setattr(build, "CACHE", Path("/dev/null/cache"))  # no folder can be made there
    with pytest.warns(UserWarning, match="nothing can be cached in /dev/null/cache/cached"):
        asked, rows, _ = measure()
    assert asked == PARTS and len(rows) == len(PARTS)
