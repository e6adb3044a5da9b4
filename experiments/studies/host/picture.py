"""The plot of `host`: what a call of each rung's default variant costs the host, beside torch's own `a @ b`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.records import frames, store


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw host.csv of `folder`; nothing where nothing was timed."""
    frame = store.read(folder, "host").dropna(subset="median_us")
    if len(frame):
        yield "host", _figure(frame, store.caption(frame, folder))


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    torch = frame[frame["dialect"] == ""]
    libraries = list(dict.fromkeys(zip(torch["stage"], torch["math"], strict=True)))
    rungs = frames.defaults(frames.rungs(frame))
    names = style.rungs_of(rungs) if len(rungs) else []
    titles = [style.label_of(name) for name in names]
    titles += [f"{style.label_of(stage)}, {math}" for stage, math in libraries]
    sizes = sorted(set(frame["m"]))
    subtitle = (
        "until a call is in the GPU's queue, C allocated; lines from the 20th to the 80th percentile;\n"
        "grey verticals: torch's own calls, from their rows at the bottom"
    )
    sheet = Sheet((style.WIDTH, 1.8 + 0.34 * len(titles)), "What a call costs the host", subtitle, caption)
    axes = sheet.figure.subplots(1, len(sizes), sharey=True, sharex=True, squeeze=False)[0]
    for ax, size in zip(axes, sizes, strict=True):
        for row in rungs[rungs["m"] == size].itertuples():
            look = style.look_of(row.dialect)
            _point(ax, row, names.index(row.stage) + style.LANE * look.lane, look)
        for row in torch[torch["m"] == size].itertuples():
            place = len(names) + libraries.index((row.stage, row.math))
            _point(ax, row, place, style.look_of(row.dialect))
            ax.plot([row.median_us] * 2, [-0.5, place], color=style.BASELINE, lw=0.8, zorder=1)
        ax.set_title(f"M = N = K = {size}", size=9.5)
        ax.set(xscale="log", xlim=(5, 1.1 * frame["p80_us"].max()))  # room at the left for the names of gaps
        ax.xaxis.set_major_locator(ticker.FixedLocator([10, 20, 50, 100, 200]))
        style.plain(ax.xaxis)
        ax.set_xlabel("microseconds, log scale; less is better", size=9)
        style.rows(ax, titles, size=8)
        style.gaps(ax, names, rungs[rungs["m"] == size])
    style.legend(sheet.figure, rungs["dialect"])
    return sheet.fit()


def _point(ax: Axes, row, y: float, look: style.Look) -> None:
    ax.plot((row.p20_us, row.p80_us), (y, y), color=look.colour, lw=1.2)
    ax.plot(row.median_us, y, look.marker, color=look.colour, ms=4)
