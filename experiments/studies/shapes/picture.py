"""Plots of `shapes`: shares of cuBLAS by class, the named problems, the read roof, and the best rung over M x N."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.problem_rows import mark_fastest, problem_rows
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed, format_short_percent
from experiments.publish.reach import words_of
from experiments.records import frames, shape_classes, stats, store, workloads
from experiments.records.ceilings import Roofs
from experiments.records.controls import Controls, explained
from gemm_ref import B_LAYOUTS, DIALECTS, Problem

_OTHER = {"kn": "\nby rows", "nk": "\nnn.Linear"}  # the layout of B, where it is not that of LAYOUT


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw shapes.csv of `folder`; nothing where no rung was timed."""
    frame = store.read(folder, "shapes")
    yield from _classes(frame, folder)
    yield from _fp32(frames.timed(frame), folder)


def _classes(frame: pd.DataFrame, folder: Path) -> Iterator[style.Picture]:
    runs, judged = store.read_runs(folder), []
    for math, shown in frames.LAYOUT.items():
        for layout in sorted(B_LAYOUTS, key=lambda each: each != shown):
            own = frames.timed(frame[frame["b_layout"] == layout], math)
            if len(own):
                own = frames.rungs(shape_classes.with_classes(frames.of_latest_commit(own, runs)))
                judged.append(frames.leaders(own).assign(panel=math + ("" if layout == shown else _OTHER[layout])))
    rows = pd.concat(judged) if judged else frame[:0]
    if len(rows):
        yield "shapes_classes", _by_class(rows, store.caption(rows, folder))


def _by_class(rows: pd.DataFrame, caption: str) -> Figure:
    """A panel per compute type and class of problems, a line of dots per dialect, a dot per problem."""
    panels, titles = list(dict.fromkeys(rows["panel"])), words_of("en")["classes"]
    names = [
        name for name in shape_classes.CLASSES if name != shape_classes.SQUARES and name in set(rows["shape_class"])
    ]
    subtitle = (
        "a dot per problem: the dialect's fastest kernel, the median of the ratios in a round, log scale;\n"
        f"a bar is the geometric mean; layers have M > {shape_classes.MAX_FEW_ROWS}, unaligned sizes rows of odd length"
    )
    size, title = (style.WIDTH, 1.9 + 0.72 * len(panels)), "Share of cuBLAS at real-world shapes, class by class"
    sheet = Sheet(size, title, subtitle, frames.with_modes(caption, frames.maths_of(rows)))
    axes = sheet.figure.subplots(len(panels), len(names), sharex=True, sharey=True, squeeze=False)
    for (line, panel), (column, name) in itertools.product(enumerate(panels), enumerate(names)):
        ax, own = axes[line, column], rows[(rows["panel"] == panel) & (rows["shape_class"] == name)]
        ax.axvline(100, color=style.BASELINE, lw=1.0, zorder=1)
        for dialect, each in own.groupby("dialect"):
            look, shares = style.look_of(str(dialect)), 100 * each["vs_cublas"]
            ax.plot(shares, [look.lane] * len(each), "o", color=look.colour, ms=3.5, alpha=0.55, mew=0, zorder=2)
            mean = stats.geometric_mean(shares)
            ax.vlines(mean, look.lane - 0.38, look.lane + 0.38, color=look.colour, lw=2.2, zorder=3)
        if not line:
            ax.set_title(titles[name], size=9.5)
        if not column:
            ax.set_ylabel(panel, size=9.5, rotation=0, ha="right", va="center")
    first = axes[0, 0]
    first.set(xscale="log", ylim=(1.7, -1.7), yticks=[])
    first.xaxis.set_major_locator(ticker.FixedLocator([10, 25, 50, 100, 200, 400]))
    style.plain(first.xaxis)
    for ax in axes[-1]:
        ax.set_xlabel("% of cuBLAS' speed", size=9)
    style.legend(sheet.figure, rows["dialect"])
    return sheet.fit()


def _fp32(timed: pd.DataFrame, folder: Path) -> Iterator[style.Picture]:
    controls, frame = Controls(timed), frames.rungs(frames.defaults(timed))
    if frame.empty:
        return
    caption = store.caption(frame, folder)
    named = [shape for shape in workloads.named_shapes() if not frames.at(frame, shape.sizes).empty]
    if named:
        yield "shapes_named", _leaders(frame, named, controls, caption)
    roofs = Roofs.of(folder)
    bound = [shape for shape in named if roofs and roofs.is_read(Problem(*shape.sizes))]
    if roofs and bound:
        yield "shapes_read_roof", _read_roof(timed, bound, roofs, controls, caption)
    on_map = frame[frame["k"] == workloads.MAP_K]
    sides = sorted(set(on_map["m"]) & set(on_map["n"]) & set(workloads.MAP_SIDES["full"]))
    if len(sides) > 1:
        yield "shapes_best", _best(on_map, sides, controls, caption)


def _leaders(frame: pd.DataFrame, named: list[workloads.Shape], controls: Controls, caption: str) -> Figure:
    """The best rung of each dialect at each named problem."""
    subtitle = "fp32, the median of the ratios in a round; each dialect's best rung and its share"
    figure, ax = problem_rows("The best rung at real-world shapes", subtitle, named, controls, caption)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(ticker.FixedLocator([1, 2, 5, 10, 20, 30, 50, 70, 100, 150, 200]))
    style.plain(ax.xaxis)
    ax.set_xlabel("% of cuBLAS' speed, log scale", size=9)
    ax.axvline(100, color=style.BASELINE, lw=1.2, zorder=1)
    mark_fastest(ax, named, frame, lambda row: 100 * row.vs_cublas, lambda row: f" {row.stage[:3]}", width=0.72)
    return figure


def _read_roof(
    timed: pd.DataFrame, bound: list[workloads.Shape], roofs: Roofs, controls: Controls, caption: str
) -> Figure:
    """Where moving A, B and C takes longer than the arithmetic: how much of the read roof is reached."""
    read = f"{format_fixed(roofs.read, 2)} TB/s, which `roofs` measured"
    subtitle = f"bytes of A, B and C over time, beside {read}; library: cuBLAS"
    figure, ax = problem_rows(
        "How near shapes bound by memory are to the read roof", subtitle, bound, controls, caption
    )
    ax.set_xlabel("% of the read roof", size=9)
    ax.axvline(100, color=style.BASELINE, lw=1.2, zorder=1)
    rows = timed[(timed["dialect"] != "") | (timed["backend"] == "cublas")]

    def share(row: Any) -> float:
        return 100 * roofs.read_us(Problem(row.m, row.n, row.k)) / row.median_us

    mark_fastest(ax, bound, rows, share, lambda row: f" {row.stage[:3]}" if row.dialect else "", width=0.62)
    ax.set_xlim(0, max(104, ax.get_xlim()[1]))
    return figure


def _best(on_map: pd.DataFrame, sides: list[int], controls: Controls, caption: str) -> Figure:
    """One map per dialect: the fastest of its rungs at each M x N, and its share of cuBLAS."""
    first = style.rungs_of(on_map)[0][:3]
    subtitle = f"fp32, K = {workloads.MAP_K}: the fastest rung from {first} on, and its share of cuBLAS"
    marks = {(m, n): controls.mark(m=m, n=n, k=workloads.MAP_K) for m in sides for n in sides}
    caption = explained(caption, *marks.values())
    sheet = Sheet((style.WIDTH, 4.75), "The best rung over M × N", subtitle, caption, scale=maps.SHARE)
    axes = sheet.figure.subplots(1, len(DIALECTS), sharey=True)
    for ax, dialect in zip(axes, DIALECTS, strict=True):
        shares = np.full((len(sides), len(sides)), np.nan)
        texts = np.full(shares.shape, style.NOT_RUN, dtype=object)
        own = on_map[on_map["dialect"] == dialect]
        for (m, n), best in own.loc[own.groupby(["m", "n"])["median_us"].idxmin()].set_index(["m", "n"]).iterrows():
            if (m, n) in marks:
                place = sides.index(m), sides.index(n)
                shares[place] = 100 * best["vs_cublas"]
                texts[place] = f"{best['stage'][:3]}{marks[m, n]}\n{format_short_percent(shares[place])}"
        names = [str(side) for side in sides]
        maps.share_map(ax, shares, names, names, texts)
        ax.set_title(DIALECTS[dialect].title + _name_missing_rungs(on_map, dialect), size=9.5, pad=8)
        ax.set_xlabel("N")
    axes[0].set_ylabel("M")
    return sheet.fit()


def _name_missing_rungs(frame: pd.DataFrame, dialect: str) -> str:
    """The rungs of these rows that are not written in a dialect, as the end of its title: a share may be their lack."""
    missing = [style.label_of(s) for s in style.rungs_of(frame) if style.absent(s, dialect) == style.NO_KERNEL]
    return f", which has no {' and no '.join(missing)}" if missing else ""
