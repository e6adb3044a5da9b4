"""Maps of the share of cuBLAS at square problems: in fp32 of every rung, on tensor cores of each dialect's best."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_short_percent
from experiments.records import frames, store
from experiments.records.controls import CONTROL, Controls, explained
from gemm_ref import DIALECTS

_MANY = 14  # columns, whose names are written upright


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw squares.csv of `folder`; of what was timed at fewer than two sizes nothing."""
    frame = store.read(folder, "squares")
    for name, own, picture in (
        ("squares_vs_cublas", frames.timed(frame), _map_rungs),
        ("squares_tensor_cores", frames.on_tensor_cores(frame), _map_best),
    ):
        rungs = frames.rungs(frames.defaults(frames.cubes(own[own["stage"] != CONTROL])))
        if rungs["m"].nunique() > 1:
            controls = Controls(own)
            names = {size: f"{size}{controls.mark(m=size, n=size, k=size)}" for size in sorted(set(rungs["m"]))}
            yield name, picture(rungs, names, explained(store.caption(rungs, folder), *names.values()))


def _map_rungs(timed: pd.DataFrame, names: dict[int, str], caption: str) -> Figure:
    """The share of cuBLAS: a row per rung and dialect, a column per size."""
    sizes, rows = list(names), style.kernels_of(timed)
    shares = np.full((len(rows), len(sizes)), np.nan)
    for row in timed.itertuples():
        shares[rows.index((row.stage, row.dialect)), sizes.index(row.m)] = 100 * row.vs_cublas
    subtitle = "at each M = N = K; the median of the ratios in a round; each dialect's default variant"
    size, title = (style.WIDTH, 2.2 + 0.24 * len(rows)), "Share of cuBLAS at every size, fp32"
    sheet = Sheet(size, title, subtitle, caption, scale=maps.SHARE)
    ax = sheet.figure.subplots()
    maps.kernel_map(ax, shares, rows, list(names.values()))
    ax.tick_params(axis="x", rotation=90 if len(sizes) > _MANY else 0)
    return sheet.place(0.42, 0.02 * size[1], left=0.215, right=0.985)


def _map_best(timed: pd.DataFrame, names: dict[int, str], caption: str) -> Figure:
    """The share of cuBLAS that each dialect's best rung has: a row per math mode and dialect, a column per size."""
    sizes, best = list(names), frames.leaders(timed)
    maths = frames.maths_of(timed)
    rungs = {math: sorted(set(timed.loc[timed["math"] == math, "stage"])) for math in maths}
    there = set(zip(best["math"], best["dialect"], strict=True))
    who = [(math, dialect) for math in maths for dialect in DIALECTS if (math, dialect) in there]
    shares = np.full((len(who), len(sizes)), np.nan)
    texts = np.full(shares.shape, "", dtype=object)
    for row in best.itertuples():
        place = who.index((row.math, row.dialect)), sizes.index(row.m)
        shares[place] = 100 * row.vs_cublas
        rung = "" if len(rungs[row.math]) == 1 else f"{row.stage[:3]}\n"  # a row's only rung is in its name
        texts[place] = rung + format_short_percent(shares[place])
    caption = frames.with_modes(caption, maths)
    size, title = (style.WIDTH, 2.1 + 0.34 * len(who)), "Share of cuBLAS at every size, on tensor cores"
    subtitle = "each dialect's best rung: the median of the ratios in a round"
    sheet = Sheet(size, title, subtitle, caption, scale=maps.SHARE)
    ax = sheet.figure.subplots()
    titles = {math: f"{math} {own[0][:3]}" if len(own) == 1 else math for math, own in rungs.items()}
    rows = [f"{titles[math]} {DIALECTS[dialect].title}" for math, dialect in who]
    maps.share_map(ax, shares, rows, list(names.values()), texts)
    ax.tick_params(axis="x", rotation=90 if len(sizes) > _MANY else 0)
    maps.part(ax.axhline, [math for math, _ in who])
    return sheet.place(0.42, 0.02 * size[1], left=0.16, right=0.985)
