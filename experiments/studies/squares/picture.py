"""Maps of the share of cuBLAS at square problems: in fp32 of every rung, on tensor cores of each dialect's best."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import best_rungs, maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.records import frames, store
from experiments.records.controls import CONTROL, Controls, explained


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw squares.csv of `folder`; of what was timed at fewer than two sizes nothing."""
    frame = store.read(folder, "squares")
    yield from _fp32(frames.timed(frame), folder)
    yield from _tensor_cores(frames.on_tensor_cores(frame), folder)


def _tensor_cores(frame: pd.DataFrame, folder: Path) -> Iterator[style.Picture]:
    rungs = frames.rungs(frames.defaults(frames.cubes(frame[frame["stage"] != CONTROL])))
    if rungs["m"].nunique() > 1:
        caption = store.caption(rungs, folder)
        yield "squares_tensor_cores", best_rungs.over_squares(rungs, Controls(frame), caption)


def _fp32(frame: pd.DataFrame, folder: Path) -> Iterator[style.Picture]:
    rungs = frames.rungs(frames.defaults(frames.cubes(frame[frame["stage"] != CONTROL])))
    if rungs["m"].nunique() > 1:
        controls = Controls(frame)
        names = {size: f"{size}{controls.mark(m=size, n=size, k=size)}" for size in sorted(set(rungs["m"]))}
        yield "squares_vs_cublas", _map(rungs, names, explained(store.caption(rungs, folder), *names.values()))


def _map(timed: pd.DataFrame, names: dict[int, str], caption: str) -> Figure:
    """The share of cuBLAS: a row per rung and dialect, a column per size."""
    sizes, rows = sorted(set(timed["m"])), style.kernels_of(timed)
    shares = np.full((len(rows), len(sizes)), np.nan)
    for row in timed.itertuples():
        shares[rows.index((row.stage, row.dialect)), sizes.index(row.m)] = 100 * row.vs_cublas
    subtitle = "at each M = N = K; the median of the ratios in a round; each dialect's default variant"
    size, title = (style.WIDTH, 2.2 + 0.24 * len(rows)), "Share of cuBLAS at every size, fp32"
    sheet = Sheet(size, title, subtitle, caption, scale=maps.SHARE)
    ax = sheet.figure.subplots()
    maps.kernel_map(ax, shares, rows, [names[size] for size in sizes])
    ax.tick_params(axis="x", rotation=90 if len(sizes) > 14 else 0)
    return sheet.place(0.42, 0.02 * size[1], left=0.215, right=0.985)
