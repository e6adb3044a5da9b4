"""What looks faster than it is: it is never timed, or its row is a failure without a time."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from experiments.bench import floor, measure
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.records.contenders import Contender
from experiments.records.rows import COLD, ERROR, FAIL, GRAPH, PASS, TimedRow
from gemm_ref import Problem
from tests.experiments.fixtures import ENVIRONMENT, H200, NoBars

ON_H200 = ENVIRONMENT | {"device": "NVIDIA H200", "gpu": H200}
PROBLEM = Problem(24, 40, 32)


def honest(a, b, out):
    return torch.mm(a, b, out=out)


def by_address():
    """Hands out what it has computed from matrices at the same places."""
    kept = {}

    def fn(a, b, out):
        places = a.data_ptr(), b.data_ptr()
        if places not in kept:
            kept[places] = a @ b
        return out.copy_(kept[places])

    return fn


def in_place():
    """Leaves alone a C that it has filled before."""
    filled = set()

    def fn(a, b, out):
        if out.data_ptr() not in filled:
            filled.add(out.data_ptr())
            torch.mm(a, b, out=out)
        return out

    return fn


def early_from(call):
    """Does nothing from some call on."""
    calls = []

    def fn(a, b, out):
        calls.append(out)
        return out if len(calls) > call else torch.mm(a, b, out=out)

    return fn


def in_fewer_bits(a, b, out):
    return out.copy_(a.bfloat16().float() @ b.bfloat16().float())


@pytest.fixture
def row(monkeypatch):
    """The row of a function that is timed on the CPU."""

    def of(fn) -> TimedRow:
        contender = Contender("planted", "default", "cpu", "", "fp32", ("cpu",), lambda: fn)
        with Bench(Setting("ladder", "cpu"), [contender], NoBars()) as bench:
            (found,) = bench.time(PROBLEM)
        return found

    monkeypatch.setattr(measure, "CPU_PLAN", dataclasses.replace(measure.CPU_PLAN, max_rounds=3))
    return of


def test_what_is_honest_is_timed(row):
    found = row(honest)
    assert found.status == PASS and found.median_us > 0


@pytest.mark.parametrize("plant", [by_address, in_place, lambda: early_from(4), lambda: early_from(1)])
def test_what_does_not_work_in_each_call_has_no_time(row, plant):
    found = row(plant())
    assert found.status == FAIL and found.median_us is None and found.tflops is None


def test_what_was_right_before_it_was_timed_says_so(row):
    assert "right until it was timed, then, with -A in the place of A" in row(by_address()).detail


def test_what_breaks_off_while_it_is_timed_is_an_error_and_the_others_are_timed(monkeypatch):
    calls = []

    def breaking(a, b, out):
        calls.append(out)
        if len(calls) > 3:
            raise RuntimeError("it broke off")
        return torch.mm(a, b, out=out)

    monkeypatch.setattr(measure, "CPU_PLAN", RoundPlan.exactly(3))
    pool = [
        Contender(fn.__name__, "default", "cpu", "", "fp32", ("cpu",), lambda fn=fn: fn) for fn in (breaking, honest)
    ]
    with Bench(Setting("ladder", "cpu"), pool, NoBars()) as bench:
        broken, timed_row = bench.time(PROBLEM)
    assert (broken.stage, broken.status, broken.median_us) == ("breaking", ERROR, None) and "broke off" in broken.detail
    assert (timed_row.stage, timed_row.status, timed_row.repeats) == ("honest", PASS, 3)


def test_fewer_bits_are_not_timed(row):
    found = row(in_fewer_bits)
    assert found.status == FAIL and found.median_us is None and "one_hot" in found.detail


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_signs_are_flipped_in_place(dtype):
    x = torch.tensor([[1.0, -2.0], [0.0, 3.5]]).to(dtype).T
    before, place = x.float().clone(), x.data_ptr()
    measure.negate_in_place(x)
    assert torch.equal(x.float(), -before) and x.data_ptr() == place and not x.is_contiguous()


def timed(us: float, problem: Problem, mode: str = COLD, **values) -> TimedRow:
    about = Contender("s19_any_shape", "default", "cuda", "cuda", problem.math, ("cuda",), lambda: honest)
    values |= {"median_us": us, "p20_us": us, "p80_us": us, "repeats": 7, "tflops": 1.0, "verdict": "FASTER"}
    return TimedRow.about("ladder", about, problem, mode=mode, vs_cublas=3.0, **values)


@pytest.mark.parametrize(
    ("problem", "mode", "least", "why"),
    [
        (Problem(4096, 4096, 4096), COLD, 2054.3, "multiply-adds take"),  # 2 * 4096^3 at 66.9 TFLOP/s
        (Problem(4096, 4096, 4096, "bf16"), GRAPH, 128.4, "multiply-adds take"),  # at 1070.4
        (Problem(4096, 4096, 4096, "fp8"), GRAPH, 64.2, "multiply-adds take"),
        (Problem(1, 16384, 16384), COLD, 111.9, "half of A and B"),  # 512 MiB at 4.8 TB/s
    ],
)
def test_nobody_is_faster_than_the_device(problem, mode, least, why):
    possible = timed(1.01 * least, problem, mode)
    assert floor.judge(possible, ON_H200) is possible
    found = floor.judge(timed(0.99 * least, problem, mode), ON_H200)
    assert found.status == FAIL and why in found.detail and "another stream" in found.detail
    assert found.median_us is found.tflops is found.vs_cublas is found.repeats is None and not found.verdict


def test_what_a_warm_cache_holds_need_not_be_read():
    row = timed(20.0, Problem(1, 16384, 16384), GRAPH)
    assert floor.judge(row, ON_H200) is row


def test_of_a_gpu_that_is_not_known_nothing_is_said():
    row = timed(1e-3, Problem(4096, 4096, 4096))
    assert floor.judge(row, ENVIRONMENT) is row
