"""The timing protocol on synthetic times: rounds, when they stop, what an interruption leaves; and timers on a GPU."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.bench import rounds, timers
from experiments.bench.rounds import RoundPlan
from experiments.bench.telemetry import Sample, Telemetry, summarize

needs_gpu = pytest.mark.gpu


def rounds_of(ran, width):
    return [tuple(ran[first : first + width]) for first in range(0, len(ran), width)]


def test_every_contender_runs_once_in_every_round_in_changing_order():
    ran = []

    def time_once(name):
        ran.append(name)
        return float(len(ran))

    times, _ = rounds.interleave(
        "abcd", time_once, RoundPlan(min_rounds=20, max_rounds=20, precision=0.0, per_contender_s=9.0)
    )
    assert all(Counter(order) == Counter("abcd") for order in rounds_of(ran, 4))
    assert len(set(rounds_of(ran, 4))) > 5
    for name in "abcd":  # each time is filed under the work it belongs to, in the order of the rounds
        assert list(times[name]) == [index + 1 for index, other in enumerate(ran) if other == name]
    ran.clear()
    rounds.interleave("abcd", time_once, RoundPlan.exactly(5, shuffled=False))
    assert "".join(ran) == 5 * "abcd"


def interleaved(us, spreads, *protocol, seed=0):
    """The times of contenders that take `us`, by name, each with its own spread."""
    rng = np.random.default_rng(seed)
    return rounds.interleave(list(us), lambda name: us[name] * (1 + spreads[name] * rng.standard_normal()), *protocol)[
        0
    ]


def counts(times):
    return {name: int((~np.isnan(taken)).sum()) for name, taken in times.items()}


def test_a_contender_that_is_known_drops_out_and_the_reference_stays():
    spreads = {"steady": 1e-4, "noisy": 0.03, "reference": 1e-4}
    plan = RoundPlan(min_rounds=7, max_rounds=60, precision=0.005)
    taken = counts(interleaved(dict.fromkeys(spreads, 100.0), spreads, plan, "reference"))
    assert taken["steady"] == 7
    assert taken["noisy"] > 20
    assert taken["reference"] == max(taken.values())


def test_rounds_go_on_until_the_ratio_is_as_precise_as_asked():
    spreads = {"x": 0.01, "reference": 0.01}
    times = interleaved(
        dict.fromkeys(spreads, 100.0), spreads, RoundPlan(max_rounds=5000, precision=0.002), "reference"
    )
    ratio = times["reference"] / times["x"]
    assert 50 < len(ratio) < 2000
    assert abs(np.median(ratio) - 1) < 0.006


def test_a_slow_contender_takes_fewer_rounds():
    us, spreads = {"slow": 0.6e6, "quick": 100.0, "reference": 50.0}, {"slow": 0.01, "quick": 0.02, "reference": 0.01}
    taken = counts(interleaved(us, spreads, RoundPlan(), "reference"))
    assert taken["slow"] == 3
    assert taken["quick"] > 7


def test_all_stop_when_the_problems_time_is_spent():
    us = dict.fromkeys("abcdefgh", 1e6)
    plan = RoundPlan(per_contender_s=100.0, total_s=20.0, precision=0.0)
    assert set(counts(interleaved(us, dict.fromkeys(us, 0.1), plan, "a")).values()) == {3}


def test_rounds_end_with_the_wall_clock_but_never_before_the_first(monkeypatch):
    seconds = iter(range(100))
    monkeypatch.setattr(rounds.time, "perf_counter", lambda: next(seconds))
    for wall_s, finished in ((0.5, 1), (3, 3)):
        plan = replace(RoundPlan.exactly(50), wall_s=wall_s)
        assert counts(interleaved({"a": 1.0}, {"a": 0.1}, plan)) == {"a": finished}


def test_the_reference_alone_is_timed_by_its_own_precision():
    assert len(interleaved({"reference": 10.0}, {"reference": 1e-5}, RoundPlan(), "reference")["reference"]) == 7


def test_interruption_hands_over_whole_rounds_and_of_the_first_ones_nothing():
    taken = iter(range(1, 8))

    def time_once(name):
        if (us := next(taken, None)) is None:
            raise KeyboardInterrupt
        return us

    times, stop = rounds.interleave("ab", time_once, RoundPlan())
    assert isinstance(stop, KeyboardInterrupt)
    assert {name: len(of_one) for name, of_one in times.items()} == {"a": 3, "b": 3}
    assert sorted(np.concatenate(list(times.values()))) == list(range(1, 7))
    times, stop = rounds.interleave("a", time_once, RoundPlan())
    assert times == {} and stop


def test_warm_up_goes_on_until_the_clock_has_settled_or_never_will(monkeypatch):
    monkeypatch.setattr(rounds, "MIN_WARM_UP_S", 0.0)
    monkeypatch.setattr(rounds, "MAX_WARM_UP_S", 0.05)
    answers, calls = iter([False, False, False, True]), []
    rounds.warm_up(lambda: calls.append(1), lambda: next(answers))
    assert len(calls) == 3
    assert rounds.warm_up(lambda: 1.0, lambda: False) >= 0.05


def test_conditions_are_those_of_the_samples():
    samples = [Sample(1980, 600.0, 50, 0), Sample(1500, 690.0, 61, 0x4), Sample(1980, 650.0, 60, 0x1)]
    conditions = summarize(samples)
    assert (conditions.sm_mhz, conditions.sm_mhz_low) == (1980, 1500)
    assert (conditions.power_w, conditions.power_w_high, conditions.temperature_c) == (650.0, 690.0, 61)
    assert conditions.throttle == "power cap"  # an idle moment is no throttle
    assert summarize([]).sm_mhz is None and summarize([]).throttle == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")
def test_without_nvml_telemetry_says_so_and_reads_nothing():
    with Telemetry() as telemetry, telemetry.window() as samples:
        assert telemetry.has_settled()
    assert telemetry.unavailable and samples == []


@pytest.mark.parametrize("mode", ["hot", ""])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(ValueError, match="cold, warm, graph"):
        timers.make_timer(mode)


def test_a_launch_that_is_interrupted_is_repeated_and_later_ones_do_not_wait_as_long(monkeypatch):
    """The GPU spins for as long as each work's host needs, and what an interruption took is forgotten."""
    monkeypatch.setattr(timers.CudaTimer, "_calibrate", lambda self: 1.0)
    timer, spun = timers.CudaTimer(), []
    host_us = {"quick": iter([20.0, 20.0, 20.0]), "slow": iter([100.0, 100.0, 3000.0, *[110.0] * 9])}

    def elapsed(work, cover_us):
        spun.append((work, cover_us))
        return 7.0, next(host_us[work])

    monkeypatch.setattr(timer, "_elapsed", elapsed)
    assert [timer(work) for work in ("quick", "slow", "quick", "slow", "slow", "quick")] == [7.0] * 6
    calls = ["quick", "slow", "slow", "quick", "slow", "slow", "slow", "quick"]
    assert spun == list(zip(calls, [50, 50, 100, 50, 200, 400, 220, 50], strict=True))


@needs_gpu
@pytest.mark.parametrize("mode", timers.OWN_MODES)
def test_gpu_timers_hide_the_launch_and_see_the_kernel(mode):
    timer = timers.make_timer(mode)
    small, large = (torch.zeros(size, device="cuda") for size in (1 << 10, 1 << 28))

    def quick():
        small.add_(1)

    def slow():
        large.add_(1)

    quickest = min(timer(quick) for _ in range(10))
    assert 0 < quickest < 30
    assert min(timer(slow) for _ in range(10)) > 5 * quickest


@needs_gpu
def test_a_rotation_outgrows_the_cache_and_has_equal_sets():
    a, b = torch.randn(129, 65), torch.randn(65, 127)
    rotation = timers.Rotation(a, b, timers.cache_bytes(timers.COLD))
    set_bytes = 4 * (a.numel() + b.numel() + 129 * 127)
    assert len(rotation) * set_bytes >= 2 * torch.cuda.get_device_properties(0).L2_cache_size
    first, second = rotation.take(), rotation.take()
    assert torch.equal(first[0], second[0]) and first[0].data_ptr() != second[0].data_ptr()
    assert all(x.data_ptr() % 256 == 0 for x in (*first, *second))
    assert len(timers.Rotation(a, b, 0)) == 1


@needs_gpu
def test_times_agree_with_tritons_do_bench():
    """A cross-check with a timer that is not ours: 2048^3 by cuBLAS, cold here and there, within 5%."""
    from triton.testing import do_bench

    a, b = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
    rotation, timer = timers.Rotation(a, b, timers.cache_bytes(timers.COLD)), timers.make_timer(timers.COLD)

    def ours():
        x, y, c = rotation.take()
        torch.mm(x, y, out=c)

    c = torch.empty_like(a)
    theirs_us = do_bench(lambda: torch.mm(a, b, out=c), warmup=100, rep=200, return_mode="median") * 1e3
    rounds.warm_up(lambda: timer(ours))
    assert np.median([timer(ours) for _ in range(100)]) == pytest.approx(theirs_us, rel=0.05)
