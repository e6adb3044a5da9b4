"""From times to statements: medians with their spread, ratios with their interval, and a verdict in one word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
MARGIN = 0.02  # smaller differences of speed are not worth acting on
RESOLUTION_US = 0.5  # CUDA Runtime API, cudaEventElapsedTime: 'a resolution of around 0.5 microseconds'
FASTER, SLOWER, SAME, UNSURE = "FASTER", "SLOWER", "SAME", "UNSURE"


@dataclass(frozen=True)
class Summary:
    """The median and the percentiles of one contender's times, in microseconds."""

    median_us: float
    p20_us: float
    p80_us: float
    repeats: int


@dataclass(frozen=True)
class Ratio:
    """A speed as a multiple of another (1 is equal, 2 is twice as fast), with its 95% interval."""

    median: float
    low: float
    high: float

    def columns(self, name: str) -> dict[str, float]:
        """Returns a row's columns: the median in `name`, the interval in `name`_low and `name`_high."""
        return {name: self.median, f"{name}_low": self.low, f"{name}_high": self.high}


def summarize(times_us: np.ndarray) -> Summary:
    """Returns the median and the spread of times, shape (rounds,); NaN marks a round without a time."""
    times_us = times_us[~np.isnan(times_us)]
    p20, median, p80 = np.percentile(times_us, [20, 50, 80])
    return Summary(float(median), float(p20), float(p80), len(times_us))


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean of positive values."""
    return float(np.exp(np.mean(np.log(values))))


def ratios(times_us: np.ndarray, reference_us: np.ndarray) -> np.ndarray:
    """Returns the speed as a multiple of the reference's in each round that timed both; times have shape (rounds,)."""
    per_round = reference_us / times_us
    return per_round[~np.isnan(per_round)]


def speed_ratio(times_us: np.ndarray, reference_us: np.ndarray) -> Ratio:
    """Returns the median of the ratios within rounds with its bootstrap interval (percentile method, seeded)."""
    from scipy.stats import bootstrap

    per_round = ratios(times_us, reference_us)
    middle = float(np.median(per_round))
    if np.ptp(per_round) == 0.0:  # the bootstrap needs variation, and the reference against itself has none
        return Ratio(middle, middle, middle)
    interval = bootstrap(
        (per_round,), np.median, confidence_level=CONFIDENCE, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return Ratio(middle, float(interval.low), float(interval.high))


def half_width(per_round: np.ndarray) -> float:
    """Returns half the 95% interval of the median, relative to it, by order statistics: quick enough for every round.

    The ranks are those of the binomial distribution's normal approximation (Hahn and Meeker, Statistical Intervals,
    2nd ed., section 5.2). Infinite for fewer than 6 values, whose extremes do not reach 95%.
    """
    count = len(per_round)
    if count < 6:
        return math.inf
    reach = 1.96 * math.sqrt(count) / 2
    ordered = np.sort(per_round)
    low = ordered[max(0, math.floor(count / 2 - reach))]
    high = ordered[min(count - 1, math.ceil(count / 2 + reach) - 1)]
    return float((high - low) / 2 / np.median(per_round))


def margin_for(shorter_us: float, least: float = MARGIN) -> float:
    """Returns the margin for a ratio of times: a timer's resolution over the shorter one, but at least `least`."""
    return max(least, RESOLUTION_US / shorter_us)


def verdict(ratio: Ratio, margin: float = MARGIN) -> str:
    """Returns SAME if the interval is within `margin` of 1, else FASTER or SLOWER if it excludes 1, else UNSURE."""
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return SAME
    if ratio.low > 1:
        return FASTER
    if ratio.high < 1:
        return SLOWER
    return UNSURE


def change(old: Ratio, new: Ratio) -> Ratio:
    """Returns the ratio of two independent ratios, new / old, with its interval.

    The intervals are combined as independent errors of the logarithm, each side on its own (Fieller's simple case of
    small relative errors), so an interval that is wider on one side stays so.
    """
    down = math.hypot(math.log(new.median / new.low), math.log(old.high / old.median))
    up = math.hypot(math.log(new.high / new.median), math.log(old.median / old.low))
    middle = new.median / old.median
    return Ratio(middle, middle * math.exp(-down), middle * math.exp(up))


def tflops(flops: int, median_us: float) -> float:
    """Returns the speed in 10^12 floating-point operations per second."""
    return flops / median_us / 1e6
