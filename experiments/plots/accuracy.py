"""The plot of `accuracy`: relative error over K, a line per kernel, the math modes far apart."""

from __future__ import annotations

from pathlib import Path

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.look import style
from experiments.records import environment, frames, store
from gemm_ref import DIALECTS
from gemm_ref.dialect import BY_HAND

_LABEL = {"textcoords": "offset points", "size": 7.5, "va": "center"}


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw accuracy.csv of `folder` into `target` as PNG and SVG; nothing where there are no errors."""
    frame = store.read(folder, "accuracy")
    frame = frame[frame["rel_error"].notna()]
    if frame["k"].nunique() < 2:
        return []
    caption = environment.caption(store.runs_of(frame, folder))
    with style.themed():
        return style.save(_figure(frame, caption), target, "accuracy")


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    figure = Figure(figsize=(style.WIDTH, 5.6))
    first = frame.iloc[0]
    subtitle = f"||C - oracle|| / ||oracle|| (Frobenius) for C of {first.m:.0f} × {first.n:.0f}, normal inputs, over K"
    top = style.heading(figure, "How the error grows with K", subtitle)
    bottom = style.footer(figure, caption)
    in_fp32 = frame["math"] == "fp32"
    panels = [(panel, rows) for panel, rows in ((_fp32, frame[in_fp32]), (_modes, frame[~in_fp32])) if len(rows)]
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (panel, rows) in zip(axes, panels, strict=True):
        panel(ax, rows)
        ax.set_xscale("log", base=4)
        ax.set_yscale("log")
        ax.set_xlabel("K")
        ax.margins(x=0.14)
        ax.xaxis.set_major_locator(ticker.FixedLocator(sorted(set(frame["k"]))))
        ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.0f}"))
        ax.tick_params(axis="x", labelsize=7)
        style.bare(ax, "x")
    axes[0].set_ylabel("relative error")
    figure.tight_layout(rect=(0, bottom, 1, top))
    return figure


def _fp32(ax: Axes, rows: pd.DataFrame) -> None:
    rungs = frames.rungs(rows)
    for (_, dialect), own in rungs.groupby(["stage", "dialect"], sort=False):
        _line(ax, own, style.LOOKS[dialect].colour, lw=1.1, alpha=0.75)
    by_hand = rungs[rungs["dialect"] == BY_HAND]
    ends = [(stage[:3], own.sort_values("k").iloc[-1], "black") for stage, own in by_hand.groupby("stage")]
    for name, own in rows[rows["dialect"] == ""].groupby("stage", sort=False):
        cublas = name == "cublas"
        who = style.label_of(name)
        end = _line(ax, own, style.BASELINE, lw=2.2 if cublas else 1.1, label=who if cublas else None)
        ends += [] if cublas else [(who, end, "black")]
    _label_ends(ax, ends)
    for dialect in dict.fromkeys(rungs["dialect"]):
        ax.plot([], [], color=style.LOOKS[dialect].colour, label=DIALECTS[dialect].title)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, loc="upper left", ncols=2)
    ax.set_title("fp32", size=9.5)


def _modes(ax: Axes, rows: pd.DataFrame) -> None:
    """cuBLAS and the top rung in each mode; of the others, which the CSV has too, most lie on these lines."""
    by_hand = rows[rows["dialect"] == BY_HAND]
    top, ends = by_hand["stage"].max(), []
    name = f"{str(top)[:3]}, {DIALECTS[BY_HAND].title}"
    for of, colour, label in (
        (rows[rows["backend"] == "cublas"], style.BASELINE, style.label_of("cublas")),
        (by_hand[by_hand["stage"] == top], style.LOOKS[BY_HAND].colour, name),
    ):
        ends += [(math, _line(ax, own, colour, lw=1.8), colour) for math, own in of.groupby("math")]
        if len(of):
            ax.plot([], [], color=colour, label=label)
    _label_ends(ax, ends)
    ax.legend(frameon=False, loc="upper left")
    ax.set_title("Tensor cores, by math mode", size=9.5)


def _line(ax: Axes, own: pd.DataFrame, colour: str, **look) -> pd.Series:
    """Draw one kernel's errors; return its last row."""
    own = own.sort_values("k")
    ax.plot(own["k"], own["rel_error"], color=colour, **look)
    return own.iloc[-1]


def _label_ends(ax: Axes, ends: list[tuple[str, pd.Series, str]]) -> None:
    """Name each line, given as its name, last row and colour, behind its right end.

    Lines that end within 3% of each other share a label, which is black where their colours differ.
    """
    groups: list[list[tuple[str, pd.Series, str]]] = []
    for name, end, colour in sorted(ends, key=lambda line: (line[1].k, line[1].rel_error)):
        last = groups[-1][0][1] if groups else None
        if last is not None and end.k == last.k and end.rel_error < 1.03 * last.rel_error:
            groups[-1].append((name, end, colour))
        else:
            groups.append([(name, end, colour)])
    for group in groups:
        names, colours, end = {line[0] for line in group}, {line[2] for line in group}, group[0][1]
        rungs = sorted(name for name in names if name.startswith("s"))
        ordered = [f"{rungs[0]} to {rungs[-1]}"] if len(rungs) > 2 else rungs
        text = "\n".join(ordered + sorted(names - set(rungs)))
        colour = colours.pop() if len(colours) == 1 else "black"
        ax.annotate(text, (end.k, end.rel_error), (5, 0), color=colour, **_LABEL)
