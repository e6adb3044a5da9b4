"""The pictures of `registers`: clocks by the registers that a loop names, and of rungs whose sums may lie anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed
from experiments.records import store
from experiments.records.controls import CONTROL, Controls, explained

SCALE = maps.Scale.of(("1", "2", "3"), ("#ffffff", "#fdbf87", "#e37120"), (1.5, 2.5))
COLOURS = {"as it is": "#6b7280", "freed": "#2f78c4", "back and forth": "#e37120", "both": "#1f2933"}
_MARKERS = dict(zip(COLOURS, "osvD", strict=True))
_LINES = {"alternating": ("#2f78c4", "as many odd"), "resting": ("#a34708", "three times as many without reads")}
_LANE = 0.19


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw registers.csv of `folder`; of loops and of rungs those pictures that have clocks."""
    frame = store.read(folder, "registers").dropna(subset="clocks")
    loops, rungs = frame[frame["m"] == 0], frame[frame["m"] > 0]
    if len(loops):
        yield "registers_banks", _banks(loops[loops["warps"] == 1], store.caption(loops, folder))
    if len(rungs):
        largest = rungs[rungs["m"] == rungs["m"].max()]
        yield "registers_rungs", _rungs(largest, store.caption(largest, folder))


def _banks(frame: pd.DataFrame, caption: str) -> Figure:
    subtitle = "clocks of a scheduler for one instruction; registers were chosen in the machine code"
    sheet = Sheet((style.WIDTH, 6.4), "What an FFMA waits for", subtitle, caption)
    sheet.place(0.32, 0.384, left=0.05, right=0.98, hspace=0.5, wspace=0.72)
    figure, grid = sheet.figure, sheet.figure.add_gridspec(2, 2, width_ratios=(3, 4))
    ffma = frame[frame["stage"] == "FFMA"]
    for place, c in enumerate(("0", "1")):
        _residues(figure.add_subplot(grid[place, 0]), ffma[ffma["form"] == "residues"], c)
    _neighbours(figure.add_subplot(grid[0, 1]), ffma)
    _draw_reuse(figure.add_subplot(grid[1, 1]), ffma[ffma["form"] == "reuse"])
    return figure


def _residues(ax: Axes, frame: pd.DataFrame, c: str) -> None:
    """Clocks by the residues of a and b modulo 8, for one of c."""
    named = frame["variant"].str.split(" ", expand=True)
    own = frame[named[2] == c] if len(frame) else frame
    if own.empty:
        ax.set_axis_off()
        return
    table = own.assign(a=named[0], b=named[1]).pivot(index="a", columns="b", values="clocks")
    texts = np.vectorize("{:.1f}".format)(table)
    maps.draw(ax, table.to_numpy(), texts, list(table.index), list(table.columns), SCALE, size=7)
    ax.set_title(f"a (down) and b (across) modulo 8, c = {c} modulo 8", size=9)
    style.bare(ax)


def _neighbours(ax: Axes, frame: pd.DataFrame) -> None:
    """How far apart requests of one bank are evened out."""
    there = frame[frame["form"].isin(_LINES)]
    run = there["variant"].astype(int)
    for form, (colour, label) in _LINES.items():
        own = there[there["form"] == form]
        ax.plot(run[own.index], own["clocks"], "o", color=colour, ms=5, label=f"then {label}")
        ax.plot(run[own.index], own["predicted"], "-", color=colour, lw=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(runs := sorted(set(run)), runs)
    ax.set_xlabel("FFMA with three even registers, one after the other", size=9)
    ax.set_ylim(0.9, 3.2)
    ax.set_title("neighbours share the ports; line: predicted", size=9)
    ax.legend(fontsize=7.5, frameon=False, loc="lower right", bbox_to_anchor=(1, 0.3))
    style.bare(ax, "x")


def _draw_reuse(ax: Axes, own: pd.DataFrame) -> None:
    """What `.reuse` saves, a row for each loop."""
    rows = range(len(own))
    ax.barh(rows, own["clocks"], height=0.62, lw=0, color="#9aa5b1")
    ax.plot(own["predicted"], rows, "|", color=style.INK, ms=9, mew=1.3)
    ax.set_yticks(rows, list(own["variant"]), size=7)
    ax.set_ylim(len(own) - 0.4, -0.6)
    ax.set_xlim(0, 3.2)
    ax.set_title("kept by .reuse; |: predicted", size=9)
    style.bare(ax, "y")


def _rungs(frame: pd.DataFrame, caption: str) -> Figure:
    rungs = frame[frame["form"] != ""].sort_values(["stage", "variant", "warps"], kind="stable")
    rows = list(dict.fromkeys(zip(rungs["stage"], rungs["variant"], rungs["warps"], strict=True)))
    first = frame.iloc[0]
    mark = Controls(frame).mark(m=first["m"], n=first["n"], k=first["k"])
    subtitle = "clocks of a scheduler for each multiply-add, with their spread; |: the least, from the machine code"
    title = f"Rungs whose sums may lie in any register, {first['m']} cubed{mark}"
    sheet = Sheet((style.WIDTH, 1.9 + 0.46 * len(rows)), title, subtitle, explained(caption, mark))
    ax = sheet.figure.subplots()
    sheet.place(0.36, 0.42, left=0.24, right=0.97)
    for row in rungs.itertuples():
        y = rows.index((row.stage, row.variant, row.warps)) + _LANE * (list(COLOURS).index(row.form) - 1.5)
        look = {"color": COLOURS[row.form]}
        ax.plot([row.clocks_low, row.clocks_high], [y, y], lw=1.2, **look)
        ax.plot(row.clocks, y, _MARKERS[row.form], ms=5, **look)
        ax.plot(row.predicted, y, "|", ms=8, mew=1.4, **look)
    for row in frame[(frame["form"] == "") & (frame["stage"] != CONTROL)].itertuples():
        ax.axvline(row.clocks, color=style.BASELINE, lw=1, ls="--")
        place = {"xycoords": ax.get_xaxis_transform(), "ha": "center"}
        ax.annotate(style.label_of(row.stage), (row.clocks, 1.004), size=8, **place)
    ax.set_xlim(left=1)
    ax.set_xlabel("clocks for each multiply-add; 1 is the peak", size=9)
    style.rows(ax, [_title(*row) for row in rows], size=8)
    handles = [Line2D([], [], ls="", marker=_MARKERS[form], color=COLOURS[form], label=form) for form in COLOURS]
    sheet.legend(handles)
    return sheet.figure


def _title(stage: str, variant: str, warps: float) -> str:
    return style.label_of(stage, variant, " · ") + f"\n{format_fixed(warps)} warps a scheduler"
