"""Bursts and seconds, without a GPU: who takes part, in what order, and what the rows say."""

from __future__ import annotations

import contextlib
import itertools

import pytest

import gemm_ref
from experiments.bench.telemetry import Sample
from experiments.records.contenders import Contender, contenders
from experiments.records.request import FULL, Request
from experiments.records.rows import BURST, SUSTAINED
from experiments.studies.energy import study as energy
from gemm_ref import Problem
from tests.experiments.fixtures import Entered, NoBars, right

POOL = contenders()
CUBLAS = next(each for each in POOL if each.stage == "cublas" and each.math == "fp32")
S09, S14 = (
    next(each for each in POOL if each.stage[:3] == rung and each.dialect == "cuda" and each.is_default)
    for rung in ("s09", "s14")
)
SPEED = {CUBLAS: 1.0, S14: 1.25, S09: 0.5}


def test_the_full_preset_has_every_rung():
    by_default, full = (
        [each for each in POOL if not energy.unsuited(each, Request("cuda", preset=preset))]
        for preset in ("default", FULL)
    )
    assert set(by_default) < set(full) and S09 in full and S09 not in by_default
    able = [each for each in POOL if each.dialect and each.is_default]
    rungs = {(each.stage, each.dialect, each.math) for each in able}
    assert {(each.stage, each.dialect, each.math) for each in full if each.dialect} == rungs
    assert "full preset" in energy.unsuited(S09, Request("cuda"))


@pytest.fixture
def rows(monkeypatch):
    """The rows of three kernels of known speeds."""
    running: list[Contender] = []
    inputs = gemm_ref.make_inputs
    clock = itertools.count(step=0.25)

    class Telemetry(Entered):
        @contextlib.contextmanager
        def window(self):
            taken = []
            yield taken
            taken += [Sample(1700.0, 600.0, 60.0, 4), Sample(1500.0, 700.0, 61.0, 4)]

    def elapsed(work, calls=1):
        work()
        return 100.0 * calls / SPEED[running[-1]]

    def fn(contender):
        def call(a, b, out):
            running.append(contender)
            return right(a, b, out)

        return call

    monkeypatch.setattr(gemm_ref, "make_inputs", lambda problem, kind, device: inputs(problem, kind))
    monkeypatch.setattr(energy, "elapsed_us", elapsed)
    monkeypatch.setattr(energy, "Telemetry", Telemetry)
    monkeypatch.setattr(energy.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(energy.time, "perf_counter", lambda: next(clock))
    able = {each: (fn(each), gemm_ref.Accuracy(1e-7, 0.1)) for each in (CUBLAS, S14, S09)}
    return list(energy._take_turns(Problem(16, 16, 16), able, 1.0, NoBars()))


def test_a_burst_has_a_share_of_cublas_and_no_power(rows):
    burst = {row.stage: row for row in rows if row.mode == BURST and row.inputs == "normal"}
    assert (
        burst["s14_register_banks"].vs_cublas == pytest.approx(1.25) and burst["s14_register_banks"].verdict == "FASTER"
    )
    assert burst["s09_conflict_free"].vs_cublas == pytest.approx(0.5)
    assert burst["cublas"].median_us == pytest.approx(100.0) and burst["cublas"].repeats == energy.BURSTS
    assert all(row.power_w is None for row in burst.values())


def test_what_is_held_has_power_and_no_verdict(rows):
    held = {row.stage: row for row in rows if row.mode == SUSTAINED and row.inputs == "normal"}
    assert held.keys() == {"cublas", "s14_register_banks", "s09_conflict_free"}
    for row in held.values():
        assert (row.power_w, row.sm_mhz, row.throttle) == (650.0, 1600.0, "power cap")
        assert row.vs_cublas is None and not row.verdict


def test_every_kind_of_inputs_is_for_the_foremost(rows):
    kinds = {name: {row.inputs for row in rows if row.stage.startswith(name)} for name in ("cublas", "s14", "s09")}
    assert kinds == {"cublas": set(energy.KINDS), "s14": set(energy.KINDS), "s09": {"normal"}}


def test_the_seconds_that_settle_do_not_count(monkeypatch):
    now = itertools.count()
    monkeypatch.setattr(energy.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(energy, "_batch", lambda work, seconds: work())
    calls = itertools.count()
    turn = energy.Turn(S14, "normal", lambda: next(calls))
    energy._hold(turn, 10.0, energy.Telemetry())
    assert turn.held_us == [5, 6, 7]  # of batches that end with the seconds 1 to 9
