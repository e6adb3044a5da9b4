"""Plots of `tensor_cores`: the share of cuBLAS by math mode and size, and what the layout of B is worth."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.look import style
from experiments.records import environment, frames, store, workloads
from experiments.records.controls import CONTROL, Controls, explained
from experiments.records.frames import LAYOUT, LAYOUT_WORDS
from gemm_ref import B_LAYOUTS, DIALECTS, STAGES
from gemm_ref.baselines import BASELINES

_LANE = 0.26  # of a row: the height of a dialect's bar


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw tensor_cores.csv of `folder` into `target`, PNG and SVG; nothing where nothing was timed."""
    frame = store.read(folder, "tensor_cores")
    if frame.empty or frame["vs_cublas"].isna().all():
        return []
    controls = Controls(frame)
    frame = frames.defaults(frame[frame["vs_cublas"].notna() & (frame["stage"] != CONTROL)])
    caption = environment.caption(store.runs_of(frame, folder))
    with style.themed():
        return [
            *style.save(_shares(frames.shown(frame), controls, caption), target, "tensor_cores_vs_cublas"),
            *style.save(_layouts(frame, controls, caption), target, "tensor_cores_layouts"),
        ]


def _shares(frame: pd.DataFrame, controls: Controls, caption: str) -> Figure:
    """A panel per size and math mode; a row per rung, a bar per dialect."""
    maths, sizes = frames.maths_of(frame), sorted(set(frame["m"]))
    titles = {
        (size, math): f"{math}, {size}³"
        + (", B by columns" if LAYOUT[math] == "nk" else "")
        + controls.mark(m=size, math=math, b_layout=LAYOUT[math])
        for size in sizes
        for math in maths
    }
    frame = frame[frame["backend"] != "cublas"]
    rows = [name for name in (*STAGES, *BASELINES) if name in set(frame["stage"])]
    figure = Figure(figsize=(style.WIDTH, 1.7 + len(sizes) * (0.5 + 0.42 * len(rows))))
    subtitle = "median of the ratios in a round and its 95% interval; each dialect's best variant"
    top = style.heading(figure, "Share of cuBLAS on tensor cores", subtitle)
    bottom = style.footer(figure, explained(caption, *titles.values()))
    axes = figure.subplots(len(sizes), len(maths), sharex=True, sharey=True, squeeze=False)
    for line, size in zip(axes, sizes, strict=True):
        for ax, math in zip(line, maths, strict=True):
            own = frame[(frame["m"] == size) & (frame["math"] == math)]
            _bars(ax, own, rows)
            ax.set_title(titles[size, math], size=9)
    axes[0][0].set_xlim(0, 118)
    axes[0][0].set_ylim(len(rows) - 0.5, -0.5)
    axes[0][0].set_yticks(range(len(rows)), [style.label_of(row) for row in rows])
    for line in axes:
        line[0].tick_params(axis="y", labelsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("% of cuBLAS")
    style.legend(figure, figure.axes[0], "s")
    figure.tight_layout(rect=(0, bottom, 1, top))
    return figure


def _bars(ax: Axes, frame: pd.DataFrame, rows: list[str]) -> None:
    for row in frame.itertuples():
        y = rows.index(row.stage) + _LANE * style.look_of(row.dialect).lane
        share, low, high = (100 * value for value in (row.vs_cublas, row.vs_cublas_low, row.vs_cublas_high))
        ax.barh(y, share, height=_LANE * 0.9, color=style.look_of(row.dialect).colour, lw=0)
        ax.plot([low, high], [y, y], color=style.INK, lw=1)
        ax.annotate(f"{share:.0f}", (max(share, high), y), (3, 0), textcoords="offset points", va="center", size=6.5)
    ax.axvline(100, color=style.BASELINE, lw=1)
    style.bare(ax, "y")


def _layouts(frame: pd.DataFrame, controls: Controls, caption: str) -> Figure:
    """A panel per math mode at the size of the tables: the fastest of each dialect and library, with B both ways."""
    size = max((size for size in set(frame["m"]) if size <= workloads.LARGEST), default=min(frame["m"]))
    frame = frame[frame["m"] == size]
    maths = frames.maths_of(frame)
    who = [name for name in ("cublas", "cublaslt", "cutlass", *DIALECTS) if name in set(_who(frame))]
    figure = Figure(figsize=(style.WIDTH, 3.6))
    subtitle = f"at {size}³, the fastest kernel of each; filled: {LAYOUT_WORDS['kn']}, hatched: {LAYOUT_WORDS['nk']}"
    top = style.heading(figure, "What the layout of B is worth", subtitle)
    titles = {math: math + controls.mark(m=size, math=math) for math in maths}
    bottom = style.footer(figure, explained(caption, *titles.values()))
    axes = figure.subplots(1, len(maths), sharey=True, squeeze=False)[0]
    for ax, math in zip(axes, maths, strict=True):
        best = frame[frame["math"] == math].groupby([_who(frame), "b_layout"])["tflops"].max()
        for y, name in enumerate(who):
            for lane, layout in enumerate(B_LAYOUTS):
                value = best.get((name, layout))
                if value is None:
                    continue
                at, colour = y + 0.36 * (lane - 0.5), style.look_of(name).colour
                fill = {"color": colour} if layout == "kn" else {"fc": "none", "ec": colour, "hatch": "////"}
                ax.barh(at, value, height=0.3, lw=0.8, **fill)
                ax.annotate(f"{value:.0f}", (value, at), (3, 0), textcoords="offset points", va="center", size=7)
        ax.set_title(titles[math], size=9.5)
        ax.set_xlabel("TFLOP/s")
        ax.margins(x=0.18)
        style.bare(ax, "y")
    axes[0].set_yticks(range(len(who)), [_LIBRARIES.get(name) or DIALECTS[name].title for name in who])
    axes[0].set_ylim(len(who) - 0.5, -0.5)
    figure.tight_layout(rect=(0, bottom, 1, top))
    return figure


_LIBRARIES = {"cublas": "cuBLAS", "cublaslt": "cuBLASLt best", "cutlass": "CUTLASS"}


def _who(frame: pd.DataFrame) -> pd.Series:
    """A rung's dialect, or a library's name."""
    return frame["dialect"].where(frame["dialect"] != "", frame["backend"]).rename("who")
