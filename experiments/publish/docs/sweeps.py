"""The generated table of docs/tensor_cores.md from `squares` and `shapes`: the best rungs over cubes and off them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd

from experiments.publish.answer import Answer
from experiments.publish.numbers import format_percent
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED
from experiments.records import frames, store
from experiments.records.controls import Controls
from gemm_ref import DIALECTS

BLOCKS = ("tensor_sweeps",)
_PICTURES = {  # drawn from rows of tensor cores, where there are any
    "squares_tensor_cores": "Share of cuBLAS at every size",
    "shapes_tensor_cores": "The best rung at real-world shapes",
    "modes_tensor_cores": "What warm caches and graphs save",
}


def block(name: str, published: Path) -> str:
    """Each dialect's best rung in each math mode: its least share of cuBLAS over cubes, its mean and least off them."""
    squares, shapes = (frames.on_tensor_cores(store.read(published, name)) for name in ("squares", "shapes"))
    both, off_cubes = pd.concat([squares, shapes]), Answer(published).shapes
    lines = []
    squares = frames.leaders(frames.defaults(Controls(squares).passed(squares)))
    for math, dialect in itertools.product(frames.maths_of(frames.rungs(both)), DIALECTS):
        cells = ["–"] * 5
        own = squares[(squares["math"] == math) & (squares["dialect"] == dialect)]
        if len(own):
            least = own.loc[own["vs_cublas"].idxmin()]
            cells[:2] = format_percent(least["vs_cublas"]), str(least["m"])
        if dialect in (of := off_cubes[math].worst if math in off_cubes else {}):
            cells[2:] = format_percent(off_cubes[math].mean[dialect], 0), of[dialect].percent, of[dialect].size
        lines.append([math, DIALECTS[dialect].title, *cells])
    if not lines:
        return NOT_MEASURED
    head = ["mode", "dialect", "cubes: at worst", "at", "shapes: on average", "at worst", "at"]
    counts = squares["m"].nunique(), max((each.count for math, each in off_cubes.items() if math != "fp32"), default=0)
    said = (
        f"% of cuBLAS of each dialect's best rung, at {counts[0]} sizes of cubes and at {counts[1]} shapes that are no "
        "cubes (on average: geometric mean)."
    )
    caption = frames.with_modes(store.caption(both, published), frames.maths_of(both))
    pictures = [
        f"![{title}](../experiments/results/{published.name}/{name}.png)"
        for name, title in _PICTURES.items()
        if (published / f"{name}.png").exists()
    ]
    return "\n\n".join([Table.of(head, lines, 2).to_markdown(), f"{said} {caption}.", *pictures])
