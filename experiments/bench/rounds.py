"""The rounds: contenders are timed in random order, until their ratios are known well enough.

The contenders of one problem are timed once each in a round, in an order drawn anew for each round, so that a drift of
clocks or temperature affects all of them alike. A ratio is formed within a round (`experiments.records.stats`). Rounds
go on until every contender's ratio to the reference has the requested precision, or has used up its share of time: a
contender that has either drops out, and the reference takes part in every round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from experiments.records import stats
from gemm_ref.ptx.program import without_collection

Name = TypeVar("Name", bound=Hashable)

MIN_USEFUL_ROUNDS = 3  # fewer finished rounds are dropped when the rest are interrupted
MIN_WARM_UP_S, MAX_WARM_UP_S = 0.3, 5.0


@dataclass(frozen=True)
class RoundPlan:
    """When the rounds end; `precision` is half the 95% interval of a ratio, relative to it."""

    min_rounds: int = 7  # rounds that a contender takes part in, unless it has used up `per_contender_s`; but at least
    min_slow_rounds: int = 3
    max_rounds: int = 100
    precision: float = 0.005
    per_contender_s: float = 1.0  # sum of one contender's own times
    total_s: float = 20.0  # sum of all contenders' times at one problem
    wall_s: float = float("inf")  # wall-clock time of all rounds, of which there is at least one
    shuffled: bool = True  # False keeps the order of the contenders in every round

    @classmethod
    def exactly(cls, rounds: int, *, shuffled: bool = True) -> RoundPlan:
        """So many rounds for every contender, however long they take and however far they scatter."""
        unlimited = float("inf")
        return cls(rounds, rounds, rounds, 0.0, unlimited, unlimited, shuffled=shuffled)


def warm_up(
    time_once: Callable[[], object], is_settled: Callable[[], bool] = lambda: True, least_s: float | None = None
) -> float:
    """Calls until `least_s` have passed and `is_settled`, or MAX_WARM_UP_S if that is longer; returns the seconds."""
    least_s = MIN_WARM_UP_S if least_s is None else least_s
    start = time.perf_counter()
    while (elapsed_s := time.perf_counter() - start) < max(least_s, MAX_WARM_UP_S):
        if elapsed_s >= least_s and is_settled():
            break
        time_once()
    return elapsed_s


def interleave(
    names: Sequence[Name], time_once: Callable[[Name], float], plan: RoundPlan, reference: Name | None = None
) -> tuple[dict[Name, np.ndarray], KeyboardInterrupt | None]:
    """Takes the times of the named contenders in rounds as `plan` says, while Python's garbage collector is paused.

    time_once(name) runs a contender once and returns microseconds.

    Returns microseconds, shape (rounds,), for each, NaN in rounds without it; and the KeyboardInterrupt that ended the
    rounds early, if one did: the times are then those of the finished rounds, or none if these are too few.
    Without a reference the precision of a contender is that of its own time.
    """
    order = np.random.default_rng(0)
    if len(names) == 1:
        reference = None
    active = set(names) - {reference}
    rounds: list[dict[Name, float]] = []
    spent_us = 0.0
    start = time.perf_counter()
    try:
        with without_collection():
            while active and len(rounds) < plan.max_rounds:
                is_over = spent_us >= plan.total_s * 1e6 and len(rounds) >= plan.min_slow_rounds
                if is_over or (rounds and time.perf_counter() - start >= plan.wall_s):
                    break
                times_us: dict[Name, float] = {}
                for index in order.permutation(len(names)) if plan.shuffled else range(len(names)):
                    name = names[index]
                    if name in active or name == reference:
                        times_us[name] = time_once(name)
                rounds.append(times_us)
                spent_us += sum(times_us.values())
                active = {name for name in active if not _is_known(name, rounds, reference, plan)}
    except KeyboardInterrupt as stop:
        return (_table(names, rounds) if len(rounds) >= MIN_USEFUL_ROUNDS else {}), stop
    return _table(names, rounds), None


def _is_known(name: Name, rounds: list[dict[Name, float]], reference: Name | None, plan: RoundPlan) -> bool:
    """Whether a contender needs no more rounds."""
    pairs = [
        (times_us[name], 1.0 if reference is None else times_us[reference]) for times_us in rounds if name in times_us
    ]
    own_us, reference_us = np.array(pairs).T
    if len(own_us) < plan.min_slow_rounds:
        return False
    if own_us.sum() >= plan.per_contender_s * 1e6:
        return True
    return len(own_us) >= plan.min_rounds and stats.half_width(reference_us / own_us) <= plan.precision


def _table(names: Sequence[Name], rounds: list[dict[Name, float]]) -> dict[Name, np.ndarray]:
    return {name: np.array([times_us.get(name, np.nan) for times_us in rounds]) for name in names}
