"""Two functions compared on the CPU, by a clock that is made up."""

from __future__ import annotations

import pytest
import torch

from experiments.bench import timers
from experiments.bench.functions import compare_functions
from experiments.bench.rounds import RoundPlan
from gemm_ref import WrongResult

A, B = torch.randn(24, 40, dtype=torch.float64), torch.randn(40, 16, dtype=torch.float64)
PLAN = RoundPlan.exactly(12)


def by_parts(a, b):
    return a[:, :20] @ b[:20] + a[:, 20:] @ b[20:]


@pytest.fixture
def clock(monkeypatch):
    """`clock[function]` is the microseconds of each call of it, one after another; 100 for any other."""
    times: dict = {}

    def timer(work):
        cells = dict(zip(work.__code__.co_freevars, work.__closure__, strict=True))
        function = cells["self"].cell_contents._function
        work()
        return times.get(function, iter(lambda: 100.0, None)).__next__()

    monkeypatch.setattr(timers, "cpu_timer", timer)
    return times


def test_a_faster_function_with_its_interval_and_control(clock):
    clock[by_parts] = iter([50.0 + round_ % 2 for round_ in range(12)])
    found = compare_functions(by_parts, torch.matmul, (A, B), plan=PLAN)
    assert found.verdict == "FASTER" and found.speed.low < found.speed.median < found.speed.high
    assert (found.control.median, found.is_quiet, found.baseline.repeats) == (1.0, True, 12)
    assert str(found).startswith("FASTER: 1.9") and "control 1.000 (1.000 to 1.000), SAME" in str(found)


def test_no_verdict_where_the_baseline_differs_from_itself(clock):
    """The baseline and the control are the same function: each call takes longer than the one before."""
    clock[torch.matmul] = (3e4 * 1.1**call for call in range(24))
    clock[by_parts] = iter([1e4] * 12)
    found = compare_functions(by_parts, torch.matmul, (A, B), plan=PLAN)
    assert found.speed.low > 2 and found.verdict == "UNSURE" and not found.is_quiet and "not quiet" in str(found)


def _memoised():
    results = {}
    return lambda a, b: results.setdefault(a.data_ptr(), a @ b)


def _changing(a, b):
    return a.mul_(1.0 + 1e-15) @ b


def _raising(a, b):
    raise RuntimeError("out of tiles")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_memoised(), r"function: right until .* with -A in the place of A: its result is not the baseline's"),
        (lambda a, b: a.abs() @ b, "function: its result is not the baseline's: Tensor-likes are not close"),
        (_changing, "function: it changes its inputs"),
        (_raising, "function: RuntimeError: out of tiles"),
    ],
    ids=["memoised", "wrong", "changing", "raising"],
)
def test_what_is_wrong_is_not_compared(clock, function, reason):
    kept = A.clone(), B.clone()
    with pytest.raises(WrongResult, match=reason):
        compare_functions(function, torch.matmul, (A, B), plan=PLAN)
    assert torch.equal(A, kept[0]) and torch.equal(B, kept[1])  # the user's own are never touched


@pytest.mark.parametrize(
    ("inputs", "more", "reason"),
    [
        ((torch.ones(2, dtype=torch.int32),), {}, "no input is a tensor of floating point"),
        ((A, torch.empty(2, device="meta")), {}, "on cpu and meta: move them to one device"),
        ((torch.empty(2, device="meta"),), {}, "calls on meta cannot be timed"),
        ((A, B), {"mode": "hot"}, "unknown timing mode 'hot': there are cold"),
        ((A, B), {"rtol": 1e-3}, "pass both, or neither"),
    ],
)
def test_what_cannot_be_timed_is_refused(inputs, more, reason):
    with pytest.raises(ValueError, match=reason):
        compare_functions(by_parts, torch.matmul, inputs, **more)
