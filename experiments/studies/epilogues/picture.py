"""The plot of `epilogues`: the time of each product with an epilogue over that of the plain product."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.records import frames, store


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw epilogues.csv of `folder`; nothing where no epilogue was timed."""
    frame = frames.with_epilogue(store.read(folder, "epilogues"))
    frame = frame[frame["how"] == "fused"]
    if len(frame):
        yield "epilogues", _figure(frame, store.caption(frame, folder))


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    first = frame.iloc[0]
    frame = frames.at(frame[frame["math"] == first["math"]], (first["m"], first["n"], first["k"]))
    names = list(dict.fromkeys(frame["form"]))
    size = f"{first.m} × {first.n} × {first.k}"
    subtitle = f"{first.math} at {size}, in one kernel; 1 is the contender's own plain product"
    sheet = Sheet((style.WIDTH, 1.8 + 0.42 * len(names)), "What an epilogue costs", subtitle, caption)
    ax = sheet.figure.subplots()
    for row in frame.itertuples():
        look = style.look_of(row.dialect)
        y = names.index(row.form) + style.LANE * look.lane
        ax.plot((row.over_plain_low, row.over_plain_high), (y, y), color=look.colour, lw=1.2)
        ax.plot(row.over_plain, y, look.marker, color=look.colour, ms=4)
    ax.axvline(1.0, color=style.BASELINE, lw=0.8, zorder=1)
    ax.set_xlabel("time over the plain product; less is better", size=9)
    style.rows(ax, names, size=8)
    style.legend(sheet.figure, frame["dialect"], library="cuBLAS")
    return sheet.fit()
