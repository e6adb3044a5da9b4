"""The timing protocol and its statistics, on synthetic times; and the shapes that `correctness` covers."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from experiments import correctness, measure
from experiments.selection import Request


def test_every_contender_runs_once_in_every_round_in_changing_order():
    ran = []
    works = {name: (lambda name=name: ran.append(name)) for name in "abcd"}

    def timer(work):
        work()
        return float(len(ran))

    times = measure.interleave(works, timer, rounds=20)
    rounds = [tuple(ran[first : first + 4]) for first in range(0, len(ran), 4)]
    assert all(Counter(order) == Counter("abcd") for order in rounds)
    assert len(set(rounds)) > 5
    for name in "abcd":  # each time is filed under the work it belongs to, in the order of the rounds
        assert list(times[name]) == [index + 1 for index, other in enumerate(ran) if other == name]


def test_interruption_hands_over_whole_rounds():
    taken = iter([*range(7), None])

    def timer(work):
        time = next(taken)
        if time is None:
            raise KeyboardInterrupt
        return time

    with pytest.raises(measure.Interrupted) as stop:
        measure.interleave({"a": None, "b": None}, timer, rounds=20)
    assert {name: len(times) for name, times in stop.value.times.items()} == {"a": 3, "b": 3}
    assert sorted(np.concatenate(list(stop.value.times.values()))) == list(range(6))


def test_ratio_is_formed_within_rounds():
    rng = np.random.default_rng(1)
    drift = np.linspace(1.0, 3.0, 25)  # clocks that fall while measuring: both slow down together
    reference = 100 * drift * rng.normal(1, 0.002, 25)
    times = 200 * drift * rng.normal(1, 0.002, 25)
    ratio = measure.speed_ratio(times, reference)
    assert ratio.median == pytest.approx(0.5, rel=0.005)
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.high - ratio.low < 0.01
    assert measure.speed_ratio(times, reference) == ratio  # seeded


def test_interval_widens_with_noise_and_covers_the_truth():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(40):
        ratio = measure.speed_ratio(rng.normal(100, 10, 15), np.full(15, 50.0))
        covered += ratio.low <= 0.5 <= ratio.high
        assert ratio.high - ratio.low > 0.01
    assert covered >= 32


def test_reference_against_itself_is_one():
    times = np.array([3.0, 4.0, 5.0])
    assert measure.speed_ratio(times, times) == measure.Ratio(1.0, 1.0, 1.0)


def test_summary_and_tflops():
    summary = measure.summarize(np.arange(1.0, 12.0))
    assert (summary.median_us, summary.p20_us, summary.p80_us, summary.repeats) == (6.0, 3.0, 9.0, 11)
    assert measure.tflops(2 * 4096**3, 2700.0) == pytest.approx(50.9, abs=0.01)


@pytest.mark.parametrize(("round_us", "rounds"), [(1e3, 30), (1e6, 10), (1e9, 7)])
def test_rounds_follow_the_budget_within_bounds(round_us, rounds):
    assert measure.choose_rounds(round_us, budget_s=10) == rounds


def test_warm_up_lasts_as_long_as_asked():
    calls = []
    measure.warm_up(lambda: calls.append(1), timer=lambda work: work() or 1000.0, seconds=0.05)
    assert len(calls) == 50


def test_cpu_shapes_put_every_edge_on_every_dimension():
    shapes = [problem for problem, _ in correctness.cases(Request("cpu"))]
    for name in "mnk":
        assert set(correctness.EDGES) <= {getattr(problem, name) for problem in shapes}


def test_covering_design_pairs_every_edge_with_every_edge():
    triples = correctness.covering()
    assert len(triples) == 64
    for x, y in ((0, 1), (0, 2), (1, 2)):
        assert {(t[x], t[y]) for t in triples} == set(product(correctness.EDGES, repeat=2))


def test_gpu_shapes_pass_2_to_the_31_in_offsets():
    assert any(problem.m * problem.k > 2**31 for problem, _ in correctness.cases(Request("cuda")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="times with CUDA events: needs a GPU")
def test_cuda_timer_hides_the_launch_and_sees_the_kernel():
    timer = measure.CudaTimer()
    small, large = (torch.zeros(size, device="cuda") for size in (1 << 10, 1 << 28))
    quick = min(timer(lambda: small.add_(1)) for _ in range(10))
    assert quick < 60
    assert min(timer(lambda: large.add_(1)) for _ in range(10)) > 5 * quick
