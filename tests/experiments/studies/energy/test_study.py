"""Bursts and seconds, without a GPU: who takes part, in what order, and what the rows say."""

from __future__ import annotations

import contextlib
import itertools

import pytest

import gemm_ref
from experiments.bench import measure, rounds, timers
from experiments.bench.telemetry import Sample
from experiments.records.contenders import Contender, contenders
from experiments.records.controls import CONTROL
from experiments.records.frames import TENSOR_CORE_MATHS
from experiments.records.request import FULL, Request
from experiments.records.rows import BURST, FAIL, SUSTAINED
from experiments.studies.energy import study as energy
from gemm_ref import Problem
from tests.experiments.fixtures import Entered, NoBars, right, select_contenders

POOL = contenders()
CUBLAS = next(each for each in POOL if each.stage == "cublas" and each.math == "fp32")
S01, S09, S14 = (
    next(each for each in POOL if each.stage[:3] == rung and each.dialect == "cuda" and each.is_default)
    for rung in ("s01", "s09", "s14")
)
SPEED = {CUBLAS: 1.0, S14: 1.25, S09: 0.5, S01: 9.0}


def test_the_last_rung_of_each_mode_is_held_and_in_the_full_preset_every_rung():
    by_default, full = (
        [each for each in select_contenders(energy, preset=name) if each.dialect] for name in ("default", FULL)
    )
    assert {each.dialect for each in by_default if each.math == "fp32"} == set(gemm_ref.DIALECTS)
    on_tensor_cores = {(each.math, each.dialect) for each in by_default if each.math != "fp32"}
    assert on_tensor_cores == {(mode, "cuda") for mode in TENSOR_CORE_MATHS}
    assert set(full) == {each for each in POOL if each.dialect and each.is_default} > set(by_default)
    assert "full preset" in energy.unsuited(S09, Request("cuda"))


@pytest.fixture
def rows(monkeypatch, fake_gpu):
    """The rows of kernels of known speeds, of which s01 hands out what it computed before."""
    running: list[Contender] = []
    inputs, clock = gemm_ref.make_inputs, itertools.count(step=0.1)

    class FakeTelemetry(Entered):
        @contextlib.contextmanager
        def window(self):
            samples = []
            yield samples
            samples += [Sample(1700.0, 600.0, 60.0, 4), Sample(1500.0, 700.0, 61.0, 4)]

    def elapsed_us(work, calls=1):
        work()
        return 100.0 * calls / SPEED[running[-1]]

    def load(contender):
        results = {}

        def call(a, b, out):
            running.append(CUBLAS if contender.stage == CONTROL else contender)
            if contender == S01:
                return out.copy_(results.setdefault(a.data_ptr(), a @ b))
            return right(a, b, out)

        return call, None

    monkeypatch.setattr(gemm_ref, "make_inputs", lambda problem, kind, device, b: inputs(problem, kind, b=b))
    monkeypatch.setattr(measure, "load", load)
    monkeypatch.setattr(timers, "elapsed_us", elapsed_us)
    monkeypatch.setattr(energy, "Telemetry", FakeTelemetry)
    monkeypatch.setattr(timers.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: next(clock))
    request = Request("cuda", problems=(Problem(16, 16, 16),))
    return list(energy.measure(request, [CUBLAS, S14, S09, S01], NoBars()))


def test_a_burst_has_a_share_of_cublas_and_what_is_held_has_power(rows):
    burst, held = (
        {row.stage[:3]: row for row in rows if row.mode == mode and row.inputs == "normal" and row.stage != CONTROL}
        for mode in (BURST, SUSTAINED)
    )
    assert burst["s14"].vs_cublas == pytest.approx(1.25) and burst["s14"].verdict == "FASTER"
    assert burst["s09"].vs_cublas == pytest.approx(0.5) and all(row.power_w is None for row in burst.values())
    assert burst["cub"].median_us == pytest.approx(100.0) and burst["cub"].repeats == energy.BURSTS
    assert burst["s01"].status == FAIL and "-A in the place of A" in burst["s01"].detail
    assert [(row.inputs, row.mode, row.verdict) for row in rows if row.stage == CONTROL] == [("normal", BURST, "SAME")]
    assert held.keys() == {"cub", "s14", "s09"}
    for row in held.values():
        assert (row.power_w, row.sm_mhz, row.throttle) == (650.0, 1600.0, "power cap")
        assert row.vs_cublas is None and not row.verdict
    kinds = {name: {row.inputs for row in rows if row.stage.startswith(name)} for name in ("cublas", "s14", "s09")}
    assert kinds == {"cublas": set(energy.KINDS), "s14": set(energy.KINDS), "s09": {"normal"}}  # the foremost alone


def test_the_seconds_that_settle_do_not_count(monkeypatch):
    now, loop = itertools.count(), energy.hold_protocol(10.0)
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: next(now))
    calls = itertools.count()
    loop.warm_up(["held"], lambda entry: next(calls), None)
    times, _ = rounds.interleave(["held"], lambda entry: float(next(calls)), loop.plan)
    assert list(times["held"]) == [5, 6, 7, 8]  # of batches that end with the seconds 1 to 9
