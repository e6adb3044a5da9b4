"""Triton's own autotuner among plain calls: it times each of them once, and the fastest is what it picks."""

import pytest

from experiments.studies.choice.autotune import autotune

pytest.importorskip("triton")


@pytest.mark.parametrize("fastest", "abc")
def test_the_fastest_is_picked_and_each_was_timed(fastest):
    called, timed = [], []

    def benchmark(call, quantiles):
        call()
        timed.append(called[-1])
        return [0.5 if called[-1] == fastest else 1.0] * len(quantiles)

    picked, seconds = autotune({name: lambda name=name: called.append(name) for name in "abc"}, benchmark)
    assert (picked, timed) == (fastest, list("abc")) and called[-1] == fastest and seconds > 0


def test_of_one_call_nothing_is_timed():
    assert autotune({"only": lambda: None}, benchmark=None)[0] == "only"
