"""Plots of `shapes`: each named problem's share of cuBLAS, the share of the read roof, and the best rung over M x N.

On tensor cores the best rungs at the named ones. And of `choice`: what is lost by choosing, and how near predicted
times are to measured ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.look import maps, style
from experiments.plots.look.sheet import Sheet
from experiments.plots.parts import best_rungs
from experiments.records import frames, store, workloads
from experiments.records.ceilings import Roofs
from experiments.records.controls import Controls, explained
from gemm_ref import DIALECTS, Problem

_ROW = 0.2  # inches of a problem's row


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw shapes.csv of `folder`; nothing where no rung was timed."""
    frame = store.read(folder, "shapes")
    yield from _fp32(frames.timed(frame), folder)
    yield from _tensor_cores(frames.on_tensor_cores(frame), folder)


def _tensor_cores(timed: pd.DataFrame, folder: Path) -> Iterator[style.Picture]:
    controls, rungs = Controls(timed), frames.rungs(frames.defaults(timed))
    named = {_name(shape, controls): shape.sizes for shape in workloads.named_shapes()}
    named = {name: sizes for name, sizes in named.items() if not frames.at(rungs, sizes).empty}
    if not named:
        return
    rungs = rungs[[sizes in named.values() for sizes in rungs[list(frames.SIZES)].itertuples(index=False, name=None)]]
    caption = store.caption(rungs, folder)
    yield "shapes_tensor_cores", best_rungs.over_shapes(rungs, named, controls, caption)


def _fp32(timed: pd.DataFrame, folder: Path) -> Iterator[style.Picture]:
    controls, frame = Controls(timed), frames.rungs(frames.defaults(timed))
    if frame.empty:
        return
    caption = store.caption(frame, folder)
    named = [shape for shape in workloads.named_shapes() if not frames.at(frame, shape.sizes).empty]
    if named:
        yield "shapes_named", _leaders(frame, named, controls, caption)
        yield "shapes_vs_cublas", _named(frame, named, controls, caption)
    roofs = Roofs.of(folder)
    bound = [shape for shape in named if roofs and roofs.is_read(Problem(*shape.sizes))]
    if roofs and bound:
        yield "shapes_read_roof", _read_roof(timed, bound, roofs, controls, caption)
    on_map = frame[frame["k"] == workloads.MAP_K]
    sides = sorted(set(on_map["m"]) & set(on_map["n"]) & set(workloads.MAP_SIDES["full"]))
    if len(sides) > 1:
        yield "shapes_best", _best(on_map, sides, controls, caption)


def draw_choice(folder: Path) -> Iterator[style.Picture]:
    """Draw the fp32 rows of choice.csv of `folder`; nothing where none was timed."""
    frame = frames.held_out(frames.tried(store.read(folder, "choice")))
    frame = frame[frame["math"] == "fp32"]
    own = frames.rungs(frame)
    if len(own):
        caption = store.caption(own, folder)
        yield "choice_regret", _regret(own, Controls(frame), caption)
        yield "choice_predicted", _predicted(own, caption)


def _regret(own: pd.DataFrame, controls: Controls, caption: str) -> Figure:
    """What is lost at each problem, in each dialect, and by Triton's autotune."""
    found = frames.regrets(own).assign(stage="", median_us=0.0)
    sizes = list(dict.fromkeys(found[list(frames.SIZES)].itertuples(index=False, name=None)))
    shapes = [workloads.Shape("", "", "", "", "", each) for each in sizes]
    subtitle = "% that the chosen tile and blocks take longer than the fastest; x is what Triton's autotune picked"
    figure, ax = _rows("What is lost by choosing without trying, fp32", subtitle, shapes, controls, caption)
    ax.set_xlabel("% of the fastest candidate's time", size=9)
    chosen = found[found["regret"].notna()]
    _mark(ax, shapes, chosen, lambda row: 100 * row.regret, lambda row: "", width=0.5)
    for row in found[found["tuned"].notna()].itertuples():
        y = sizes.index((row.m, row.n, row.k))
        ax.plot(100 * row.tuned, y, "x", color=style.look_of(row.dialect).colour, ms=5, mew=1)
    ax.set_xlim(-1, max(16, 1.05 * ax.get_xlim()[1]))
    return figure


def _predicted(own: pd.DataFrame, caption: str) -> Figure:
    """A panel for each dialect: every candidate's predicted time over its measured one."""
    there = [name for name in DIALECTS if name in set(own["dialect"])]
    subtitle = "every candidate that was timed; those that were chosen are filled"
    sheet = Sheet((style.WIDTH, 4.2), "Predicted beside measured times, fp32", subtitle, caption)
    axes = sheet.figure.subplots(1, len(there), sharex=True, sharey=True, squeeze=False)[0]
    ends = [own[["median_us", "predicted_us"]].min().min(), own[["median_us", "predicted_us"]].max().max()]
    for ax, dialect in zip(axes, there, strict=True):
        of, look = own[own["dialect"] == dialect], style.look_of(dialect)
        taken = of[of["chosen"] == 1]
        off = 100 * np.abs(of["predicted_us"] / of["median_us"] - 1).median()
        ax.plot(ends, ends, color=style.BASELINE, lw=1, zorder=1)
        many = {"rasterized": True, **style.OTHER}  # thousands of marks weigh more than their picture
        ax.plot(of["median_us"], of["predicted_us"], look.marker, color=look.colour, **many)
        ax.plot(taken["median_us"], taken["predicted_us"], look.marker, color=look.colour, ms=4.5, ls="none")
        ax.set(xscale="log", yscale="log", xlabel="measured µs, log scale")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        ax.set_title(f"{DIALECTS[dialect].title}: {off:.0f}% off, median", size=9.5)
    axes[0].set_ylabel("predicted µs, log scale")
    return sheet.fit()


def _leaders(frame: pd.DataFrame, named: list[workloads.Shape], controls: Controls, caption: str) -> Figure:
    """The best rung of each dialect at each named problem."""
    subtitle = "fp32, the median of the ratios in a round; each dialect's best rung and its share"
    figure, ax = _rows("The best rung at real-world shapes", subtitle, named, controls, caption)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(ticker.FixedLocator([1, 2, 5, 10, 20, 30, 50, 70, 100, 150, 200]))
    style.plain(ax.xaxis)
    ax.set_xlabel("% of cuBLAS' speed, log scale", size=9)
    ax.axvline(100, color=style.BASELINE, lw=1.2, zorder=1)
    _mark(ax, named, frame, lambda row: 100 * row.vs_cublas, lambda row: f" {row.stage[:3]}", width=0.72)
    return figure


def _read_roof(
    timed: pd.DataFrame, bound: list[workloads.Shape], roofs: Roofs, controls: Controls, caption: str
) -> Figure:
    """Where moving A, B and C takes longer than the arithmetic: how much of the read roof is reached."""
    subtitle = f"bytes of A, B and C over time, beside {roofs.read:.2f} TB/s, which `roofs` measured; library: cuBLAS"
    figure, ax = _rows("How near shapes bound by memory are to the read roof", subtitle, bound, controls, caption)
    ax.set_xlabel("% of the read roof", size=9)
    ax.axvline(100, color=style.BASELINE, lw=1.2, zorder=1)
    rows = timed[(timed["dialect"] != "") | (timed["backend"] == "cublas")]

    def share(row: Any) -> float:
        return 100 * roofs.read_us(Problem(row.m, row.n, row.k)) / row.median_us

    _mark(ax, bound, rows, share, lambda row: f" {row.stage[:3]}" if row.dialect else "", width=0.62)
    ax.set_xlim(0, max(104, ax.get_xlim()[1]))
    return figure


def _rows(
    title: str, subtitle: str, shapes: list[workloads.Shape], controls: Controls, caption: str
) -> tuple[Figure, Axes]:
    """A figure with a row for each problem, and room on the right for a column per dialect."""
    names = [_name(shape, controls) for shape in shapes]
    sheet = Sheet((style.WIDTH, 2.0 + _ROW * len(shapes)), title, subtitle, explained(caption, *names))
    ax = sheet.figure.subplots()
    sheet.place(0.4, 0.45, left=0.35, right=0.715)
    style.rows(ax, names)
    ax.tick_params(labelsize=7.5)
    maps.part(ax.axhline, [shape.group for shape in shapes], -0.5)
    return sheet.figure, ax


def _mark(
    ax: Axes,
    shapes: list[workloads.Shape],
    rows: pd.DataFrame,
    share: Callable[[Any], float],
    suffix: Callable[[Any], str],
    width: float,
) -> None:
    """Mark the fastest row of each dialect, and the library's, in each problem's row, and write its share beside."""
    texts: dict[tuple[int, str], str] = {}
    for y, shape in enumerate(shapes):
        own = frames.at(rows, shape.sizes)
        for row in own.loc[own.groupby("dialect")["median_us"].idxmin()].itertuples():
            ax.plot(share(row), y, ls="", **style.look_of(row.dialect).overlaid(0.75), zorder=3)
            texts[y, row.dialect] = f"{style.percent(share(row))}%{suffix(row)}"
    ax.figure.canvas.draw()  # limits and places are final
    style.columns(ax, texts, width, size=7.5)


def _name(shape: workloads.Shape, controls: Controls) -> str:
    m, n, k = shape.sizes
    sizes = f"{m} × {n} × {k}"
    return f"{f'{shape.name} ({sizes})' if shape.name else sizes}{controls.mark(m=m, n=n, k=k)}"


def _named(frame: pd.DataFrame, named: list[workloads.Shape], controls: Controls, caption: str) -> Figure:
    kernels = style.kernels_of(frame)
    shares = np.full((len(named), len(kernels)), np.nan)
    for y, shape in enumerate(named):
        for row in frames.at(frame, shape.sizes).itertuples():
            shares[y, kernels.index((row.stage, row.dialect))] = 100 * row.vs_cublas
    subtitle = "the median of the ratios in a round; each dialect's best variant"
    rows = [_name(shape, controls) for shape in named]
    size, title = (style.WIDTH, 2.6 + _ROW * len(named)), "Share of cuBLAS at real-world shapes, fp32"
    sheet = Sheet(size, title, subtitle, explained(caption, *rows), scale=maps.SHARE)
    ax = sheet.figure.subplots()
    maps.share_map(ax, shares, rows, [f"{stage[:3]}\n{DIALECTS[dialect].title}" for stage, dialect in kernels])
    maps.part(ax.axhline, [shape.group for shape in named])
    return sheet.place(0.45, 0.02 * size[1], left=0.35, right=0.985)


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
                texts[place] = f"{best['stage'][:3]}{marks[m, n]}\n{style.percent(shares[place])}"
        names = [str(side) for side in sides]
        maps.share_map(ax, shares, names, names, texts)
        ax.set_title(DIALECTS[dialect].title + _lacks(on_map, dialect), size=9.5, pad=8)
        ax.set_xlabel("N")
    axes[0].set_ylabel("M")
    return sheet.fit()


def _lacks(frame: pd.DataFrame, dialect: str) -> str:
    """The rungs of these rows that are not written in a dialect, as the end of its title: a share may be their lack."""
    missing = [style.label_of(s) for s in style.rungs_of(frame) if style.absent(s, dialect) == style.NO_KERNEL]
    return f", which has no {' and no '.join(missing)}" if missing else ""
