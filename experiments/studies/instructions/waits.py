"""What a multiply-add takes in each fp32 rung and what it waits for, as its machine code says, beside what it took."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_percent
from experiments.records.compiled import error
from experiments.studies.instructions.row import REASONS

_PARTS = {  # of a clock: in words, and in a colour
    "issue": ("issued", "#2f6f73"),
    "registers": ("registers", "#e9a03b"),
    "shared": ("shared memory", "#7b5ea7"),
    "global": ("global memory", "#c8553d"),
    "barrier": ("barrier", "#1d2630"),
    "before": ("instructions before", "#dde2e8"),
}


def waits(frame: pd.DataFrame, caption: str) -> Figure:
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
