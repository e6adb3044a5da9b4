"""What came of each experiment, in one to three sentences made from its rows; 'faster' and 'slower' are verdicts.

`outcome` is what the report shows beside an experiment's expectation. A part that was not measured is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from experiments.publish.docs import rounding
from experiments.publish.numbers import format_percent
from experiments.publish.outcomes import cards, code, shapes, speeds, times
from experiments.records import frames, stats


def outcome(name: str, frame: pd.DataFrame) -> str:
    """The sentences on the experiment `name`, whose rows are `frame`; empty where the rows say nothing."""
    sentences = OF[name](frame) if name in OF and not frame.empty else ()
    return " ".join(f"{sentence}." for sentence in sentences)


def in_order(names: Iterable[str]) -> list[str]:
    """The names of experiments in the order in which the report shows them; what has no outcome comes last."""
    order = list(OF)
    return sorted(names, key=lambda name: order.index(name) if name in OF else len(OF))


def describe_trust(timed: Iterable[pd.DataFrame]) -> str:
    """How far the timed rows of several experiments can be trusted, by cuBLAS timed against itself."""
    controls = [frames.controls(frame) for frame in timed if "vs_cublas" in frame]
    same, count = (sum(each[place] for each in controls) for place in (0, 1))
    if not count:
        return ""
    off = max(off for _, own, off in controls if own)
    return (
        f"cuBLAS was timed against itself beside every problem: {same} of {count} such rows say {stats.SAME}, and "
        f"the one furthest from 1 is off by {format_percent(off, 2)}."
    )


# In the order of the report: speed first, then what it costs, whether it is right, and why.
OF: Mapping[str, Callable[[pd.DataFrame], Iterable[str]]] = {
    "ladder": speeds.ladder,
    "tensor_cores": speeds.tensor_cores,
    "squares": speeds.squares,
    "shapes": shapes.shapes,
    "choice": shapes.choice,
    "cost": code.cost,
    "host": times.host,
    "correctness": code.correctness,
    "accuracy": code.accuracy,
    "rounding": rounding.outcome,
    "emulation": rounding.of_emulation,
    "roofs": code.roofs,
    "registers": code.registers,
    "memory": code.memory,
    "instructions": code.instructions,
    "modes": times.modes,
    "timers": times.timers,
    "energy": times.energy,
    "epilogues": times.epilogues,
    "scaling": cards.scaling,
}
