"""Plots of `shapes`: the share of cuBLAS for each named problem, and the best rung over M x N at one depth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.plots.look import maps, style
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
    figure = Figure(figsize=(style.WIDTH, 2.6 + 0.27 * len(named)))
    subtitle = "the median of the ratios in a round; each dialect's best variant"
    top = style.heading(figure, "Share of cuBLAS at real-world shapes, fp32", subtitle)
    top = maps.key(figure, "% of cuBLAS' speed:", maps.SHARE, top)
    rows = [
        f"{shape.name} ({' × '.join(map(str, shape.sizes))}){controls.mark(m=m, n=n, k=k)}"
        for shape in named
        for m, n, k in [shape.sizes]
    ]
    bottom = style.footer(figure, explained(caption, *rows))
    ax = figure.subplots()
    maps.share_map(ax, shares, rows, [f"{stage[:3]}\n{DIALECTS[dialect].title}" for stage, dialect in kernels])
    for y in range(1, len(named)):
        if named[y].group != named[y - 1].group:
            ax.axhline(y, color=style.MUTED, lw=0.8)
    figure.subplots_adjust(left=0.31, right=0.985, top=top - 0.45 / figure.get_figheight(), bottom=bottom + 0.02)
    return figure


def _kernels(frame: pd.DataFrame) -> list[tuple[str, str]]:
    there = set(zip(frame["stage"], frame["dialect"], strict=True))
    return [(s, d) for s in style.rungs_of(frame) for d in DIALECTS if (s, d) in there]


def _best(on_map: pd.DataFrame, sides: list[int], controls: Controls, caption: str) -> Figure:
    """One map per dialect: the fastest of its rungs at each M x N, and its share of cuBLAS."""
    figure = Figure(figsize=(style.WIDTH, 4.75))
    subtitle = f"fp32, K = {workloads.MAP_K}: the fastest rung from {_first(on_map)} on, and its share of cuBLAS"
    top = style.heading(figure, "The best rung over M × N", subtitle)
    top = maps.key(figure, "% of cuBLAS' speed:", maps.SHARE, top)
    marks = {(m, n): controls.mark(m=m, n=n, k=workloads.MAP_K) for m in sides for n in sides}
    bottom = style.footer(figure, explained(caption, *marks.values()))
    axes = figure.subplots(1, len(DIALECTS), sharey=True)
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
    figure.tight_layout(rect=(0, bottom, 1, top))
    return figure


def _first(frame: pd.DataFrame) -> str:
    return style.rungs_of(frame)[0][:3]


def _lacks(frame: pd.DataFrame, dialect: str) -> str:
    """The rungs of these rows that are not written in a dialect, as the end of its title: a share may be their lack."""
    missing = [style.label_of(s) for s in style.rungs_of(frame) if style.absent(s, dialect) == style.NO_KERNEL]
    return f", which has no {' and no '.join(missing)}" if missing else ""
