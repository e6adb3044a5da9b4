"""Two functions of tensors compared as the studies compare kernels: checked, timed in turn, with a control.

    from experiments.bench.functions import compare_functions
    print(compare_functions(mine, torch.matmul, (a, b)))

`measure.MeasuringLoop` does the work, with entries of two functions and of the second one once more.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console

from experiments.bench import timers
from experiments.bench.measure import CPU_PLAN, Entry, MeasuringLoop, TimingProtocol, negate_in_place, settle_clock
from experiments.bench.rounds import RoundPlan
from experiments.bench.telemetry import Conditions, Telemetry
from experiments.bench.verify import CheckResult
from experiments.progress import Bars
from experiments.records import stats
from experiments.records.rows import COLD, FAIL, MODES, PASS, Row
from gemm_ref import WrongResult

Function = Callable[..., Any]  # of the inputs: returns a tensor, or several in a tuple or list


@dataclass(frozen=True)
class Comparison:
    """How fast one function is beside another: what `compare_functions` returns."""

    verdict: str  # FASTER, SLOWER or SAME; UNSURE where the interval or the control leaves it open
    speed: stats.Ratio  # of the function as a multiple of the baseline's, with its 95% interval
    control: stats.Ratio  # of the baseline against itself, in the same rounds
    is_quiet: bool  # whether the control is SAME; else no verdict can be trusted
    function: stats.Summary  # microseconds of one call
    baseline: stats.Summary
    conditions: Conditions  # of the GPU, where there is one

    def __str__(self) -> str:
        quiet = "SAME" if self.is_quiet else "not SAME: the machine was not quiet enough for a verdict"
        own, other = (f"{each.median_us:.4g}" for each in (self.function, self.baseline))
        return (
            f"{self.verdict}: {_show(self.speed)} of the baseline's speed; {own} us, baseline {other} us, "
            f"{self.baseline.repeats} rounds; control {_show(self.control)}, {quiet}; the results agree, also with "
            "other inputs after the timed calls"
        )


def compare_functions(
    function: Function,
    baseline: Function,
    inputs: Sequence[Any],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    mode: str = COLD,
    plan: RoundPlan | None = None,
) -> Comparison:
    """Compares the speed of two functions, each called as `function(*inputs)`.

    inputs: tensors of one device, at least one of them of floating point, and any other values. The results must agree
    as `torch.testing.assert_close` has it, with these tolerances. On a GPU `mode` is one of `timers.MODES`; on the CPU
    times are the wall clock's. Both functions take turns in random order, and the baseline takes part a second time as
    the control. After the timed calls each is called once more with the sign of the first floating-point input flipped
    in place, which detects a function that returns a memoised result. plan: when the rounds end.

    Raises ValueError for inputs or a mode that cannot be timed, `gemm_ref.WrongResult` where a function fails, changes
    its inputs or disagrees with the baseline, before the timed calls or after them.
    """
    device = _device_of(inputs)
    if (rtol is None) != (atol is None):
        raise ValueError("rtol and atol are given together: pass both, or neither for the defaults of the dtype")
    if mode not in MODES:
        raise ValueError(f"unknown timing mode {mode!r}: there are {', '.join(MODES)}")
    on_gpu = device.type == "cuda"
    set_bytes = sum(x.nbytes for x in inputs if isinstance(x, torch.Tensor))
    count = timers.count_sets(set_bytes, timers.cache_bytes(mode) if on_gpu else 0)
    sets = timers.Turns([_copy(inputs) for _ in range(count)])
    compared = _Call("function", function, baseline, sets, rtol, atol)
    entries = [compared, *(_Call(name, baseline, baseline, sets, rtol, atol) for name in ("baseline", "control"))]
    if on_gpu:
        make_timer = functools.partial(timers.make_timer, mode)
        protocol = TimingProtocol(make_timer, plan or RoundPlan(total_s=10.0), settle_clock)
    else:
        protocol = TimingProtocol(lambda: timers.cpu_timer, plan or CPU_PLAN)
    telemetry = Telemetry()
    loop = MeasuringLoop(protocol, Bars(Console(quiet=True)), telemetry)
    with contextlib.ExitStack() as stack:
        if on_gpu:
            stack.enter_context(torch.cuda.device(device))
            stack.enter_context(telemetry)
        _run(loop, entries, baseline=entries[1])
    times_us, reference_us, control_us = (entry.times_us for entry in entries)
    speed, control = stats.speed_ratio(times_us, reference_us), stats.speed_ratio(control_us, reference_us)
    function_us, baseline_us = stats.summarize(times_us), stats.summarize(reference_us)
    is_quiet = stats.verdict(control, stats.margin_for(baseline_us.median_us)) == stats.SAME
    margin = stats.margin_for(min(function_us.median_us, baseline_us.median_us))
    verdict = stats.verdict(speed, margin) if is_quiet else stats.UNSURE
    return Comparison(verdict, speed, control, is_quiet, function_us, baseline_us, compared.conditions)


def _device_of(inputs: Sequence[Any]) -> torch.device:
    """The one device of the tensors among the inputs. Raises ValueError where it is not one, or cannot be timed."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    devices = {x.device for x in tensors}
    if not any(x.is_floating_point() for x in tensors):
        raise ValueError(
            "no input is a tensor of floating point, whose sign could be flipped to repeat a call: add one"
        )
    if len(devices) > 1:
        raise ValueError(f"the inputs are on {' and '.join(sorted(map(str, devices)))}: move them to one device")
    (device,) = devices
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"calls on {device} cannot be timed: use a CUDA GPU, or the CPU")
    return device


def _copy(inputs: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(x.detach().clone() if isinstance(x, torch.Tensor) else x for x in inputs)


class _Call(Entry):
    """A function with its inputs, checked against the baseline."""

    def __init__(
        self,
        name: str,
        function: Function,
        baseline: Function,
        sets: timers.Turns,
        rtol: float | None,
        atol: float | None,
    ) -> None:
        self._name, self._function, self._baseline, self._sets = name, function, baseline, sets
        self._tolerances = {"rtol": rtol, "atol": atol}
        self.work = lambda: self._function(*self._sets.take())
        self.times_us, self.conditions = np.array([]), Conditions()

    def __str__(self) -> str:
        return self._name

    def check(self) -> CheckResult:
        return self._compare(self._sets.take())

    def check_negated(self) -> CheckResult:
        inputs = self._sets.take()
        number = next(x for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point())
        negate_in_place(number)
        result = self._compare(inputs)
        if not result.lost:
            negate_in_place(number)
        return result

    def _compare(self, inputs: tuple[Any, ...]) -> CheckResult:
        unused = _copy(inputs)  # at addresses for which no function can have kept a result
        before = _copy(inputs)
        try:
            result, expected = self._function(*inputs), self._baseline(*unused)
            _assert_close(inputs, before, "it changes its inputs", rtol=0.0, atol=0.0)
            _assert_close(result, expected, "its result is not the baseline's", **self._tolerances)
        except WrongResult as error:
            return CheckResult(FAIL, str(error))
        except Exception as error:
            return self.failed(error)
        return CheckResult()

    def row(self, **values: Any) -> Row:
        return Row(experiment="compare_functions", stage=self._name, backend="", **values)

    def timed_row(self, times_us: Mapping[Any, np.ndarray], conditions: Conditions) -> Row:
        self.times_us, self.conditions = times_us[self], conditions
        return self.row()


def _assert_close(result: Any, expected: Any, what: str, **tolerances: float | None) -> None:
    """Raises WrongResult, which begins with `what`, unless the two agree; values that are no tensors must be equal."""
    try:
        torch.testing.assert_close(result, expected, equal_nan=True, **tolerances)
    except AssertionError as error:
        raise WrongResult(f"{what}: {error}") from None


def _run(loop: MeasuringLoop, entries: Sequence[_Call], baseline: _Call) -> None:
    """Checks and times the entries. Raises WrongResult for the first that fails."""

    def rows() -> Generator[Row, None, None]:
        passed = yield from loop.check(entries, "checking")
        yield from loop.time(passed, reference=baseline)

    for row in rows():
        if row.status != PASS:
            raise WrongResult(f"{row.stage}: {row.detail}")


def _show(ratio: stats.Ratio) -> str:
    return f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
