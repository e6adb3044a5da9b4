"""The plot of `timers`: what other ways of taking a time say, beside the time from a cold cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_short_percent
from experiments.records import controls, frames, store
from experiments.records.controls import explained
from experiments.records.rows import COLD, DO_BENCH, EVENTS, GRAPH, HOST, PROFILER, WARM, WAYS

_WORDS = {
    COLD: "cold: our own",
    WARM: "warm: operands in L2",
    GRAPH: "graph: no launch, operands in L2",
    PROFILER: "profiler: no gaps",
    DO_BENCH: "do_bench: a memset before",
    EVENTS: "events: the launch too",
    HOST: "host clock: all of it",
}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw timers.csv of `folder`; nothing without a cold time."""
    frame, titles = controls.panels_by_size(store.read(folder, "timers").dropna(subset="median_us"))
    if (frame["mode"] == COLD).any():
        caption = explained(store.caption(frame, folder), *titles.values())
        yield "timers", _figure(frame, titles, caption)


def _figure(frame: pd.DataFrame, titles: dict[int, str], caption: str) -> Figure:
    """A panel for each size across and each math mode down; times beside cuBLAS' cold one."""
    maths = frames.maths_of(frame)
    subtitle = "times by cuBLAS' cold time; the number: the best rung's share of cuBLAS by the same timer"
    size = (style.WIDTH, 1.9 + 2.3 * len(maths))
    sheet = Sheet(size, "One product, seven stopwatches", subtitle, caption)
    axes = sheet.figure.subplots(len(maths), len(titles), sharey=True, squeeze=False)
    for line, math in zip(axes, maths, strict=True):
        for ax, edge in zip(line, titles, strict=True):
            _panel(ax, frame[(frame["math"] == math) & (frame["m"] == edge)])
        line[0].set_ylabel(math, rotation=0, ha="right", fontweight="bold")
    for ax, title in zip(axes[0], titles.values(), strict=True):
        ax.set_title(title, size=9.5)
    style.legend(sheet.figure, frame["dialect"], "o", library="cuBLAS")
    return sheet.fit()


def _panel(ax: Axes, own: pd.DataFrame) -> None:
    style.rows(ax, list(_WORDS.values()), size=8)
    ax.axvline(1, color=style.BASELINE, lw=1)
    reference = own[own["dialect"] == ""].set_index("mode")["median_us"]
    if COLD not in reference:
        return
    for row in own.itertuples():
        look = style.look_of(row.dialect)
        ax.plot(row.median_us / reference[COLD], WAYS.index(row.mode), "o", color=look.colour, ms=4.5, alpha=0.9)
    ax.set_xlim(0, 1.3 * own["median_us"].max() / reference[COLD])  # the numbers are at the right
    best = frames.rungs(own).groupby("mode")["vs_cublas"].max()
    for way, share in best.dropna().items():
        style.note(ax, WAYS.index(way), f"{format_short_percent(100 * share)}%", right=True)
