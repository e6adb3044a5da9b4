"""The plot of `modes`: the time of each kernel warm and from a graph, as a share of its time from a cold cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.plots.look import style
from experiments.records import environment, frames, store
from experiments.records.controls import CONTROL, Controls, explained
from experiments.records.rows import COLD, GRAPH, WARM

_MARKS: dict[str, dict[str, Any]] = {
    WARM: {"ms": 7, "mfc": "none"},
    GRAPH: {"ms": 3.5},
}  # a ring around a dot where both are the same


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw modes.csv of `folder` into `target` as PNG and SVG; nothing where nothing was timed cold."""
    frame = frames.defaults(frames.timed(store.read(folder, "modes")))
    controls, frame = Controls(frame), frame[frame["stage"] != CONTROL]
    if not (frame["mode"] == COLD).any():
        return []
    sizes = sorted(set(frame["m"]))
    titles = {size: f"M = N = K = {size}{controls.mark(m=size, n=size, k=size)}" for size in sizes}
    caption = explained(environment.caption(store.runs_of(frame, folder)), *titles.values())
    with style.themed():
        return style.save(_figure(frame, titles, caption), target, "modes")


def _figure(frame: pd.DataFrame, titles: dict[int, str], caption: str) -> Figure:
    rows = [*style.rungs_of(frame), *dict.fromkeys(frame[frame["dialect"] == ""]["stage"])]
    figure = Figure(figsize=(style.WIDTH, 1.8 + 0.34 * len(rows)))
    subtitle = "fp32 times as shares of the time from a cold cache; ring: warm cache; dot: replayed from a CUDA graph"
    top = style.heading(figure, "What warm caches and graphs save", subtitle)
    bottom = style.footer(figure, caption)
    axes = figure.subplots(1, len(titles), sharey=True, sharex=True, squeeze=False)[0]
    key = ["stage", "dialect"]
    for ax, (size, title) in zip(axes, titles.items(), strict=True):
        own = frame[frame["m"] == size]
        cold = own[own["mode"] == COLD].set_index(key)["median_us"]
        for mode, mark in _MARKS.items():
            for row in own[own["mode"] == mode].itertuples():
                if (row.stage, row.dialect) not in cold.index:
                    continue
                look = style.look_of(row.dialect)
                share = row.median_us / cold[row.stage, row.dialect]
                y = rows.index(row.stage) + style.LANE * look.lane
                ax.plot(share, y, "o", color=look.colour, mew=1, **mark)
        ax.axvline(1, color=style.BASELINE, lw=1)
        ax.set_title(title, size=9.5)
        ax.set_xlabel("of the cold time; less is better", size=9)
        style.bare(ax, "y")
        style.bands(ax, len(rows))
        style.gaps(ax, rows, own)
    axes[0].set_yticks(range(len(rows)), [style.label_of(row) for row in rows], size=8)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    style.legend(figure, frame["dialect"], "o")
    figure.tight_layout(rect=(0, bottom, 1, top))
    return figure
