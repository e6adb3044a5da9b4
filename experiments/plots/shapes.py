"""Plots of `shapes`: the share of cuBLAS for each named problem, and the best rung over M x N at one depth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.plots.look import style
from experiments.records import environment, frames, store, workloads
from experiments.records.controls import Controls, explained
from gemm_ref import DIALECTS


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw shapes.csv of `folder` into `target` as PNG and SVG; nothing where no rung was timed."""
    timed = frames.timed(store.read(folder, "shapes"))
    controls, frame = Controls(timed), frames.rungs(frames.defaults(timed))
    if frame.empty:
        return []
    caption = environment.caption(store.runs_of(frame, folder))
    named = [shape for shape in workloads.named_shapes() if not frames.at(frame, shape.sizes).empty]
    paths = []
    with style.themed():
        if named:
            paths += style.save(_named(frame, named, controls, caption), target, "shapes_vs_cublas")
        on_map = frame[frame["k"] == workloads.MAP_K]
        sides = sorted(set(on_map["m"]) & set(on_map["n"]) & set(workloads.MAP_SIDES["full"]))
        if len(sides) > 1:
            paths += style.save(_best(on_map, sides, controls, caption), target, "shapes_best")
    return paths


def _named(frame: pd.DataFrame, named: list[workloads.Shape], controls: Controls, caption: str) -> Figure:
    kernels = _kernels(frame)
    shares = np.full((len(named), len(kernels)), np.nan)
    for y, shape in enumerate(named):
        for row in frames.at(frame, shape.sizes).itertuples():
            shares[y, kernels.index((row.stage, row.dialect))] = 100 * row.vs_cublas
    figure = Figure(figsize=(style.WIDTH, 2.3 + 0.27 * len(named)))
    subtitle = "the median of the ratios in a round; white is cuBLAS, green is faster"
    top = style.heading(figure, "% of cuBLAS at real-world shapes, fp32", subtitle)
    rows = [
        f"{shape.name}  {' × '.join(map(str, shape.sizes))}{controls.mark(m=m, n=n, k=k)}"
        for shape in named
        for m, n, k in [shape.sizes]
    ]
    bottom = style.footer(figure, explained(caption, *rows))
    ax = figure.subplots()
    style.share_map(ax, shares, rows, [f"{stage[:3]}\n{DIALECTS[dialect].title}" for stage, dialect in kernels])
    for y in range(1, len(named)):
        if named[y].group != named[y - 1].group:
            ax.axhline(y, color=style.MUTED, lw=0.8)
    figure.subplots_adjust(left=0.285, right=0.985, top=top - 0.45 / figure.get_figheight(), bottom=bottom + 0.02)
    return figure


def _kernels(frame: pd.DataFrame) -> list[tuple[str, str]]:
    there = set(zip(frame["stage"], frame["dialect"], strict=True))
    return [(s, d) for s in style.rungs_of(frame) for d in DIALECTS if (s, d) in there]


def _best(on_map: pd.DataFrame, sides: list[int], controls: Controls, caption: str) -> Figure:
    """One map per dialect: the fastest of its rungs at each M x N, and its share of cuBLAS."""
    figure = Figure(figsize=(style.WIDTH, 4.3))
    subtitle = f"at K = {workloads.MAP_K}: which rung from s08 on is the fastest, and its % of cuBLAS"
    top = style.heading(figure, "The best rung over M × N, fp32", subtitle)
    marks = {(m, n): controls.mark(m=m, n=n, k=workloads.MAP_K) for m in sides for n in sides}
    bottom = style.footer(figure, explained(caption, *marks.values()))
    axes = figure.subplots(1, len(DIALECTS), sharey=True)
    for ax, dialect in zip(axes, DIALECTS, strict=True):
        shares = np.full((len(sides), len(sides)), np.nan)
        names = np.full(shares.shape, "", dtype=object)
        for y, m in enumerate(sides):
            for x, n in enumerate(sides):
                own = on_map[(on_map["dialect"] == dialect) & (on_map["m"] == m) & (on_map["n"] == n)]
                if not own.empty:
                    best = own.loc[own["median_us"].idxmin()]
                    shares[y, x], names[y, x] = 100 * best.vs_cublas, best.stage[:3] + marks[m, n]
        style.share_map(ax, shares, [str(side) for side in sides], [str(side) for side in sides], names)
        ax.set_title(DIALECTS[dialect].title, size=9.5)
        ax.set_xlabel("N")
    axes[0].set_ylabel("M")
    figure.tight_layout(rect=(0, bottom, 1, top))
    return figure
