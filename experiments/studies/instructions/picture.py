"""Plots of `instructions`: what main loops are made of, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_percent, format_short_percent
from experiments.records import environment, store
from experiments.records.compiled import MAIN_ARCHITECTURE, at_one_size, compare_with_measured, defaults, error
from experiments.studies.instructions.row import REASONS
from gemm_ref import DIALECTS
from gemm_ref.sass.mix import GROUPS
from gemm_ref.sass.occupancy import ARCHITECTURES

COLOURS = {
    "multiply-add": "#2f6f73",
    "shared read": "#e9a03b",
    "shared write": "#f3cf8e",
    "global": "#7b5ea7",
    "integer": "#9aa5b1",
    "control": "#1d2630",
    "spill": style.FAILED,
    "other": "#dde2e8",
}
_PARTS = {  # of a clock: in words, and in a colour
    "issue": ("issued", "#2f6f73"),
    "registers": ("registers", "#e9a03b"),
    "shared": ("shared memory", "#7b5ea7"),
    "global": ("global memory", "#c8553d"),
    "barrier": ("barrier", "#1d2630"),
    "before": ("instructions before", "#dde2e8"),
}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw instructions.csv of `folder`; nothing where nothing was compiled.

    Of several sizes the one with the most kernels is drawn, of a rung's variants each dialect's default, and of several
    architectures sm_90a, if it is there.
    """
    frame = defaults(at_one_size(store.read(folder, "instructions")))
    if frame.empty:
        return
    archs = [arch for arch in ARCHITECTURES if arch in set(frame["arch"])]
    one = frame[frame["arch"] == (MAIN_ARCHITECTURE if MAIN_ARCHITECTURE in archs else archs[0])]
    caption = environment.compilers_caption(store.runs_of(frame, folder))
    yield "instructions_mix", _mix(one, caption)
    both, runs = compare_with_measured(folder)
    if len(both):
        yield "instructions_waits", _waits(both, environment.caption(runs))


def _mix(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per rung, a bar per dialect: the parts of one trip through the main loop."""
    rungs = style.rungs_of(frame)
    subtitle = f"shares of one trip's instructions, {frame.iloc[0].arch}, each dialect's default variant"
    dialects = [dialect for dialect in DIALECTS if dialect in set(frame["dialect"])]
    texts = {(y, dialect): style.absent(rung, dialect) for y, rung in enumerate(rungs) for dialect in dialects}
    size, title = (style.WIDTH, 2.3 + 0.42 * len(rungs)), "What the main loop of each rung is made of"
    sheet = Sheet(size, title, subtitle, style.with_absent(caption, texts.values()))
    sheet.name_colours(COLOURS)
    ax = sheet.figure.subplots()
    style.rows(ax, [style.label_of(rung) for rung in rungs])
    for row in frame.itertuples():
        y, left = rungs.index(row.stage) + style.LANE * style.look_of(row.dialect).lane, 0.0
        for group, kinds in GROUPS.items():
            share = 100 * sum(getattr(row, kind) for kind in kinds) / row.instructions
            ax.barh(y, share, left=left, height=0.2, color=COLOURS[group], lw=0)
            left += share
        texts[rungs.index(row.stage), row.dialect] = f"{format_short_percent(100 * row.ffma_share)}%"
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of the instructions of one trip")
    sheet.place(0.72, 0.45, left=0.165, right=0.785)
    style.columns(ax, texts, 0.6, "multiply-adds")
    return sheet.figure


def _waits(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per variant, a bar per dialect. frame: of `compiled.compare_with_measured`."""
    rows = style.rows_of(frame)
    off = error(frame)
    worst = frame.loc[off.idxmax()]
    subtitle = (
        f"clocks of a scheduler for each, worked out from the machine code; marks: measured at {worst.m:.0f}³\n"
        f"they differ by {format_percent(off.median(), 1)} in the median, by {format_percent(off.max(), 0)} at most "
        f"({style.kernel_name(worst.stage, worst.variant, worst.dialect)})"
    )
    size, title = (style.WIDTH, 2.3 + 0.46 * len(rows)), "What a multiply-add takes, and what it waits for"
    sheet = Sheet(size, title, subtitle, caption)
    sheet.name_colours(dict(_PARTS.values()))
    ax = sheet.figure.subplots()
    style.rows(ax, [style.label_of(*row) for row in rows])
    for row in frame.itertuples():
        look = style.look_of(row.dialect)
        y, left = rows.index((row.stage, row.variant)) + style.LANE * look.lane, 0.0
        waited = {reason: getattr(row, f"wait_{reason}") for reason in REASONS}
        for part, clocks in {"issue": row.clocks - sum(waited.values()), **waited}.items():
            width = clocks / row.ffma / row.evenness
            ax.barh(y, width, left=left, height=0.2, color=_PARTS[part][1], lw=0)
            left += width
        ax.plot(row.measured_clocks, y, look.marker, color=look.colour, ms=5, mec="white", mew=0.6, zorder=4)
    ax.axvline(1, color=style.BASELINE, lw=1, zorder=0)
    ax.set_xlim(0, 1.05 * np.nanmax([frame["measured_clocks"].max(), frame["predicted_clocks"].max()]))
    ax.set_xlabel("clocks of a scheduler for each multiply-add; 1 is the peak")
    style.legend(sheet.figure, frame["dialect"])
    return sheet.place(0.3, 0.45, left=0.165, right=0.98)
