"""Plots of the ladder: TFLOP/s of every rung, and the same as a share of cuBLAS."""

from __future__ import annotations

from pathlib import Path

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gemm_ref
from experiments.plots.look import style
from experiments.records import environment, frames, store
from experiments.records.controls import explained, size_name
from experiments.records.rows import SKIPPED

_ROW_INCHES = 0.62


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw ladder.csv of `folder` into `target`, PNG and SVG, at the size with the most kernels."""
    frame = store.read(folder, "ladder")
    timed = frames.timed(frame)
    if timed.empty:
        return []
    at_size = frames.at(frame[frame["math"] == "fp32"], frames.fullest(timed))
    caption = explained(environment.caption(store.runs_of(timed, folder)), size_name(at_size))
    paths = []
    with style.themed():
        paths += style.save(_speed(at_size, caption), target, "ladder_tflops")
        if (at_size["vs_cublas"].notna() & (at_size["dialect"] != "")).any():
            paths += style.save(_share(at_size, caption), target, "ladder_vs_cublas")
    return paths


def _speed(frame: pd.DataFrame, caption: str) -> Figure:
    rows = style.rungs_of(frame)
    figure, ax = _figure(rows, f"The ladder at {size_name(frame)}, fp32", _MEDIAN_OF_TIMES, caption)
    ax.set_xscale("log")
    ax.set_xlim(*style.clear_of(list(frame["tflops"].dropna())))
    for row in frame.itertuples():
        if row.stage not in rows:
            continue
        y = rows.index(row.stage) + style.LANE * style.look_of(row.dialect).lane
        colour, marker = style.look_of(row.dialect).colour, style.look_of(row.dialect).marker
        if not frames.is_default(row.stage, row.variant, row.dialect):
            ax.plot(row.tflops, y, marker, color=colour, zorder=2, **style.OTHER)
            continue
        if pd.isna(row.tflops):
            ax.annotate(_why_not(row), (ax.get_xlim()[0], y), (6, 0), color=colour, **_VALUE)
            continue
        low, high = frames.spread(row)
        ax.plot([ax.get_xlim()[0], row.tflops], [y, y], color=colour, alpha=0.25, lw=1.2, zorder=1)
        ax.plot([low, high], [y, y], color=colour, lw=4, alpha=0.45, solid_capstyle="butt", zorder=2)
        ax.plot(row.tflops, y, marker, color=colour, ms=6, zorder=3)
        ax.annotate(style.number(row.tflops), (max(high, row.tflops), y), (7, 0), **_VALUE)
    _reference_line(ax, frame, "tflops", "cuBLAS {:.3g} TFLOP/s")
    ax.set_xlabel("TFLOP/s, log scale")
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    ax.grid(True, axis="x", which="major")
    return figure


def _why_not(row) -> str:
    """A short word for a row without a time."""
    detail = row.detail if len(row.detail) <= 80 else f"{row.detail[:79]}…"
    return f"not timed: {detail}" if row.status == SKIPPED else f"{row.status}: {detail}"


def _share(frame: pd.DataFrame, caption: str) -> Figure:
    title = f"Share of cuBLAS at {size_name(frame)}, fp32"
    frame = frame[frame["vs_cublas"].notna() & (frame["dialect"] != "")]
    rows = style.rungs_of(frame)
    figure, ax = _figure(rows, title, _MEDIAN_OF_RATIOS, caption)
    for row in frame.itertuples():
        y = rows.index(row.stage) + style.LANE * style.look_of(row.dialect).lane
        share, low, high = (100 * value for value in (row.vs_cublas, row.vs_cublas_low, row.vs_cublas_high))
        if not frames.is_default(row.stage, row.variant, row.dialect):
            ax.plot(share, y, "|", color=style.INK, ms=7, alpha=0.5, zorder=2)
            continue
        ax.barh(y, share, height=0.21, color=style.LOOKS[row.dialect].colour, lw=0)
        ax.plot([low, high], [y, y], color=style.INK, lw=1.2)
        ax.annotate(f"{style.number(share)}%", (high, y), (5, 0), **_VALUE)
    ax.set_xlim(0, 110 * max(1.0, frame["vs_cublas_high"].max()))
    ax.axvline(100, color=style.BASELINE, lw=1.2)
    ax.annotate("cuBLAS", (100, 1), (0, 3), xycoords=("data", "axes fraction"), ha="center", **_LINE_LABEL)
    ax.set_xlabel("% of cuBLAS' speed")
    return figure


_MEDIAN_OF_TIMES = "each dialect's best variant, others hollow; median, with a bar from the 20th to the 80th percentile"
_MEDIAN_OF_RATIOS = "each dialect's best variant, others a tick; median of the ratios in a round, and its 95% interval"
_VALUE = {"textcoords": "offset points", "va": "center", "size": 8}
_LINE_LABEL = {"textcoords": "offset points", "va": "bottom", "size": 8.5, "color": style.BASELINE}


def _figure(rows: list, title: str, subtitle: str, caption: str) -> tuple[Figure, Axes]:
    """A figure with one horizontal band per row and the names on the left."""
    figure = Figure(figsize=(style.WIDTH, 1.9 + _ROW_INCHES * len(rows)))
    top = style.heading(figure, title, subtitle)
    bottom = style.footer(figure, caption)
    ax = figure.subplots()
    ax.set_ylim(len(rows) - 0.45, -0.55)  # the first rung on top
    ax.set_yticks(range(len(rows)), [style.label_of(row) for row in rows])
    style.bands(ax, len(rows))
    style.bare(ax, "y")
    if any(row in gemm_ref.STAGES for row in rows):
        style.legend(figure, ax)
    figure.subplots_adjust(left=0.165, right=0.985, top=top - 0.22 / figure.get_figheight())
    figure.subplots_adjust(bottom=bottom + 0.45 / figure.get_figheight())
    return figure, ax


def _reference_line(ax: Axes, frame: pd.DataFrame, column: str, text: str) -> None:
    reference = frame[frame["backend"] == "cublas"]
    if reference.empty:
        return
    value = reference.iloc[0][column]
    ax.axvline(value, color=style.BASELINE, lw=1.2, zorder=1)
    ax.annotate(text.format(value), (value, 1), (0, 3), xycoords=("data", "axes fraction"), ha="right", **_LINE_LABEL)
