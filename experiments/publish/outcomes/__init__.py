"""What came of each experiment, in one to three sentences made from its rows; 'faster' and 'slower' are verdicts.

`outcome` is what the report shows beside an experiment's expectation. A part that was not measured is not spoken of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from experiments.publish import rounding
from experiments.publish.outcomes import cards, kernels, shapes, speeds, times
from experiments.records import frames, stats


def outcome(name: str, frame: pd.DataFrame) -> str:
    """The sentences on the experiment `name`, whose rows are `frame`; empty where the rows say nothing."""
    sentences = OF[name](frame) if name in OF and not frame.empty else ()
    return " ".join(f"{sentence}." for sentence in sentences)


def in_order(names: Iterable[str]) -> list[str]:
    """The names of experiments in the order in which the report shows them; what has no outcome comes last."""
    order = list(OF)
    return sorted(names, key=lambda name: order.index(name) if name in OF else len(OF))


def trust(found: Iterable[pd.DataFrame]) -> str:
    """How far the timed rows of several experiments can be trusted, by cuBLAS timed against itself."""
    of_each = [frames.controls(frame) for frame in found if "vs_cublas" in frame]
    same, count = (sum(of[place] for of in of_each) for place in (0, 1))
    if not count:
        return ""
    off = max(off for _, own, off in of_each if own)
    return (
        f"cuBLAS was timed against itself beside every problem: {same} of {count} such rows say {stats.SAME}, and "
        f"the one furthest from 1 is off by {100 * off:.2f}%."
    )


# In the order of the report: speed first, then what it costs, whether it is right, and why.
OF: Mapping[str, Callable[[pd.DataFrame], Iterable[str]]] = {
    "ladder": speeds.ladder,
    "tensor_cores": speeds.tensor_cores,
    "squares": speeds.squares,
    "shapes": shapes.shapes,
    "choice": shapes.choice,
    "cost": kernels.cost,
    "host": times.host,
    "correctness": kernels.correctness,
    "accuracy": kernels.accuracy,
    "rounding": rounding.outcome,
    "emulation": rounding.of_emulation,
    "roofs": kernels.roofs,
    "registers": kernels.registers,
    "memory": kernels.memory,
    "instructions": kernels.instructions,
    "modes": times.modes,
    "timers": times.timers,
    "energy": times.energy,
    "epilogues": times.epilogues,
    "scaling": cards.scaling,
}
