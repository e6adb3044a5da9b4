"""Plots of the ladder: each rung's share of cuBLAS, and the TFLOP/s of every variant and library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_number, format_short_percent
from experiments.records import frames, store
from experiments.records.controls import explained, size_name
from experiments.records.rows import SKIPPED
from gemm_ref import DIALECTS, STAGES

_STEP = 0.27  # of a rung's row, from one dialect's bar to the next
_THICK = 0.9 * _STEP
_NOTE = {"textcoords": "offset points", "va": "center", "size": 8, "color": style.MUTED}
_LINE_LABEL = {"textcoords": "offset points", "va": "bottom", "size": 9, "color": style.BASELINE, "ha": "right"}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw ladder.csv of `folder` at the size with the most kernels."""
    frame = store.read(folder, "ladder")
    timed = frames.timed(frame)
    if timed.empty:
        return
    at_size = frames.at(frame[frame["math"] == "fp32"], frames.most_measured_size(timed))
    caption = explained(store.caption(timed, folder), size_name(at_size))
    yield "ladder_tflops", _speed(at_size, caption)
    shares = at_size[at_size["vs_cublas"].notna() & (at_size["dialect"] != "")]
    if len(shares):
        yield "ladder_vs_cublas", _share(shares, caption)


MIN_ROWS = 4  # the height is that of at least so many rows, so that title and caption leave room for the axes


def _share(frame: pd.DataFrame, caption: str) -> Figure:
    """The ladder in one look: a row per rung, a bar per dialect, in a figure that a telephone shows whole."""
    rows, best = style.rungs_of(frame), frames.fastest_variants(frame)
    texts = {(y, dialect): style.absent(stage, dialect) for y, stage in enumerate(rows) for dialect in DIALECTS}
    longest = {(rows.index(row.stage), row.dialect): 100 * row.vs_cublas for row in best.itertuples()}
    texts |= {bar: f"{format_short_percent(share)}%" for bar, share in longest.items()}
    low, high = (format_short_percent(100 * value) for value in (best["vs_cublas"].iloc[0], best["vs_cublas"].max()))
    subtitle = f"fp32 at {size_name(frame)}: each dialect's fastest variant;\na notch in a bar is another variant"
    caption = style.with_absent(f"median of the ratios in a round · {caption}", texts.values())
    title = f"From {low}% to {high}% of cuBLAS, rung by rung"
    size = style.NARROW, 1.75 + 0.34 * max(len(rows), MIN_ROWS)
    ax = _rows(Sheet(size, title, subtitle, caption), (1.38, 1.58), [style.label_of(row) for row in rows])
    ax.set_xlim(0, 105 * max(1.0, best["vs_cublas"].max()))
    ax.xaxis.set_major_locator(ticker.MultipleLocator(25))
    ax.set_xlabel("% of cuBLAS' speed")
    _line(ax, 100, "cuBLAS")
    for row in frame.itertuples():
        place, share = rows.index(row.stage), 100 * row.vs_cublas
        y = place + _STEP * style.look_of(row.dialect).lane
        if row.Index in best.index:
            ax.barh(y, share, height=_THICK, color=style.look_of(row.dialect).colour, lw=0, zorder=2)
        else:
            ax.vlines(share, y - _THICK / 2, y + _THICK / 2, color="white", lw=1.2, zorder=3)
    style.columns(ax, texts, 0.5)
    return ax.figure


def _speed(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per variant and library, a mark per dialect."""
    rows = style.rows_of(frame)
    own = frame[[key in rows for key in zip(frame["stage"], frame["variant"], strict=True)]]
    texts = {(y, dialect): style.absent(*row, dialect) for y, row in enumerate(rows) for dialect in _kinds(row[0])}
    subtitle = f"TFLOP/s, fp32 at {size_name(frame)}: medians, and a bar from the 20th to the 80th percentile"
    caption, size = style.with_absent(caption, texts.values()), (style.WIDTH, 1.8 + 0.3 * len(rows))
    names = [style.label_of(*row, " · ") for row in rows]
    ax = _rows(Sheet(size, "The speed of every variant", subtitle, caption), (2.25, 2.6), names)
    ax.set_xlim(0, 1.06 * own["tflops"].max())
    ax.set_xlabel("TFLOP/s")
    for row in own.itertuples():
        y = rows.index((row.stage, row.variant))
        if pd.isna(row.tflops):
            ax.annotate(_why_not(row), (0, y), (4, 0), **_NOTE)
            continue
        look = style.look_of(row.dialect)
        texts[y, row.dialect] = format_number(row.tflops)
        height = y + 0.25 * look.lane
        ax.plot(frames.spread(row), [height] * 2, color=look.colour, lw=3, alpha=0.45, solid_capstyle="butt", zorder=2)
        ax.plot(row.tflops, height, look.marker, color=look.colour, ms=5, zorder=3)
    reference = frame[frame["backend"] == "cublas"]
    if not reference.empty:
        _line(ax, reference.iloc[0]["tflops"], f"cuBLAS {format_number(reference.iloc[0]['tflops'])}")
    style.columns(ax, texts, 0.6)
    return ax.figure


def _kinds(stage: str) -> tuple[str, ...]:
    """The dialects of a rung's row; the empty one of a library's."""
    return tuple(DIALECTS) if stage in STAGES else ("",)


def _why_not(row) -> str:
    """A short word for a row without a time."""
    detail = row.detail if len(row.detail) <= 80 else f"{row.detail[:79]}…"
    return f"not timed: {detail}" if row.status == SKIPPED else f"{row.status}: {detail}"


def _rows(sheet: Sheet, beside: tuple[float, float], names: list[str]) -> Axes:
    """The axes of a sheet that has inches `beside` them, left and right, for the rows' names and for numbers."""
    ax = sheet.figure.subplots()
    left, right = (side / sheet.figure.get_figwidth() for side in beside)
    sheet.place(0.4, 0.45, left=left, right=1 - right)
    style.rows(ax, names)
    return ax


def _line(ax: Axes, x: float, text: str) -> None:
    """The speed of the library that the rungs are compared with."""
    ax.axvline(x, color=style.BASELINE, lw=1.2, zorder=1)
    ax.annotate(text, (x, 1), (0, 3), xycoords=("data", "axes fraction"), **_LINE_LABEL)
