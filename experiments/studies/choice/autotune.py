"""Triton's autotuner over a list of callables: what it picks by its own benchmark, and how long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Name = TypeVar("Name")
Benchmark = Callable[..., list[float]]  # (call, quantiles) -> times


def autotune(works: Mapping[Name, Callable[[], object]], benchmark: Benchmark | None = None) -> tuple[Name, float]:
    """What `triton.autotune` picks among calls without arguments, and the seconds that this takes.

    A launch of a candidate stands in the place of a jit function, so that candidates may be of any kernel. benchmark:
    what times a call; None is Triton's own for the device.
    """
    import triton

    names = list(works)
    configs = [triton.Config({"place": place}) for place in range(len(names))]
    tuner = triton.autotune(configs, key=[], do_bench=benchmark)(_Launches(list(works.values())))
    start = time.perf_counter()
    tuner.run()
    return names[tuner.best_config.kwargs["place"]], time.perf_counter() - start


class _Launches:
    """What the autotuner asks of a jit function."""

    arg_names = ("place",)

    def __init__(self, works: list[Callable[[], object]]) -> None:
        self._works = works

    @staticmethod
    def fn(place: int) -> None:
        """The Python function whose name the autotuner prints."""

    def run(self, *, place: int, **options: object) -> None:
        """Launch one candidate; its own launcher knows the warps and stages that `options` would set."""
        self._works[place]()
