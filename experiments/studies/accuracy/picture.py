"""The plot of `accuracy`: relative error over K, one line for all kernels that have the same errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.error_lines import NAMES, panel
from experiments.publish.drawing.sheet import Sheet
from experiments.records import frames, store


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw accuracy.csv of `folder`; nothing where there are no errors."""
    frame = frames.defaults(store.read(folder, "accuracy").dropna(subset="rel_error"))
    if frame["k"].nunique() > 1:
        yield "accuracy", _figure(frame, store.caption(frame, folder))


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    panels = [(math, frame[frame["math"] == math]) for math in frames.maths_of(frame)]
    first = frame.iloc[0]
    subtitle = (
        f"||C - oracle|| / ||oracle|| (Frobenius), log scale, C of {first.m:.0f} × {first.n:.0f}, normal inputs\n"
        "kernels with the same errors share a line, named at its right end; libraries alone are dashed"
    )
    size = (style.WIDTH, 1.2 + sum(heights := [2.6 if math == "fp32" else 1.5 for math, _ in panels]))
    sheet = Sheet(size, "How the error grows with K", subtitle, caption)
    axes = sheet.figure.subplots(len(panels), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    sheet.place(0.3, 0.5, left=0.085, right=1 - NAMES / style.WIDTH, hspace=0.42)
    for ax, (title, rows) in zip(axes, panels, strict=True):
        panel(ax, rows)
        ax.set_title(title, size=9.5)
        ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.0e}"))
        ax.yaxis.set_minor_locator(ticker.NullLocator())
        ax.tick_params(axis="y", labelsize=8)
    axes[-1].set_xlabel("K, log scale")
    return sheet.figure
