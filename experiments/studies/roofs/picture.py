"""Plots of the ceilings: what was reached of what the vendor says, and with the ladder's times the roofline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed, format_number
from experiments.records import environment, store
from experiments.records.ceilings import TFLOPS, TITLES
from experiments.records.rows import ERROR, FAIL
from experiments.studies.roofs.roofline import problem_of, requested_intensity, roofline, rungs_at_size

_ROW_INCHES = 0.34
COLOURS = {"arithmetic": "#3e4c59", "memory": "#9aa5b1"}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw roofs.csv of `folder`, and with ladder.csv and memory.csv the roofline; nothing without."""
    frame = store.read(folder, "roofs")
    measured = frame[frame["value"].notna()].set_index("stage")
    if frame.empty:
        return
    yield "roofs", _shares(frame, store.caption(frame, folder))
    ladder = rungs_at_size(store.read(folder, "ladder"))
    if len(ladder) and {"fma", "dram_copy"} <= set(measured.index):
        runs = store.runs_of(pd.concat([frame[["run"]], ladder[["run"]]]), folder)
        asked = requested_intensity(folder, problem_of(ladder))
        if figure := roofline(measured, ladder, asked, environment.caption(runs)):
            yield "roofline", figure


def _shares(frame: pd.DataFrame, caption: str) -> Figure:
    rows = [row for row in frame.itertuples() if not pd.isna(row.value) or row.status in (FAIL, ERROR)]
    subtitle = "median and its 20th to 80th percentile, as a share of the datasheet; | is what the highest clock allows"
    sheet = Sheet((style.WIDTH, 1.75 + _ROW_INCHES * max(1, len(rows))), "What the device reaches", subtitle, caption)
    ax = sheet.figure.subplots()
    sheet.place(0.1, 0.42, left=0.185, right=0.59)
    for y, row in enumerate(rows):
        _share(ax, y, row)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [TITLES[row.stage] for row in rows])
    ax.set_xlim(0, max(104, ax.get_xlim()[1]))
    ax.axvline(100, color=style.BASELINE, lw=1.2, zorder=1)
    ax.set_xlabel("% of the datasheet; where it has no figure, of what the clock allows", size=9)
    style.bare(ax, "y")
    handles = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items()]
    sheet.figure.legend(handles=handles, ncols=len(handles), **style.AT_THE_TOP)
    return sheet.figure


def _share(ax: Axes, y: int, row) -> None:
    """One ceiling: a bar where there is something to compare with, and the figures on the right."""
    beside = {"xycoords": ("axes fraction", "data"), "va": "center", "size": 8}
    if pd.isna(row.value):
        ax.annotate(f"{row.status}: {row.detail[:60]}", (1.02, y), color=style.FAILED, **beside)
        return
    full = row.by_clock if pd.isna(row.datasheet) else row.datasheet
    clock = "" if row.unit != TFLOPS or pd.isna(row.sm_mhz) else f" at {format_fixed(row.sm_mhz / 1000, 2)} GHz"
    texts = [f"{format_number(row.value)} {row.unit}{clock}"]
    texts += [f"datasheet {format_number(row.datasheet)}"] if not pd.isna(row.datasheet) else []
    texts += [f"by clock {format_number(row.by_clock)}"] if not pd.isna(row.by_clock) else []
    ax.annotate(" · ".join(texts), (1.02, y), color=style.INK, **beside)
    if pd.isna(full):
        ax.annotate("no figure to compare with", (0.01, y), color=style.MUTED, **beside)
        return
    colour = COLOURS["arithmetic" if row.unit == TFLOPS else "memory"]
    ax.barh(y, 100 * row.value / full, height=0.62, lw=0, color=colour)
    ax.plot([100 * row.low / full, 100 * row.high / full], [y, y], color=style.INK, lw=3, solid_capstyle="butt")
    if not pd.isna(row.by_clock) and full != row.by_clock:
        ax.plot(100 * row.by_clock / full, y, "|", color=style.INK, ms=11, mew=1.3)
