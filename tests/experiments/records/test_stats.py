"""Statistics on synthetic times: ratios, intervals that cover, verdicts, changes between runs."""

import numpy as np
import pytest

from experiments.records import stats
from experiments.records.stats import FASTER, SAME, SLOWER, UNSURE, Ratio


def test_ratio_is_formed_within_rounds():
    rng = np.random.default_rng(1)
    drift = np.linspace(1.0, 3.0, 25)  # clocks that fall while measuring: both slow down together
    reference = 100 * drift * rng.normal(1, 0.002, 25)
    times = 200 * drift * rng.normal(1, 0.002, 25)
    ratio = stats.speed_ratio(times, reference)
    assert ratio.median == pytest.approx(0.5, rel=0.005)
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.high - ratio.low < 0.01
    assert stats.speed_ratio(times, reference) == ratio  # seeded
    assert stats.speed_ratio(times, times) == Ratio(1.0, 1.0, 1.0)


def test_rounds_without_a_time_are_left_out():
    times, reference = np.array([2.0, np.nan, 4.0, np.nan]), np.array([1.0, 9.0, 2.0, 9.0])
    assert list(stats.ratios(times, reference)) == [0.5, 0.5]
    assert stats.speed_ratio(times, reference) == Ratio(0.5, 0.5, 0.5)
    assert stats.summarize(times).repeats == 2


def test_interval_widens_with_noise_and_covers_the_truth():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(40):
        ratio = stats.speed_ratio(rng.normal(100, 10, 15), np.full(15, 50.0))
        covered += ratio.low <= 0.5 <= ratio.high
        assert ratio.high - ratio.low > 0.01
    assert covered >= 32


def test_the_quick_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(3)
    samples = rng.normal(1.0, 0.05, (2000, 25))
    widths = np.array([stats.half_width(sample) for sample in samples])
    inside = abs(np.median(samples, axis=1) - 1.0) <= 1.2 * widths  # it need not lie symmetrically about the median
    assert inside.mean() > 0.9
    assert stats.half_width(samples[0][:5]) == np.inf
    assert stats.half_width(np.concatenate(samples[:20])) < widths.mean() / 3


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.99, 1.01, SAME),
        (1.001, 1.01, SAME),  # certainly faster, but by nothing that matters
        (1.01, 1.05, FASTER),
        (0.5, 0.6, SLOWER),
        (0.97, 1.01, UNSURE),
        (0.9, 1.1, UNSURE),
    ],
)
def test_verdict(low, high, word):
    assert stats.verdict(Ratio((low + high) / 2, low, high)) == word


def test_short_times_have_the_margin_that_events_resolve():
    assert stats.margin_for(1000.0) == stats.MARGIN
    assert stats.margin_for(10.0) == 0.05
    noisy = Ratio(1.0, 0.996, 1.021)  # one tick of the events' clock at 9 microseconds
    assert (stats.verdict(noisy), stats.verdict(noisy, stats.margin_for(9.0))) == (UNSURE, SAME)


def test_a_change_is_the_ratio_of_the_ratios_and_wider_than_either():
    old, new = Ratio(0.8, 0.79, 0.81), Ratio(0.84, 0.83, 0.85)
    change = stats.change(old, new)
    assert change.median == pytest.approx(1.05)
    assert (change.high - change.low) / change.median > (new.high - new.low) / new.median
    assert stats.verdict(change) == FASTER
    assert stats.verdict(stats.change(old, old)) == SAME
    back = stats.change(new, old)
    assert back.low == pytest.approx(1 / change.high) and back.high == pytest.approx(1 / change.low)


def test_summary_and_tflops():
    summary = stats.summarize(np.arange(1.0, 12.0))
    assert (summary.median_us, summary.p20_us, summary.p80_us, summary.repeats) == (6.0, 3.0, 9.0, 11)
    assert stats.tflops(2 * 4096**3, 2700.0) == pytest.approx(50.9, abs=0.01)
