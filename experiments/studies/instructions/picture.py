"""Plots of `instructions`: what main loops are made of, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_short_percent
from experiments.records import environment, store
from experiments.records.compiled import MAIN_ARCHITECTURE, at_one_size, compare_with_measured, defaults
from experiments.studies.instructions.waits import waits
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
        yield "instructions_waits", waits(both, environment.caption(runs))


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
