"""How a time is taken: what all timed experiments share, and nothing of any one of them.

The contenders of one problem take turns in rounds, in an order drawn anew for each round, so that a drift of clocks
or temperature meets all of them alike. A ratio is formed within a round and the rounds are then summarised.

On a GPU a time is that between two CUDA events on torch's current stream around one call. Before it the L2 cache is
overwritten (a buffer of twice its size), often enough that the GPU is still busy with that when the host has put the
call in the queue: so the time is the kernel's, not that of launching it from Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

Name = TypeVar("Name", bound=Hashable)
Work = Callable[[], object]  # one call of what is timed, with its operands bound
Timer = Callable[[Work], float]  # runs it once and returns microseconds

MIN_ROUNDS, MAX_ROUNDS = 7, 30
KEPT_ROUNDS = 3  # as many finished ones are worth keeping when the rest are interrupted
CONFIDENCE = 0.95
# The threads of a BLAS go on spinning after a call (OpenBLAS for 2^26 cycles) and would take the cores of the next.
SETTLE_S = 0.05


@dataclass(frozen=True)
class Summary:
    """Times of one contender, in microseconds."""

    median_us: float
    p20_us: float
    p80_us: float
    repeats: int


@dataclass(frozen=True)
class Ratio:
    """A median of per-round ratios, and its bootstrap 95% interval."""

    median: float
    low: float
    high: float


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while timing; `times` has what the finished rounds gave, or nothing where they are too few."""

    def __init__(self, times: dict[Hashable, np.ndarray]) -> None:
        super().__init__()
        self.times = times


def cpu_timer(work: Work) -> float:
    """Wall-clock microseconds of one call, after a pause that lets the threads of the call before it go idle."""
    time.sleep(SETTLE_S)
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


class CudaTimer:
    """Microseconds of one call on the GPU, from a cold L2 cache and with its launch hidden; see the module."""

    _MOST_COVER_US = 2000.0  # a host that takes longer to launch than this was interrupted, and is not waited for

    def __init__(self) -> None:
        l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._buffer = torch.empty(2 * l2_bytes, dtype=torch.int8, device="cuda")
        self._flushes = 1
        self._flush_us = min(self._elapsed(self._buffer.zero_)[0] for _ in range(5))

    def __call__(self, work: Work) -> float:
        elapsed_us, host_us = self._elapsed(work)
        while host_us > self._flushes * self._flush_us < self._MOST_COVER_US:
            self._flushes *= 2
            elapsed_us, host_us = self._elapsed(work)
        return elapsed_us

    def _elapsed(self, work: Work) -> tuple[float, float]:
        """Microseconds between the events around `work`, and those that the host took to put it in the queue."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(self._flushes):
            self._buffer.zero_()
        begin.record()
        start = time.perf_counter()
        work()
        host_us = (time.perf_counter() - start) * 1e6
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3, host_us


def warm_up(work: Work, timer: Timer, seconds: float = 1.0) -> None:
    """Call `work` until it has run for about `seconds`, so that clocks and temperature are those of a busy device."""
    spent = 0.0
    while spent < seconds * 1e6:
        spent += max(timer(work), 1.0)


def choose_rounds(round_us: float, budget_s: float, least: int = MIN_ROUNDS, most: int = MAX_ROUNDS) -> int:
    """How many rounds fit in the budget, within the bounds."""
    return int(np.clip(budget_s * 1e6 / max(round_us, 1.0), least, most))


def interleave(
    works: Mapping[Name, Work], timer: Timer, rounds: int, seed: int = 0, after_each: Work = lambda: None
) -> dict[Name, np.ndarray]:
    """Time every work once in each round, in a random order; returns microseconds, shape (rounds,), for each.

    Raises Interrupted, with the times of the finished rounds, for a KeyboardInterrupt.
    """
    order = np.random.default_rng(seed)
    names = list(works)
    times = {name: np.empty(rounds) for name in names}
    turn = 0
    try:
        for turn in range(rounds):
            for index in order.permutation(len(names)):
                times[names[index]][turn] = timer(works[names[index]])
                after_each()
    except KeyboardInterrupt as stop:
        finished = {name: taken[:turn] for name, taken in times.items()} if turn >= KEPT_ROUNDS else {}
        raise Interrupted(finished) from stop
    return times


def summarize(times_us: np.ndarray) -> Summary:
    """Median and spread of times (rounds,)."""
    p20, median, p80 = np.percentile(times_us, [20, 50, 80])
    return Summary(float(median), float(p20), float(p80), len(times_us))


def speed_ratio(times_us: np.ndarray, reference_us: np.ndarray, seed: int = 0) -> Ratio:
    """How fast something is as a share of a reference (1 is equal, 2 twice as fast), both timed in the same rounds."""
    from scipy.stats import bootstrap

    ratios = reference_us / times_us
    middle = float(np.median(ratios))
    if np.ptp(ratios) == 0.0:  # the bootstrap has nothing to draw from, as for the reference against itself
        return Ratio(middle, middle, middle)
    interval = bootstrap(
        (ratios,), np.median, confidence_level=CONFIDENCE, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Ratio(middle, float(interval.low), float(interval.high))


def tflops(flops: int, median_us: float) -> float:
    """10^12 floating-point operations a second."""
    return flops / median_us / 1e6
