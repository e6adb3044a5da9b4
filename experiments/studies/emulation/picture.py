"""The plot of `emulation`: what each mode with fp32 operands loses, by inputs and against its speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

import gemm_ref
from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed
from experiments.records import frames, store
from experiments.records.rows import HARDWARE
from gemm_ref import DIALECTS

_MARKERS = {"fp32": "|", "tf32": "x", **dict(zip(gemm_ref.EMULATED, "os", strict=True))}
_NAMES = {"fp32": "SGEMM", "tf32": "TF32"}
_ROW_IN, _LANE, _STEP = 0.5, 0.31, 0.09  # inches; of a row, from one mode to the next, and from one dialect to the next


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw emulation.csv of `folder`; nothing where no error is known."""
    frame = store.read(folder, "emulation").dropna(subset="max_error")
    if frame.empty:
        return
    if (frame["view"] == HARDWARE).any():  # what a GPU lost needs no prediction beside it
        frame = frame[frame["view"] == HARDWARE]
    depths = frame[frame["k"] <= 4096]["k"]
    frame = frame[frame["k"] == (depths.max() if len(depths) else frame["k"].min())]
    yield "emulation", _figure(frame, _speeds(folder), store.caption(frame, folder))


def _speeds(folder: Path) -> pd.DataFrame:
    """Each contender's TFLOP/s at the size of the tables; none where no emulated mode was timed."""
    own = {math: frames.at_tables(folder, math) for math in _MARKERS}
    if not any(len(own[math]) for math in gemm_ref.EMULATED):
        return pd.DataFrame()
    found = pd.concat([rows for rows in own.values() if len(rows)])
    return found[["stage", "variant", "dialect", "math", "tflops", "m"]]


def _figure(frame: pd.DataFrame, speeds: pd.DataFrame, caption: str) -> Figure:
    first, measured = frame.iloc[0], (frame["view"] == HARDWARE).all()
    kinds = list(dict.fromkeys(frame["inputs"]))
    how = "measured" if measured else "computed without a GPU, in the order in which each adds"
    subtitle = (
        f"C of {first.m:.0f} × {first.n:.0f}, K = {first.k:.0f}; {how}\n"
        "less is better; a rung's hollow mark: some lines were widened to fp32"
    )
    title = "What fp32 from tensor cores loses"
    heights = [_ROW_IN * len(kinds), 3.4][: 1 + (len(speeds) > 0)]
    sheet = Sheet((style.WIDTH, sum(heights, 1.9)), title, subtitle, caption)
    axes = sheet.figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    _by_inputs(axes[0], frame, kinds)
    if len(speeds):
        normal = frame[frame["inputs"] == "normal"]
        _against_speed(axes[1], normal.merge(speeds, on=["stage", "variant", "dialect", "math"]))
    maths = frames.maths_of(frame)
    marks = [Line2D([], [], color=style.INK, ls="", marker=_MARKERS[m], label=_NAMES.get(m, m)) for m in maths]
    marks += style.marks(frame["dialect"], "o")
    sheet.figure.legend(handles=marks, **style.AT_THE_TOP, ncols=4, fontsize=8)
    return sheet.fit()


def _by_inputs(ax: Axes, frame: pd.DataFrame, kinds: list[str]) -> None:
    style.rows(ax, kinds, size=8)
    dialects = list(DIALECTS)
    for row in frame.itertuples():
        y = float(kinds.index(row.inputs)) - _LANE  # SGEMM and TF32; below them a lane for each mode of ours
        if row.dialect:  # of one dialect below another, since their bits are often the same
            y += _LANE * (1 + gemm_ref.EMULATED.index(row.math)) + _STEP * (dialects.index(row.dialect) - 1)
        ax.plot(row.max_error, y, _MARKERS[row.math], **_look(row))
    ax.set_xscale("log")
    ax.set_xlabel("largest error of an element over |A| @ |B|, log scale", size=9)


def _against_speed(ax: Axes, frame: pd.DataFrame) -> None:
    for row in frame.itertuples():
        ax.plot(row.tflops, row.rel_error, _MARKERS[row.math], **_look(row))
        if not row.dialect:
            at = row.tflops, row.rel_error
            ax.annotate(_NAMES[row.math], at, (0, 6), textcoords="offset points", size=7, ha="center")
    ax.set(xscale="log", yscale="log", ylabel="||C - oracle|| / ||oracle||, log scale")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    style.plain(ax.xaxis)
    ax.set_xlabel(f"TFLOP/s at M = N = K = {format_fixed(frame['m_y'].max())}, log scale", size=9)


def _look(row) -> dict:
    look = style.look_of(row.dialect or "cublas")
    return {"color": look.colour, "ms": 5, "mew": 1.3, "mfc": "none" if row.widened > 0 else look.colour}
