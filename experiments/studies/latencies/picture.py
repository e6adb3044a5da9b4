"""The picture of `latencies`: clocks by instruction, alone in a chain and beside others of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_number
from experiments.records import store

# table -> title of its panel; the others are in the CSV alone
PANELS = {
    "latency": "until the result is read",
    "interval": "of a scheduler",
    "request": "of a multiprocessor",
}
_ROW_INCHES = 0.19


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw latencies.csv of `folder`; nothing without."""
    frame = store.read(folder, "latencies")
    frame = frame[frame["value"].notna()]
    parts = {table: frame[frame["stage"].str.startswith(f"{table}.")] for table in PANELS}
    if not all(map(len, parts.values())):
        return
    rows = max(map(len, parts.values()))
    size = (style.WIDTH, 1.6 + _ROW_INCHES * rows)
    subtitle = (
        "clocks until an instruction's result is read, and those of a scheduler or multiprocessor for each of many"
    )
    sheet = Sheet(size, "What instructions take", subtitle, store.caption(frame, folder))
    for ax, (table, own) in zip(sheet.figure.subplots(1, len(PANELS)), parts.items(), strict=True):
        _panel(ax, own, PANELS[table], rows)
    sheet.place(0.36, 0.42, left=0.15, right=0.96, wspace=0.9)
    yield "latencies", sheet.figure


def _panel(ax: Axes, own: pd.DataFrame, title: str, rows: int) -> None:
    names = own["stage"].str.split(".", n=1).str[1]
    places = range(len(own))
    ax.barh(places, own["value"], height=0.62, lw=0, color="#9aa5b1")
    ax.hlines(places, own["low"], own["high"], color=style.INK, lw=2)
    for place, value in zip(places, own["value"], strict=True):
        ax.annotate(f" {format_number(value)}", (value, place), va="center", size=6.5, color=style.INK)
    ax.set_xscale("log")
    ax.set_yticks(places, list(names), size=6.5)
    ax.set_ylim(rows - 0.4, -0.6)
    ax.set_title(title, size=9)
    style.bare(ax, "y")
