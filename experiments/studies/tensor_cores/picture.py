"""Plots of `tensor_cores`, the share of cuBLAS by math mode and what the layout of B is worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed, format_short_percent
from experiments.records import frames, store, workloads
from experiments.records.controls import CONTROL, Controls, explained
from experiments.records.frames import LAYOUT, LAYOUT_WORDS
from gemm_ref import B_LAYOUTS, DIALECTS, STAGES
from gemm_ref.baselines import BASELINES

_VALUE = {"textcoords": "offset points", "va": "center", "size": 7}
_OVER = {"textcoords": "offset points", "ha": "center", "size": 9.5, "weight": "bold"}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw tensor_cores.csv of `folder`; nothing where nothing was timed."""
    frame = store.read(folder, "tensor_cores")
    if frame.empty or frame["vs_cublas"].isna().all():
        return
    controls = Controls(frame)
    frame = frames.defaults(frame[frame["vs_cublas"].notna() & (frame["stage"] != CONTROL)])
    caption = store.caption(frame, folder)
    yield "tensor_cores_vs_cublas", _shares(frames.shown(frame), controls, caption)
    yield "tensor_cores_layouts", _layouts(frame, controls, caption)


def _shares(frame: pd.DataFrame, controls: Controls, caption: str) -> Figure:
    """A row per kernel and library, a column per math mode and size."""
    maths, sizes = frames.maths_of(frame), sorted(set(frame["m"]))
    columns = [(math, size) for math in maths for size in sizes]
    marks = {(math, size): controls.mark(m=size, math=math, b_layout=LAYOUT[math]) for math, size in columns}
    frame = frame[frame["backend"] != "cublas"]
    rows = style.kernels_of(frame)
    shares = np.full((len(rows), len(columns)), np.nan)
    texts = np.array([[_absent(stage, math) for math, _ in columns] for stage, _ in rows], dtype=object)
    for row in frame.itertuples():
        place = rows.index((row.stage, row.dialect)), columns.index((row.math, row.m))
        shares[place] = 100 * row.vs_cublas
        texts[place] = format_short_percent(shares[place])
    subtitle = "at each M = N = K; the median of the ratios in a round; each dialect's best variant"
    caption = explained(style.with_absent(frames.with_modes(caption, maths), texts.flat), *marks.values())
    size, title = (style.WIDTH, 2.75 + 0.27 * len(rows)), "Share of cuBLAS on tensor cores"
    sheet = Sheet(size, title, subtitle, caption, scale=maps.SHARE)
    ax = sheet.figure.subplots()
    maps.kernel_map(ax, shares, rows, [f"{edge}{marks[math, edge]}" for math, edge in columns], texts)
    for nth, math in enumerate(maths):
        ax.annotate(math, ((nth + 0.5) * len(sizes), 1), (0, 20), xycoords=ax.get_xaxis_transform(), **_OVER)
        ax.axvline(nth * len(sizes), color=style.MUTED, lw=0.8 * (nth > 0))
    return sheet.place(0.55, 0.02 * size[1], left=0.24, right=0.985)


def _absent(stage: str, math: str) -> str:
    maths = STAGES[stage].maths if stage in STAGES else BASELINES[stage].maths
    return style.NOT_RUN if math in maths else style.NO_KERNEL


def _layouts(frame: pd.DataFrame, controls: Controls, caption: str) -> Figure:
    """A panel per math mode at the size of the tables: the fastest of each dialect and library, with B both ways."""
    size = max((size for size in set(frame["m"]) if size <= workloads.LARGEST), default=min(frame["m"]))
    frame = frame[frame["m"] == size]
    maths = frames.maths_of(frame)
    who = [name for name in ("cublas", "cublaslt", "cutlass", *DIALECTS) if name in set(_who(frame))]
    subtitle = f"at {size}³, the fastest kernel of each; filled: {LAYOUT_WORDS['kn']}, hatched: {LAYOUT_WORDS['nk']}"
    titles = {math: math + controls.mark(m=size, math=math) for math in maths}
    caption = explained(caption, *titles.values())
    sheet = Sheet((style.WIDTH, 3.6), "What the layout of B is worth", subtitle, caption)
    axes = sheet.figure.subplots(1, len(maths), sharey=True, squeeze=False)[0]
    for ax, math in zip(axes, maths, strict=True):
        best = frame[frame["math"] == math].groupby([_who(frame), "b_layout"])["tflops"].max()
        for y, name in enumerate(who):
            for lane, layout in enumerate(B_LAYOUTS):
                value = best.get((name, layout))
                if value is None:
                    ax.annotate(style.NO_KERNEL, (0, y), (3, 0), color=style.MUTED, **_VALUE)
                    continue
                at, colour = y + 0.36 * (lane - 0.5), style.look_of(name).colour
                fill = {"color": colour} if layout == "kn" else {"fc": "none", "ec": colour, "hatch": "////"}
                ax.barh(at, value, height=0.3, lw=0.8, **fill)
                ax.annotate(format_fixed(value), (value, at), (3, 0), **_VALUE)
        ax.set_title(titles[math], size=9.5)
        ax.set_xlabel("TFLOP/s")
        ax.margins(x=0.18)
        style.bare(ax, "y")
    axes[0].set_yticks(range(len(who)), [_LIBRARIES.get(name) or DIALECTS[name].title for name in who])
    axes[0].set_ylim(len(who) - 0.5, -0.5)
    return sheet.fit()


_LIBRARIES = {"cublas": "cuBLAS", "cublaslt": "cuBLASLt best", "cutlass": "CUTLASS"}


def _who(frame: pd.DataFrame) -> pd.Series:
    """A rung's dialect, or a library's name."""
    return frame["dialect"].where(frame["dialect"] != "", frame["backend"]).rename("who")
