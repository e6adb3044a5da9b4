"""Plots of square problems: in fp32 TFLOP/s over the size, a panel per rung, and a map of the share of cuBLAS.

On tensor cores a map of each dialect's best rung in each math mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.ticker as ticker
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gemm_ref
from experiments.publish.drawing import best_rungs, maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed
from experiments.records import frames, store
from experiments.records.controls import CONTROL, Controls, explained
from gemm_ref import DIALECTS
from gemm_ref.launch import cdiv


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw squares.csv of `folder`; of what was timed at fewer than two sizes nothing."""
    frame = store.read(folder, "squares")
    yield from _fp32(frames.timed(frame), folder)
    yield from _tensor_cores(frames.on_tensor_cores(frame), folder)


def _tensor_cores(frame: pd.DataFrame, folder: Path) -> Iterator[style.Picture]:
    rungs = frames.rungs(frames.defaults(frames.cubes(frame[frame["stage"] != CONTROL])))
    if rungs["m"].nunique() > 1:
        caption = store.caption(rungs, folder)
        yield "squares_tensor_cores", best_rungs.over_squares(rungs, Controls(frame), caption)


def _fp32(frame: pd.DataFrame, folder: Path) -> Iterator[style.Picture]:
    timed = frames.defaults(frames.cubes(frame[frame["stage"] != CONTROL]))
    if timed["m"].nunique() < 2:
        return
    controls = Controls(frame)
    names = {size: f"{size}{controls.mark(m=size, n=size, k=size)}" for size in sorted(set(timed["m"]))}
    caption = explained(store.caption(timed, folder), *names.values())
    yield "squares_tflops", _over_sizes(timed, names, caption)
    shares = frames.rungs(timed)
    if len(shares):
        yield "squares_vs_cublas", _map(shares, names, caption)


def _over_sizes(timed: pd.DataFrame, names: dict[int, str], caption: str) -> Figure:
    """Small multiples: one panel per rung, the size across; a line through powers of two, crosses at other sizes."""
    rungs = [name for name in style.rungs_of(timed) if name in gemm_ref.STAGES]
    on_gpu = bool(rungs)
    panels = rungs or style.rungs_of(timed)
    columns = min(4, len(panels))
    lines = cdiv(len(panels), columns)
    subtitle = (
        "median, with a bar from the 20th to the 80th percentile; ×: a size that is no power of two; grey: cuBLAS"
    )
    sheet = Sheet((style.WIDTH, 1.3 + 2.2 * lines), "Speed over the size of a cube, fp32", subtitle, caption)
    axes = list(sheet.figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
    for ax, name in zip(axes, panels, strict=False):
        own = timed[timed["stage"] == name]
        if on_gpu:
            _line(ax, timed[timed["backend"] == "cublas"], style.look_of("cublas"))
        for dialect in DIALECTS if on_gpu else ("",):
            _line(ax, own[own["dialect"] == dialect], style.look_of(dialect))
        ax.set_title(style.label_of(name), size=9.5)
        style.bare(ax, "x")
    powers = [size for size in sorted(set(timed["m"])) if _is_power(size)]
    ax = axes[0]
    ax.set_xscale("log", base=2)
    ax.set_xmargin(0.1)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    marked = {size for size, name in names.items() if name != str(size)}
    ax.xaxis.set_major_locator(ticker.FixedLocator(sorted({*(powers[1::2] if len(powers) > 5 else powers), *marked})))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: names.get(round(value), format_fixed(value))))
    ax.xaxis.set_minor_locator(ticker.NullLocator())
    for ax in axes[: len(panels) : columns]:
        ax.set_ylabel("TFLOP/s, log scale", size=9)
    for ax in axes[: len(panels)][-columns:]:  # the lowest in each column
        ax.set_xlabel("M = N = K")
        ax.tick_params(labelbottom=True)
    style.legend(sheet.figure, timed["dialect"], overlaid=True)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    return sheet.fit()


def _line(ax: Axes, frame: pd.DataFrame, look: style.Look) -> None:
    """A line through the powers of two; marks of several sizes, so that all are seen where lines are the same."""
    frame = frame.sort_values("m")
    power = np.array([_is_power(size) for size in frame["m"]], dtype=bool)
    on, off = frame[power], frame[~power]
    if not on.empty:
        ax.plot(on["m"], on["tflops"], lw=1.2, **look.overlaid(0.65))
        ax.vlines(on["m"], *zip(*map(frames.spread, on.itertuples()), strict=True), color=look.colour, lw=3, alpha=0.45)
    ax.plot(off["m"], off["tflops"], "x", color=look.colour, mew=0.8, ms=3.5, ls="none")


def _map(timed: pd.DataFrame, names: dict[int, str], caption: str) -> Figure:
    """The share of cuBLAS: a row per rung and dialect, a column per size."""
    sizes, rows = sorted(set(timed["m"])), style.kernels_of(timed)
    shares = np.full((len(rows), len(sizes)), np.nan)
    for row in timed.itertuples():
        shares[rows.index((row.stage, row.dialect)), sizes.index(row.m)] = 100 * row.vs_cublas
    subtitle = "at each M = N = K; the median of the ratios in a round; each dialect's default variant"
    size, title = (style.WIDTH, 2.2 + 0.24 * len(rows)), "Share of cuBLAS at every size, fp32"
    sheet = Sheet(size, title, subtitle, caption, scale=maps.SHARE)
    ax = sheet.figure.subplots()
    maps.kernel_map(ax, shares, rows, [names[size] for size in sizes])
    ax.tick_params(axis="x", rotation=90 if len(sizes) > 14 else 0)
    return sheet.place(0.42, 0.02 * size[1], left=0.215, right=0.985)


def _is_power(size: int) -> bool:
    return int(size) & (int(size) - 1) == 0
