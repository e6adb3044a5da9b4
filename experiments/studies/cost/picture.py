"""The plot of `cost`: lines of each rung in each dialect, and the share of cuBLAS that they reach, if measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.labels import Spot, around
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed
from experiments.records import environment, frames, store
from experiments.records.controls import explained, size_name
from gemm_ref import DIALECTS

_STEP = 0.27  # of a rung's row, from one dialect's bar to the next
_MATHS = ("fp32", "bf16")  # of the panels


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw cost.csv of `folder`: lines and shares of cuBLAS, or lines alone where no shares were measured."""
    frame = store.read(folder, "cost").dropna(subset="own_lines")
    if frame.empty:
        return
    rungs = frame.drop_duplicates(["stage", "dialect"])
    lines = {(row.stage, row.dialect): row.own_lines + row.shared_lines for row in rungs.itertuples()}
    shares = {math: rows for math in _MATHS if not (rows := _shares(folder, math, lines)).empty}
    if not shares:
        yield "cost_lines", _lines(rungs, environment.compilers_caption(store.runs_of(frame, folder)))
    else:
        runs = [run for rows in shares.values() for run in store.runs_of(rows, folder)]
        yield "cost_vs_cublas", _against(shares, lines, environment.caption(runs))


def _shares(folder: Path, math: str, lines: dict[tuple[str, str], float]) -> pd.DataFrame:
    """The rows of the kernels that have both lines and a share of cuBLAS, in ladder order."""
    rows = frames.rungs(frames.defaults(frames.at_tables(folder, math)))
    if rows.empty:
        return rows
    both = [(row.stage, row.dialect) in lines and row.vs_cublas == row.vs_cublas for row in rows.itertuples()]
    return rows[both].sort_values("stage")


def _against(shares: dict[str, pd.DataFrame], lines: dict[tuple[str, str], float], caption: str) -> Figure:
    """A panel per math mode: all lines across, share of cuBLAS upwards; a dialect's rungs joined in their order."""
    heights = [3.6 if math == "fp32" else 2.6 for math in shares]
    titles = {math: f"{math} at {size_name(rows)}" for math, rows in shares.items()}
    subtitle = "best variants; a dialect's rungs are joined in their order,\nand numbered where there is room"
    size = (style.NARROW, 2.1 + sum(heights))
    sheet = Sheet(size, "Lines of code and speed", subtitle, explained(caption, *titles.values()))
    axes = sheet.figure.subplots(len(shares), 1, squeeze=False, height_ratios=heights)[:, 0]
    sheet.place(0.3, 0.45, left=0.13, right=0.97, hspace=0.3)
    for ax, (math, rows) in zip(axes, shares.items(), strict=True):
        _panel(ax, rows, lines)
        ax.set_title(titles[math], size=9.5)
    axes[-1].set_xlabel("lines of code, with those of the files that rungs share")
    style.legend(sheet.figure, pd.concat(shares.values())["dialect"])
    for ax, rows in zip(axes, shares.values(), strict=True):
        _label(ax, rows, lines)
    return sheet.figure


def _panel(ax: Axes, rows: pd.DataFrame, lines: dict[tuple[str, str], float]) -> None:
    for dialect, own in rows.groupby("dialect", sort=False):
        look = style.look_of(str(dialect))
        across = [lines[stage, dialect] for stage in own["stage"]]
        ax.plot(across, 100 * own["vs_cublas"], look.marker, color=look.colour, ms=4.5, lw=1, ls="-", zorder=3)
    ax.set_xlim(0, 1.06 * max(lines[row.stage, row.dialect] for row in rows.itertuples()))
    ax.set_ylim(0, 109)
    ax.yaxis.set_major_locator(ticker.MultipleLocator(25))
    ax.axhline(100, color=style.BASELINE, lw=1.2, zorder=1)
    ax.set_ylabel("% of cuBLAS' speed")


def _label(ax: Axes, rows: pd.DataFrame, lines: dict[tuple[str, str], float]) -> None:
    """The rungs' numbers; those of a dialect whose marks touch share a text."""
    spots, paths = [], []
    for dialect, own in rows.groupby("dialect", sort=False):
        points = [(row.stage[:3], float(lines[row.stage, dialect]), 100 * row.vs_cublas) for row in own.itertuples()]
        paths.append([(x, y) for _, x, y in points])
        groups: list[list[tuple[str, float, float]]] = []
        for point in points:
            near = groups and abs(point[1] - groups[-1][-1][1]) < 3 and abs(point[2] - groups[-1][-1][2]) < 2.5
            groups[-1].append(point) if near else groups.append([point])
        for group in groups:
            text = group[0][0] if len(group) == 1 else f"{group[0][0]}–{group[-1][0][1:]}"
            spots.append(Spot(text, group[0][1], group[0][2], style.legible(style.look_of(str(dialect)).colour)))
    end = ax.get_xlim()[1]
    spots.append(Spot("cuBLAS", 0.93 * end, 100, style.BASELINE))
    around(ax, spots, [*paths, [(0, 100), (end, 100)]])


def _lines(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per rung, a bar per dialect: its own lines, and lighter those of the files that it shares."""
    rows = style.rungs_of(frame)
    found = {(rows.index(row.stage), row.dialect): row for row in frame.itertuples()}
    texts = {(y, dialect): style.absent(stage, dialect) for y, stage in enumerate(rows) for dialect in DIALECTS}
    texts |= {bar: format_fixed(row.own_lines) for bar, row in found.items()}
    subtitle = "the kernel's own, and lighter the files that rungs share;\ncomments and blank lines are not counted"
    caption = f"no speeds were measured here, so lines stand alone · numbers: own lines · {caption}"
    caption = style.with_absent(caption, texts.values())
    sheet = Sheet((style.NARROW, 2.6 + 0.32 * len(rows)), "Lines of code, rung by rung", subtitle, caption)
    ax = sheet.figure.subplots()
    sheet.place(0.4, 0.45, left=1.52 / style.NARROW, right=1 - 1.58 / style.NARROW)
    style.rows(ax, [style.label_of(row) for row in rows])
    for (place, dialect), row in found.items():
        look = style.look_of(dialect)
        y, bar = place + _STEP * look.lane, {"height": 0.9 * _STEP, "color": look.colour, "lw": 0, "zorder": 2}
        ax.barh(y, row.own_lines, **bar)
        ax.barh(y, row.shared_lines, left=row.own_lines, alpha=0.35, **bar)
    ax.set_xlabel("lines of code")
    style.columns(ax, texts, 0.5)
    return sheet.figure
