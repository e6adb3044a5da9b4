"""Sentences about the result of `decode`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_means, format_percent, format_size
from experiments.publish.wording import DIALECT_TITLES, dialect_title
from experiments.records import frames
from experiments.records.rows import COLD, LAYERS


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence per compute type: the dialects' shares of cuBLAS launched alone and in a graph, and the worst."""
    rows = frames.rungs(frames.on_tensor_cores(frame))
    for math in frames.maths_of(rows):
        alone, layers = (rows[(rows["math"] == math) & (rows["mode"] == mode)] for mode in (COLD, LAYERS))
        if len(alone) and len(layers):
            worst, count = alone.loc[alone["vs_cublas"].idxmin()], len(alone[list(frames.SIZES)].drop_duplicates())
            yield (
                f"In {math} {DIALECT_TITLES} reach {format_means(alone, 'vs_cublas')} of cuBLAS' speed launched alone "
                f"with a cold cache (geometric mean of {count} products; at worst "
                f"{format_percent(worst['vs_cublas'])}, {dialect_title(worst['dialect'])} at {format_size(worst)}), "
                f"and {format_means(layers, 'vs_cublas')} in a CUDA graph of 20 layers"
            )
