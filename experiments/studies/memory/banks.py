"""Banks of shared memory by lane: where each lane of a warp finds its word, the picture behind a bank conflict."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.sheet import Sheet
from gemm_ref import DIALECTS
from gemm_ref.ptx.count.banks import BANKS, WORD, turns
from gemm_ref.ptx.count.counts import WRITTEN
from gemm_ref.ptx.count.sectors import WARP

_NONE = -1
TURNS = maps.Scale.of(  # of a lane whose turn is the first, counted from 0, and so on
    ("1", "2 to 8", "9 to 16", "17 to 24", "25 to 32"),
    ("#2f78c4", "#f4984f", "#d9641a", "#a34708", "#6b2d04"),
    (1, 8, 16, 24),
    "served in wavefront:",
)


def banks(frame: pd.DataFrame, caption: str) -> Figure | None:
    """The rung of which an access conflicts most, a column a variant, a row per access; None where none conflicts.

    Of accesses of 4 bytes per lane, as written; the request with most conflicts of each.
    """
    own = frame[(frame["view"] == WRITTEN) & (frame["space"] == "shared") & (frame["lane_bytes"] == WORD)]
    own = own.assign(factor=own["wavefronts"] / own["ideal"])
    if own.empty or own["factor"].max() <= 1:
        return None
    worst = own.loc[own["factor"].idxmax()]
    own = own[(own["stage"] == worst["stage"]) & (own["dialect"] == worst["dialect"])]
    keys = ["kind", "array"]
    accesses = [key for key, part in own.groupby(keys, sort=False) if part["factor"].max() > 1]
    variants = [variant for stage, variant in style.rows_of(own)]
    return _figure(own, accesses, variants, caption)


def _figure(frame: pd.DataFrame, accesses: list[tuple[str, str]], variants: list[str], caption: str) -> Figure:
    first = frame.iloc[0]
    name = f"{style.label_of(first['stage'])}, {DIALECTS[first['dialect']].title}"
    subtitle = "across: the 32 lanes of a warp; down: the 32 banks of shared memory; the request with most conflicts"
    size, title = (style.WIDTH, 1.8 + 2.1 * len(accesses)), f"Which bank each lane asks: {name}"
    sheet = Sheet(size, title, subtitle, caption, scale=TURNS)
    axes = sheet.figure.subplots(len(accesses), len(variants), sharex=True, sharey=True, squeeze=False)
    for line, (kind, array) in zip(axes, accesses, strict=True):
        for ax, variant in zip(line, variants, strict=True):
            own = frame[(frame["variant"] == variant) & (frame["kind"] == kind) & (frame["array"] == array)]
            _panel(ax, own)
        line[0].set_ylabel(f"{'reads' if kind == 'load' else 'writes'} of {array or 'shared memory'}", size=9.5)
    for ax, variant in zip(axes[0], variants, strict=True):
        ax.annotate(variant, (0.5, 1.16), xycoords="axes fraction", ha="center", size=10, weight="bold")
    return sheet.place(0.42, 0.25, left=0.075, right=0.985, hspace=0.2, wspace=0.08)


def _panel(ax: Axes, own: pd.DataFrame) -> None:
    ax.set_xlim(-0.5, WARP - 0.5)
    ax.set_ylim(BANKS - 0.5, -0.5)
    ax.set_xticks((0, 8, 16, 24, 31))
    ax.set_yticks((0, 8, 16, 24, 31))
    style.bare(ax)
    ax.tick_params(labelsize=7.5)
    ax.set_facecolor(style.BAND)
    if own.empty:
        return
    row = own.loc[own["factor"].idxmax()]
    words = [_NONE if word == "-" else int(word) for word in row["words"].split()]
    asked = turns(WORD * np.array(words), np.array(words) != _NONE, WORD, pairs=True)
    lanes, banks = [lane for lane, _, _ in asked], [word % BANKS for _, word, _ in asked]
    colours = [TURNS.shade(wavefront) for _, _, wavefront in asked]
    ax.scatter(lanes, banks, c=colours, marker="s", s=15, linewidths=0, zorder=3)
    each = row["wavefronts"] / row["requests"]
    ax.set_title(f"line {row['line']}: {each:.3g} wavefront{'s' if each > 1 else ''}", size=8.5, weight="normal", pad=4)
