"""Which picture goes with which experiment: the one table that the runner, the command `plot` and the report use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments.plots import (
    accuracy,
    correctness,
    inputs,
    instructions,
    ladder,
    memory,
    modes,
    roofs,
    shapes,
    squares,
    tensor_cores,
)

Draw = Callable[[Path, Path], list[Path]]  # draws the CSV in one folder into another; the files that it wrote

PICTURES: dict[str, Draw] = {
    "correctness": correctness.draw,
    "ladder": ladder.draw,
    "squares": squares.draw,
    "shapes": shapes.draw,
    "roofs": roofs.draw,
    "modes": modes.draw,
    "tensor_cores": tensor_cores.draw,
    "inputs": inputs.draw,
    "accuracy": accuracy.draw,
    "memory": memory.draw,
    "instructions": instructions.draw,
}
