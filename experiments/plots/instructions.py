"""Plots of `instructions`: what main loops are made of, what blocks take of a multiprocessor, on each architecture."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.plots.look import style
from experiments.records import environment, store
from experiments.records.compiled import MAIN_ARCHITECTURE, at_one_size, defaults
from gemm_ref import DIALECTS
from gemm_ref.sass.mix import GROUPS
from gemm_ref.sass.occupancy import ARCHITECTURES

_ROW_INCHES = 0.62
_LANE = 0.25  # of a rung's row, from one dialect to the next
_COLOURS = MappingProxyType(
    {
        "multiply-add": "#2f6f73",
        "shared read": "#e9a03b",
        "shared write": "#f3cf8e",
        "global": "#7b5ea7",
        "integer": "#9aa5b1",
        "control": "#52606d",
        "spill": style.FAILED,
        "other": "#dde2e8",
    }
)
_NARROW = 5.5  # %: where a number does not fit into its bar
_KIB = 1024


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw instructions.csv of `folder` into `target` as PNG and SVG; nothing where nothing was compiled.

    Of several sizes the one with the most kernels is drawn, of a rung's variants each dialect's default, and of several
    architectures sm_90a, if it is there; what they differ in has a plot of its own.
    """
    frame = defaults(at_one_size(store.read(folder, "instructions")))
    if frame.empty:
        return []
    archs = [arch for arch in ARCHITECTURES if arch in set(frame["arch"])]
    one = frame[frame["arch"] == (MAIN_ARCHITECTURE if MAIN_ARCHITECTURE in archs else archs[0])]
    caption = environment.compilers_caption(store.runs_of(frame, folder))
    with style.themed():
        paths = style.save(_mix(one, caption), target, "instructions_mix")
        paths += style.save(_limits(one, caption), target, "instructions_limits")
        if len(archs) > 1:
            paths += style.save(_architectures(frame, archs, caption), target, "instructions_architectures")
        return paths


def _mix(frame: pd.DataFrame, caption: str) -> Figure:
    rungs = style.rungs_of(frame)
    first = frame.iloc[0]
    subtitle = f"shares of one trip's instructions, {first.arch}, each dialect's best variant; % is the multiply-adds"
    figure = Figure(figsize=(style.WIDTH, 2.2 + _ROW_INCHES * len(rungs)))
    inch = 1 / figure.get_figheight()
    top = style.heading(figure, "What the main loop of each rung is made of", subtitle)
    bottom = style.footer(figure, caption)
    ax = _rows(figure.subplots(), rungs)
    for row in frame.itertuples():
        look = style.LOOKS[row.dialect]
        y, left = rungs.index(row.stage) + _LANE * look.lane, 0.0
        for group, kinds in GROUPS.items():
            share = 100 * sum(getattr(row, kind) for kind in kinds) / row.instructions
            ax.barh(y, share, left=left, height=0.22, color=_COLOURS[group], lw=0)
            if group == "multiply-add":
                place = {"x": share - 0.7, "ha": "right", "color": "white"}
                if share < _NARROW:
                    place = {"x": share + 0.5, "ha": "left", "color": "black"}
                ax.text(y=y, s=f"{share:.1f}%", va="center_baseline", size=7, **place)
            left += share
        title = DIALECTS[row.dialect].title
        ax.text(-1, y, title, ha="right", va="center", size=7, color=look.colour)
    ax.tick_params(axis="y", pad=36)
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of the instructions of one trip")
    figure.legend(
        handles=[Patch(color=colour, label=group, lw=0) for group, colour in _COLOURS.items()],
        loc="upper left",
        ncols=len(GROUPS),
        frameon=False,
        bbox_to_anchor=(0.005, top + 0.06 * inch),
        fontsize=8,
        handlelength=1,
        handleheight=1,
        columnspacing=1.6,
    )
    figure.subplots_adjust(left=0.215, right=0.985, top=top - 0.34 * inch, bottom=bottom + 0.45 * inch)
    return figure


def _limits(frame: pd.DataFrame, caption: str) -> Figure:
    """Small multiples, a row per rung: registers, what was spilled, shared memory, and the warps that fit."""
    rungs = style.rungs_of(frame)
    arch = frame.iloc[0].arch
    sm = ARCHITECTURES[arch]
    panels = (
        ("registers", "a thread", frame["registers"], 255),
        ("spilled", "bytes per thread", frame["spill_bytes"], None),
        ("shared memory", "KiB per block", frame["shared_bytes"] / _KIB, None),
        ("warps that fit", f"of {sm.threads // 32} in an SM", frame["occupancy"] * sm.threads / 32, sm.threads // 32),
    )
    subtitle = f"{arch}, each dialect's best variant; spills are all accesses to local memory in the text of the kernel"
    figure, axes = _panels("What a rung takes of a multiprocessor", subtitle, caption, rungs, len(panels))
    for ax, (title, unit, values, most) in zip(axes, panels, strict=True):
        for row, value in zip(frame.itertuples(), values, strict=True):
            _mark(ax, rungs, row, value, 0)
        ax.set_xlim(0, 1.08 * (most or max(values.max(), 1)))
        if most:
            ax.axvline(most, color=style.BASELINE, lw=1, zorder=0)
        ax.set_title(title, size=9.5)
        ax.set_xlabel(unit)
    return figure


def _architectures(frame: pd.DataFrame, archs: list[str], caption: str) -> Figure:
    """Small multiples, a panel an architecture: how many instructions a multiply-add takes."""
    rungs = style.rungs_of(frame)
    subtitle = "all instructions of one trip over its multiply-adds, each dialect's best variant; an FFMA2 makes two"
    figure, axes = _panels("How many instructions a multiply-add takes", subtitle, caption, rungs, len(archs))
    costs = frame["instructions"] / (frame["flop_per_trip"] / 2)
    low, high = min(costs.min(), 1) / 1.25, 1.25 * costs.max()
    for ax, arch in zip(axes, archs, strict=True):
        ax.set_xscale("log")
        for row, cost in zip(frame.itertuples(), costs, strict=True):
            if row.arch == arch:
                _mark(ax, rungs, row, cost, low)
        ax.set_xlim(low, high)
        ax.axvline(1, color=style.BASELINE, lw=1, zorder=0)
        ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20) if low <= tick <= high]
        ax.xaxis.set_major_locator(ticker.FixedLocator(ticks))
        ax.xaxis.set_minor_locator(ticker.NullLocator())
        ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        ax.set_title(arch, size=9.5)
        ax.set_xlabel("instructions, log scale")
    return figure


def _mark(ax: Axes, rungs: list[str], row, value: float, start: float) -> None:
    """A kernel's value in its rung's row, with a line from `start`."""
    look = style.LOOKS[row.dialect]
    y, colour = rungs.index(row.stage) + _LANE * look.lane, look.colour
    ax.plot([start, value], [y, y], color=colour, alpha=0.25, lw=1.2, zorder=1)
    ax.plot(value, y, look.marker, color=colour, ms=4.5, zorder=3, clip_on=False)


def _panels(title: str, subtitle: str, caption: str, rungs: list[str], count: int) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels side by side that share a row per rung, with the dialects' legend."""
    figure = Figure(figsize=(style.WIDTH, 2.3 + 0.42 * len(rungs)))
    inch = 1 / figure.get_figheight()
    top = style.heading(figure, title, subtitle)
    bottom = style.footer(figure, caption)
    axes = [_rows(ax, rungs) for ax in figure.subplots(1, count, sharey=True, squeeze=False).flat]
    for ax in axes:
        ax.grid(True, axis="x", which="major")
    marks = [
        Line2D([], [], color=look.colour, marker=look.marker, ls="", label=DIALECTS[dialect].title)
        for dialect, look in style.LOOKS.items()
    ]
    figure.legend(handles=marks, loc="upper right", ncols=3, frameon=False, bbox_to_anchor=(0.99, 0.995))
    figure.subplots_adjust(left=0.165, right=0.98, top=top - 0.3 * inch, bottom=bottom + 0.45 * inch, wspace=0.14)
    return figure, axes


def _rows(ax: Axes, rungs: list[str]) -> Axes:
    """One horizontal band per rung, the first on top, with the names on the left."""
    ax.set_ylim(len(rungs) - 0.45, -0.55)
    ax.set_yticks(range(len(rungs)), [style.label_of(rung) for rung in rungs])
    style.bands(ax, len(rungs))
    style.bare(ax, "y")
    return ax
