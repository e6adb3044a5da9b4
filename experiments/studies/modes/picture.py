"""The plot of `modes`: the time of each kernel warm and from a graph, as a share of its time from a cold cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.records import controls, frames, store
from experiments.records.controls import explained
from experiments.records.rows import COLD, GRAPH, WARM

# A ring around a dot where both are the same.
_MARKS: dict[str, dict[str, Any]] = {WARM: {"ms": 7, "mfc": "none"}, GRAPH: {"ms": 3.5}}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw modes.csv of `folder`, fp32 and tensor cores; nothing without a cold time."""
    frame = store.read(folder, "modes")
    for name, own in (("modes", frames.timed(frame)), ("modes_tensor_cores", frames.on_tensor_cores(frame))):
        own, titles = controls.panels_by_size(frames.defaults(own))
        if (own["mode"] == COLD).any():
            caption = frames.with_modes(store.caption(own, folder), frames.maths_of(own))
            yield name, _figure(own, titles, explained(caption, *titles.values()))


def _figure(frame: pd.DataFrame, titles: dict[int, str], caption: str) -> Figure:
    """A panel for each size across, and for each math mode down, where there are several."""
    by_math = {math: frame[frame["math"] == math] for math in frames.maths_of(frame)}
    libraries = {math: dict.fromkeys(own[own["dialect"] == ""]["stage"]) for math, own in by_math.items()}
    rows = {math: [*style.rungs_of(own), *libraries[math]] for math, own in by_math.items()}
    heights = [len(of_one) for of_one in rows.values()]
    subtitle = "times as shares of the time from a cold cache; ring: warm cache; dot: replayed from a CUDA graph"
    where = "fp32" if list(rows) == ["fp32"] else "on tensor cores"
    size = (style.WIDTH, 1.8 + 0.34 * sum(heights))
    sheet = Sheet(size, f"What warm caches and graphs save, {where}", subtitle, caption)
    share = {"sharey": "row", "sharex": True}
    axes = sheet.figure.subplots(len(rows), len(titles), squeeze=False, height_ratios=heights, **share)
    for line, (math, own) in zip(axes, by_math.items(), strict=True):
        words = "" if math == "fp32" else f" {math}"
        for ax, edge in zip(line, titles, strict=True):
            _panel(ax, rows[math], own[own["m"] == edge], words)
    for ax, title in zip(axes[0], titles.values(), strict=True):
        ax.set_title(title, size=9.5)
    for ax in axes[-1]:
        ax.set_xlabel("of the cold time; less is better", size=9)
    style.legend(sheet.figure, frame["dialect"], "o")
    return sheet.fit()


def _panel(ax: Axes, rows: list[str], own: pd.DataFrame, words: str) -> None:
    cold = own[own["mode"] == COLD].set_index(["stage", "dialect"])["median_us"]
    for mode, mark in _MARKS.items():
        for row in own[own["mode"] == mode].itertuples():
            if (row.stage, row.dialect) not in cold.index:
                continue
            look = style.look_of(row.dialect)
            share = row.median_us / cold[row.stage, row.dialect]
            y = rows.index(row.stage) + style.LANE * look.lane
            ax.plot(share, y, "o", color=look.colour, mew=1, **mark)
    ax.axvline(1, color=style.BASELINE, lw=1)
    style.rows(ax, [style.label_of(row) + words for row in rows], size=8)
    style.gaps(ax, rows, own)
