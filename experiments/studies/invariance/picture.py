"""The plot of `invariance`: the share of cuBLAS over the number of rows, a panel per layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.records import frames, store
from experiments.records.contenders import BATCH_INVARIANT
from gemm_ref.launch import cdiv

LINES = {True: "-", False: ":"}  # with batch_invariant=True, and without


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw invariance.csv of `folder`; nothing where no rung was timed."""
    frame = store.read(folder, "invariance")
    maths = frames.maths_of(frames.rungs(frame.dropna(subset="vs_cublas")))
    if maths:
        rows = frames.rungs(frames.timed(frame, maths[-1]))
        yield "invariance", _figure(rows, maths[-1], store.caption(rows, folder))


def _figure(rows: pd.DataFrame, math: str, caption: str) -> Figure:
    layers = list(dict.fromkeys(zip(rows["n"], rows["k"], strict=True)))
    last = rows.loc[rows["variant"] == BATCH_INVARIANT, "stage"].max()
    subtitle = (
        f"{math}, the median of the ratios in a round; solid: {style.label_of(last)} with batch_invariant=True;\n"
        "dotted: without; crosses: a rung with one tile, whose bits are always the same"
    )
    lines = cdiv(len(layers), 2)
    sheet = Sheet((style.WIDTH, 1.6 + 2.4 * lines), "What equal bits for any number of rows cost", subtitle, caption)
    axes = list(sheet.figure.subplots(lines, 2, sharex=True, sharey=True, squeeze=False).flat)
    for ax, (n, k) in zip(axes, layers, strict=False):
        _panel(ax, rows[(rows["n"] == n) & (rows["k"] == k)], last)
        ax.set_title(f"N = {n}, K = {k}", size=9.5)
    for ax in axes[len(layers) :]:
        ax.set_visible(False)
    axes[0].set_xscale("log", base=2)
    axes[0].xaxis.set_major_locator(ticker.FixedLocator([1, 16, 128, 1024, 4096]))
    style.plain(axes[0].xaxis)
    axes[0].set_ylim(0, max(110, 105 * rows["vs_cublas"].max()))
    for ax in axes[: len(layers)][-2:]:
        ax.set_xlabel("M, log scale", size=9)
        ax.tick_params(labelbottom=True)
    for ax in axes[::2]:
        ax.set_ylabel("% of cuBLAS' speed", size=9)
    style.legend(sheet.figure, rows["dialect"], overlaid=True)
    return sheet.fit()


def _panel(ax: Axes, rows: pd.DataFrame, last: str) -> None:
    ax.axhline(100, color=style.BASELINE, lw=1.0, zorder=1)
    for (dialect, stage, variant), own in rows.groupby(["dialect", "stage", "variant"]):
        look, points = style.look_of(dialect), own.sort_values("m")
        shares = 100 * points["vs_cublas"]
        if stage != last:
            ax.plot(points["m"], shares, "x", color=look.colour, ms=4, mew=0.9, ls="none")
            continue
        asked = variant == BATCH_INVARIANT
        mark = look.overlaid(0.7) if asked else {"color": look.colour}
        ax.plot(points["m"], shares, ls=LINES[asked], lw=1.2, **mark)
