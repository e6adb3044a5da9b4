"""How contenders take turns: rounds in random order, until their ratios are known well enough.

The contenders of one problem are timed once each in a round, in an order drawn anew for each round, so that a drift of
clocks or temperature meets all of them alike. A ratio is formed within a round (`experiments.records.stats`). Rounds
go on until every contender's ratio to the reference has the precision asked for, or has had its share of time: a
contender that has either drops out, and the reference takes part in every round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from experiments.bench.timers import Timer, Work
from experiments.records import stats

Name = TypeVar("Name", bound=Hashable)

KEPT_ROUNDS = 3  # as many finished ones are worth keeping when the rest are interrupted
WARM_UP_LEAST_S, WARM_UP_MOST_S = 0.3, 5.0


@dataclass(frozen=True)
class Plan:
    """When to stop: `precision` is half the 95% interval of a ratio, relative to it."""

    least: int = 7  # rounds that a contender takes part in, unless it has used up `each_s`; but at least
    least_slow: int = 3
    most: int = 100
    precision: float = 0.005
    each_s: float = 1.0  # of one contender's own time
    total_s: float = 20.0  # of all contenders' time at one problem


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while timing; `times` has what the finished rounds gave, or nothing where they are too few."""

    def __init__(self, times: Mapping[Any, np.ndarray]) -> None:
        super().__init__()
        self.times = times


def warm_up(work: Work, timer: Timer, settled: Callable[[], bool] = lambda: True) -> float:
    """Call `work` until WARM_UP_LEAST_S have passed and the clocks are `settled`, or WARM_UP_MOST_S; return seconds."""
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < WARM_UP_MOST_S:
        if spent >= WARM_UP_LEAST_S and settled():
            break
        timer(work)
    return spent


def interleave(
    works: Mapping[Name, Work],
    timer: Timer,
    plan: Plan,
    reference: Name | None = None,
    after_each: Callable[[Name], object] = lambda name: None,
) -> dict[Name, np.ndarray]:
    """Time the works in rounds as `plan` says; returns microseconds, shape (rounds,), for each, NaN where it was out.

    Without a reference a contender's precision is that of its own time.
    Raises Interrupted, with the times of the finished rounds, for a KeyboardInterrupt.
    """
    order = np.random.default_rng(0)
    names = list(works)
    if len(names) == 1:
        reference = None
    active = set(names) - {reference}
    rounds: list[dict[Name, float]] = []
    spent_us = 0.0
    try:
        while active and len(rounds) < plan.most and (spent_us < plan.total_s * 1e6 or len(rounds) < plan.least_slow):
            taken: dict[Name, float] = {}
            for index in order.permutation(len(names)):
                name = names[index]
                if name in active or name == reference:
                    taken[name] = timer(works[name])
                    after_each(name)
            rounds.append(taken)
            spent_us += sum(taken.values())
            active = {name for name in active if not _known(name, rounds, reference, plan)}
    except KeyboardInterrupt as stop:
        kept = _table(names, rounds) if len(rounds) >= KEPT_ROUNDS else {}
        raise Interrupted(kept) from stop
    return _table(names, rounds)


def _known(name: Name, rounds: list[dict[Name, float]], reference: Name | None, plan: Plan) -> bool:
    """Whether a contender needs no more rounds."""
    both = [(taken[name], 1.0 if reference is None else taken[reference]) for taken in rounds if name in taken]
    own, beside = np.array(both).T
    if len(own) < plan.least_slow:
        return False
    if own.sum() >= plan.each_s * 1e6:
        return True
    return len(own) >= plan.least and stats.half_width(beside / own) <= plan.precision


def _table(names: list[Name], rounds: list[dict[Name, float]]) -> dict[Name, np.ndarray]:
    return {name: np.array([taken.get(name, np.nan) for taken in rounds]) for name in names}
