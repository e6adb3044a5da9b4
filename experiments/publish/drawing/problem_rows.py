"""A row for each problem, with a mark for the fastest kernel of each dialect and its share in a column beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_short_percent
from experiments.records import frames, workloads
from experiments.records.controls import Controls, explained

ROW_IN = 0.2  # inches of a problem's row


def problem_rows(
    title: str, subtitle: str, shapes: list[workloads.Shape], controls: Controls, caption: str
) -> tuple[Figure, Axes]:
    """A figure with a row for each problem, and room on the right for a column per dialect."""
    names = [problem_name(shape, controls) for shape in shapes]
    sheet = Sheet((style.WIDTH, 2.0 + ROW_IN * len(shapes)), title, subtitle, explained(caption, *names))
    ax = sheet.figure.subplots()
    sheet.place(0.4, 0.45, left=0.35, right=0.715)
    style.rows(ax, names)
    ax.tick_params(labelsize=7.5)
    maps.part(ax.axhline, [shape.group for shape in shapes], -0.5)
    return sheet.figure, ax


def mark_fastest(
    ax: Axes,
    shapes: list[workloads.Shape],
    rows: pd.DataFrame,
    share: Callable[[Any], float],
    suffix: Callable[[Any], str],
    width: float,
) -> None:
    """Mark the fastest row of each dialect, and the library's, in each problem's row, and write its share beside."""
    texts: dict[tuple[int, str], str] = {}
    for y, shape in enumerate(shapes):
        own = frames.at(rows, shape.sizes)
        for row in own.loc[own.groupby("dialect")["median_us"].idxmin()].itertuples():
            ax.plot(share(row), y, ls="", **style.look_of(row.dialect).overlaid(0.75), zorder=3)
            texts[y, row.dialect] = f"{format_short_percent(share(row))}%{suffix(row)}"
    ax.figure.canvas.draw()  # limits and places are final
    style.columns(ax, texts, width, size=7.5)


def problem_name(shape: workloads.Shape, controls: Controls) -> str:
    m, n, k = shape.sizes
    sizes = f"{m} × {n} × {k}"
    return f"{f'{shape.name} ({sizes})' if shape.name else sizes}{controls.mark(m=m, n=n, k=k)}"
