"""What a multiply-add takes in each fp32 rung and what it waits for, as its machine code says, beside what it took."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.plots.look import style
from experiments.records.compiled import error
from gemm_ref.sass.schedule import REASONS

COLOURS = MappingProxyType(
    {
        "issue": "#2f6f73",
        "registers": "#e9a03b",
        "shared": "#7b5ea7",
        "global": "#c8553d",
        "barrier": "#1d2630",
        "before": "#dde2e8",
    }
)
_WORDS = {
    "issue": "issued",
    "registers": "registers",
    "shared": "shared memory",
    "global": "global memory",
    "barrier": "barrier",
    "before": "instructions before",
}


def waits(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per variant, a bar per dialect. frame: of `compiled.beside_measured`."""
    rows = style.rows_of(frame)
    figure = Figure(figsize=(style.WIDTH, 2.3 + 0.46 * len(rows)))
    inch = 1 / figure.get_figheight()
    off = error(frame)
    worst = frame.loc[off.idxmax()]
    subtitle = (
        f"clocks of a scheduler for each, worked out from the machine code; marks: measured at {worst.m:.0f}³\n"
        f"they differ by {100 * off.median():.1f}% in the median, by {100 * off.max():.0f}% at most "
        f"({style.kernel_name(worst.stage, worst.variant, worst.dialect)})"
    )
    top = style.heading(figure, "What a multiply-add takes, and what it waits for", subtitle)
    handles = [Patch(color=colour, label=_WORDS[part], lw=0) for part, colour in COLOURS.items()]
    place = {"loc": "upper left", "bbox_to_anchor": (0.005, top + 0.06 * inch), "columnspacing": 1.6}
    figure.legend(handles=handles, ncols=len(handles), frameon=False, fontsize=8, handlelength=1, **place)
    bottom = style.footer(figure, caption)
    ax = figure.subplots()
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_yticks(range(len(rows)), [style.label_of(*row) for row in rows])
    style.bands(ax, len(rows))
    style.bare(ax, "y")
    for row in frame.itertuples():
        look = style.look_of(row.dialect)
        y, left = rows.index((row.stage, row.variant)) + style.LANE * look.lane, 0.0
        waited = {reason: getattr(row, f"wait_{reason}") for reason in REASONS}
        for part, clocks in {"issue": row.clocks - sum(waited.values()), **waited}.items():
            width = clocks / row.ffma / row.evenness
            ax.barh(y, width, left=left, height=0.2, color=COLOURS[part], lw=0)
            left += width
        ax.plot(row.measured_clocks, y, look.marker, color=look.colour, ms=5, mec="white", mew=0.6, zorder=4)
    ax.axvline(1, color=style.BASELINE, lw=1, zorder=0)
    ax.set_xlim(0, 1.05 * np.nanmax([frame["measured_clocks"].max(), frame["predicted_clocks"].max()]))
    ax.set_xlabel("clocks of a scheduler for each multiply-add; 1 is the peak")
    style.legend(figure, frame["dialect"])
    figure.subplots_adjust(left=0.165, right=0.98, top=top - 0.3 * inch, bottom=bottom + 0.45 * inch)
    return figure
