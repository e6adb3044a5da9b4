"""The generated table of docs/tensor_cores.md from `squares` and `shapes`: the fastest kernels by class of problems."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments.publish.answer import read_answer
from experiments.publish.wording import NOT_MEASURED
from experiments.records import frames, store

BLOCKS = ("tensor_sweeps",)
_PICTURES = {  # drawn from rows of tensor cores, where there are any
    "squares_tensor_cores": "Share of cuBLAS at every size",
    "shapes_classes": "Share of cuBLAS at real-world shapes, class by class",
    "modes_tensor_cores": "What warm caches and graphs save",
}


def block(name: str, published: Path) -> str:
    """Each dialect's fastest kernels in each compute type and class of problems."""
    both = pd.concat([frames.on_tensor_cores(store.read(published, name)) for name in ("squares", "shapes")])
    maths = frames.maths_of(frames.rungs(both))
    if not maths:
        return NOT_MEASURED
    said = (
        "Geometric mean and median of the fastest kernels' shares of cuBLAS, the worst with its size, and at how many "
        "problems cuBLAS is beaten and not reached; the classes are those of [findings.md](findings.md#what-to-take)."
    )
    caption = frames.with_modes(store.caption(both, published), maths)
    pictures = [
        f"![{title}](../experiments/results/{published.name}/{name}.png)"
        for name, title in _PICTURES.items()
        if (published / f"{name}.png").exists()
    ]
    return "\n\n".join(
        [read_answer(published).tabulate_classes(maths).to_markdown(True), f"{said} {caption}.", *pictures]
    )
