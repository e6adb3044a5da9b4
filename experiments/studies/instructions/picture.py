"""Plots of `instructions`: what main loops are made of, what blocks take of a multiprocessor, on each architecture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_short_percent
from experiments.records import environment, store
from experiments.records.compiled import MAIN_ARCHITECTURE, at_one_size, compare_with_measured, defaults
from experiments.studies.instructions.waits import waits
from gemm_ref import DIALECTS, get_stage
from gemm_ref.sass.mix import GROUPS
from gemm_ref.sass.occupancy import ARCHITECTURES

COLOURS = {
    "multiply-add": "#2f6f73",
    "shared read": "#e9a03b",
    "shared write": "#f3cf8e",
    "global": "#7b5ea7",
    "integer": "#9aa5b1",
    "control": "#1d2630",
    "spill": style.FAILED,
    "other": "#dde2e8",
}
_KIB = 1024


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw instructions.csv of `folder`; nothing where nothing was compiled.

    Of several sizes the one with the most kernels is drawn, of a rung's variants each dialect's default, and of several
    architectures sm_90a, if it is there; what they differ in has a plot of its own.
    """
    frame = defaults(at_one_size(store.read(folder, "instructions")))
    if frame.empty:
        return
    archs = [arch for arch in ARCHITECTURES if arch in set(frame["arch"])]
    one = frame[frame["arch"] == (MAIN_ARCHITECTURE if MAIN_ARCHITECTURE in archs else archs[0])]
    caption = environment.compilers_caption(store.runs_of(frame, folder))
    yield "instructions_mix", _mix(one, caption)
    yield "instructions_limits", _limits(one, caption)
    if len(archs) > 1:
        yield "instructions_architectures", _architectures(frame, archs, caption)
    both, runs = compare_with_measured(folder)
    if len(both):
        yield "instructions_waits", waits(both, environment.caption(runs))


def _mix(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per rung, a bar per dialect: the parts of one trip through the main loop."""
    rungs = style.rungs_of(frame)
    subtitle = f"shares of one trip's instructions, {frame.iloc[0].arch}, each dialect's default variant"
    dialects = [dialect for dialect in DIALECTS if dialect in set(frame["dialect"])]
    texts = {(y, dialect): style.absent(rung, dialect) for y, rung in enumerate(rungs) for dialect in dialects}
    size, title = (style.WIDTH, 2.3 + 0.42 * len(rungs)), "What the main loop of each rung is made of"
    sheet = Sheet(size, title, subtitle, style.with_absent(caption, texts.values()))
    sheet.name_colours(COLOURS)
    ax = sheet.figure.subplots()
    style.rows(ax, [style.label_of(rung) for rung in rungs])
    for row in frame.itertuples():
        y, left = rungs.index(row.stage) + style.LANE * style.look_of(row.dialect).lane, 0.0
        for group, kinds in GROUPS.items():
            share = 100 * sum(getattr(row, kind) for kind in kinds) / row.instructions
            ax.barh(y, share, left=left, height=0.2, color=COLOURS[group], lw=0)
            left += share
        texts[rungs.index(row.stage), row.dialect] = f"{format_short_percent(100 * row.ffma_share)}%"
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of the instructions of one trip")
    sheet.place(0.72, 0.45, left=0.165, right=0.785)
    style.columns(ax, texts, 0.6, "multiply-adds")
    return sheet.figure


def _limits(frame: pd.DataFrame, caption: str) -> Figure:
    """Small multiples, a row per rung: registers, what was spilled, shared memory, and the warps that fit."""
    rungs = style.rungs_of(frame)
    arch = frame.iloc[0].arch
    sm = ARCHITECTURES[arch]
    panels = (
        ("registers", "per thread", frame["registers"], 255),
        ("spilled", "bytes per thread", frame["spill_bytes"], None),
        ("shared memory", "KiB per block", frame["shared_bytes"] / _KIB, None),
        ("warps that fit", f"of {sm.threads // 32} in an SM", frame["occupancy"] * sm.threads / 32, sm.threads // 32),
    )
    subtitle = (
        f"{arch}, each dialect's default variant; spills are all accesses to local memory in the text of the kernel"
    )
    figure, axes = _panels("What a rung takes of a multiprocessor", subtitle, caption, frame, len(panels))
    for ax, (title, unit, values, most) in zip(axes, panels, strict=True):
        for row, value in zip(frame.itertuples(), values, strict=True):
            y = _mark(ax, rungs, row, value)
            ax.plot([0, value], [y, y], color=style.look_of(row.dialect).colour, alpha=0.25, lw=1.2, zorder=1)
        ax.set_xlim(0, 1.08 * (most or max(values.max(), 1)))
        if most:
            ax.axvline(most, color=style.BASELINE, lw=1, zorder=0)
        ax.set_title(title, size=9.5)
        ax.set_xlabel(unit)
    style.gaps(axes[1], rungs, frame)
    return figure


def _architectures(frame: pd.DataFrame, archs: list[str], caption: str) -> Figure:
    """Small multiples, a panel an architecture: how many instructions a multiply-add takes."""
    rungs = style.rungs_of(frame)
    subtitle = "instructions of one trip / multiply-adds in it: fewer is better; each dialect's default variant"
    figure, axes = _panels("How many instructions a multiply-add takes", subtitle, caption, frame, len(archs))
    costs = frame["instructions"] / (frame["flop_per_trip"] / 2)
    for ax, arch in zip(axes, archs, strict=True):
        ax.set_xscale("log")
        own = frame["arch"] == arch
        for row, cost in zip(frame[own].itertuples(), costs[own], strict=True):
            _mark(ax, rungs, row, cost)
        _explain_gaps(ax, rungs, frame[own])
        ax.axvline(1, color=style.BASELINE, lw=1, zorder=0)
        ax.set_xlim(costs.min() / 1.4, 1.4 * costs.max())
        ax.xaxis.set_major_locator(ticker.LogLocator(10))
        style.plain(ax.xaxis)
        ax.set_title(arch, size=9.5)
        ax.set_xlabel("per multiply-add, log scale")
    return figure


def _explain_gaps(ax: Axes, rungs: list[str], frame: pd.DataFrame) -> None:
    """Why a rung has no mark on one architecture: it does not run there, or its instructions cannot be counted."""
    capability = ARCHITECTURES[frame.iloc[0].arch].capability
    for y, rung in enumerate(rungs):
        stage = get_stage(rung)
        if stage.refusal(capability):
            style.note(ax, y, "does not run here", right=True)
            continue
        counted = set(frame.loc[frame["stage"] == rung, "dialect"])
        for dialect in (name for name in stage.dialects if name not in counted):
            lane = y + style.LANE * style.look_of(dialect).lane
            style.note(ax, lane, f"{DIALECTS[dialect].title}: not counted", right=True)


def _mark(ax: Axes, rungs: list[str], row, value: float) -> float:
    """Mark a row's value in its lane, whose height is returned."""
    look = style.look_of(row.dialect)
    y = rungs.index(row.stage) + style.LANE * look.lane
    ax.plot(value, y, look.marker, color=look.colour, ms=4.5, zorder=3, clip_on=False)
    return y


def _panels(title: str, subtitle: str, caption: str, frame: pd.DataFrame, count: int) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels side by side that share a row per rung, with the dialects' legend."""
    rungs = style.rungs_of(frame)
    sheet = Sheet((style.WIDTH, 2.3 + 0.42 * len(rungs)), title, subtitle, caption)
    axes = sheet.figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for ax in axes:
        style.rows(ax, [style.label_of(rung) for rung in rungs])
        ax.grid(True, axis="x", which="major")
    style.legend(sheet.figure, frame["dialect"])
    sheet.place(0.3, 0.45, left=0.165, right=0.98, wspace=0.14)
    return sheet.figure, list(axes)
