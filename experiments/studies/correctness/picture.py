"""The plot of `correctness`: how much of the allowed error is used over K, and by name whatever did not pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gemm_ref
from experiments.publish.drawing import style
from experiments.publish.drawing.labels import label_line_ends
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_short_percent
from experiments.records import frames, store
from experiments.records.rows import PASS, SKIPPED

_KERNEL = ["stage", "variant", "dialect"]
# Of what GPUs multiply themselves, in the order of the registry.
COLOURS = ("#0173b2", "#de8f05", "#029e73", style.INK, "#cc78bc")
_MARKERS = "osD^v"
_ABOVE = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right", "size": 8.5}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw correctness.csv of `folder`; nothing where there are no rows."""
    frame = store.read(folder, "correctness")
    if len(frame):
        yield "correctness", _figure(frame, store.caption(frame, folder))


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    run = frame[frame["status"] != SKIPPED]
    passed = run[run["status"] == PASS]
    failures = list(_failures(run))
    subtitle = "\n".join((_what_ran(frame, run), _largest(passed)))
    good, count = frames.tally(run)
    title = f"{good:,} of {count:,} checks passed"
    sheet = Sheet((style.NARROW, 4.5), title, subtitle, caption, failed=failures)
    ax = sheet.figure.subplots()
    sheet.place(0.08, 0.48, left=0.125, right=0.9)
    _shares(ax, passed)
    return sheet.figure


def _what_ran(frame: pd.DataFrame, run: pd.DataFrame) -> str:
    there = set(zip(*(run[name] for name in _KERNEL), strict=True))
    absent = {(item.stage.id, item.variant, item.dialect) for item in gemm_ref.implementations()} - there
    parts = [f"{len(there)} kernels at {run['k'].nunique()} depths of K"]
    parts += [f"{len(frame) - len(run):,} checks skipped"] if len(run) < len(frame) else []
    parts += [f"{len(absent)} kernels not run"] if absent else []
    return ", ".join(parts)


def _largest(passed: pd.DataFrame) -> str:
    if passed["bound_share"].isna().all():
        return "no error was measured"
    share = 100 * passed["bound_share"].max()
    exact = (passed.loc[passed["inputs"] == "integers", "bound_share"] == 0).all()
    words = " on integer inputs there is none" if exact and (passed["inputs"] == "integers").any() else ""
    return f"the largest error is {format_short_percent(share)}% of what is allowed" + (f";{words}" if words else "")


def _failures(run: pd.DataFrame) -> Iterator[str]:
    """A line for each kernel of which a check did not pass."""
    checks = run.groupby(_KERNEL)["checks"].sum()
    for kernel, own in run[run["status"] != PASS].groupby(_KERNEL, sort=False):
        first = own.iloc[0]
        where = f"{first.math} at {first.m} × {first.n} × {first.k}"
        yield f"{style.kernel_name(*kernel)}: {len(own)} of {checks[kernel]} failed, such as {where}"


def _shares(ax: Axes, passed: pd.DataFrame) -> None:
    """The largest share of any check at each K, a line per math mode, named at its right end."""
    some = passed[passed["bound_share"] > 0]
    ax.set_xscale("log")
    ax.set_yscale("log")
    ends = {}
    native = [math for math in frames.maths_of(some) if math in gemm_ref.NATIVE]  # what s20 promises is tighter
    for place, math in enumerate(native):
        largest = 100 * some[some["math"] == math].groupby("k")["bound_share"].max()
        ax.plot(largest.index, largest, marker=_MARKERS[place], ms=4.5, lw=1.2, color=COLOURS[place])
        ends[math] = (float(largest.index[-1]), float(largest.iloc[-1]))
    ax.axhline(100, color=style.FAILED, lw=1.2)
    ax.annotate("all that is allowed", (1, 100), (0, 3), **_ABOVE)
    style.plain(ax.xaxis, ax.yaxis)
    ax.set_xlabel("K, log scale")
    ax.set_ylabel("% of the allowed error, log scale")
    style.bare(ax, "x")
    ax.set_ylim(top=180)
    if ends:
        label_line_ends(ax, ends, 100)
