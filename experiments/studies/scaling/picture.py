"""The plots of `scaling`: how much of its speed a GPU keeps beside others; and, by the model, beside how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed
from experiments.records import scaling, store
from experiments.records.rows import STRONG, WEAK
from gemm_ref import MATHS
from gemm_ref.distributed.layouts import FUSED, IN_TURN, LAYOUTS, OVERLAPPED
from gemm_ref.distributed.model import Model
from gemm_ref.problem import Problem

COLOURS = {IN_TURN: "#9aa5b1", FUSED: "#c05621", OVERLAPPED: "#1c6fb5"}
_MARKERS = {True: "o", False: "s"}  # of cuBLAS, and of our rungs
_LINES = {STRONG: "-", WEAK: ":"}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw scaling.csv of `folder`; nothing where nothing was timed."""
    own = scaling.timed(store.read(folder, "scaling"))
    if own.empty:
        return
    caption = store.caption(own, folder)
    divided = own[own["scaling"] == STRONG]
    if len(divided):
        yield "scaling", _measured(divided, caption)
    if models := scaling.models(folder, scaling.ASSUMED):
        yield "scaling_model", _predicted(scaling.compared(own, scaling.models(folder)), models, caption)


def _measured(frame: pd.DataFrame, caption: str) -> Figure:
    counts = set(zip(frame["math"], frame["gpus"], strict=True))
    lines = [(math, gpus) for math in MATHS for gpus in sorted(frame["gpus"].unique()) if (math, gpus) in counts]
    layouts = [layout for layout in LAYOUTS if (frame["layout"] == layout).any()]
    subtitle = (
        "speed of a GPU as a share of one that is alone, in the same rounds: median and its 95% interval;\n"
        "M = N = K of the product, which is divided among the GPUs"
    )
    size, title = (style.WIDTH, 1.9 + 1.75 * len(lines)), "What a GPU keeps of its speed beside others"
    sheet = Sheet(size, title, subtitle, caption)
    axes = sheet.figure.subplots(len(lines), len(layouts), squeeze=False, sharey=True)
    for line, (math, gpus) in zip(axes, lines, strict=True):
        for ax, layout in zip(line, layouts, strict=True):
            own = frame[(frame["math"] == math) & (frame["gpus"] == gpus) & (frame["layout"] == layout)]
            if own.empty:  # a grid of two
                ax.set_axis_off()
                continue
            _efficiencies(ax, own)
            ax.set_title(f"{layout}, {math}, {gpus} GPUs", size=9.5)
        line[0].set_ylabel("% of alone", size=9)
    axes[0][0].set_ylim(0, max(105.0, 103 * frame["efficiency"].max()))
    _legend(sheet.figure, _key())
    return sheet.fit()


def _efficiencies(ax: Axes, frame: pd.DataFrame) -> None:
    """A group of points for each size, and in it one for each who and way."""
    edges = _edges(frame)
    groups = sorted(set(edges))
    who = sorted(set(zip(frame["dialect"], frame["stage"], strict=True)), key=lambda each: (bool(each[0]), each[1]))
    turns = [(each, way) for each in who for way in COLOURS]
    for row, edge in zip(frame.itertuples(), edges, strict=True):
        turn = turns.index(((row.dialect, row.stage), row.way))
        x, colour = groups.index(edge) + 0.8 * ((turn + 0.5) / len(turns) - 0.5), COLOURS[row.way]
        ax.plot([x, x], [100 * row.efficiency_low, 100 * row.efficiency_high], color=colour, lw=1.2)
        ax.plot(x, 100 * row.efficiency, _MARKERS[not row.dialect], color=colour, ms=4)
    ax.axhline(100, color=style.BASELINE, lw=1)
    ax.set_xticks(range(len(groups)), [str(edge) for edge in groups], size=7)


def _edges(frame: pd.DataFrame) -> pd.Series:
    """Of the cube that was divided, or that each GPU has."""
    volume = frame["m"].astype(float) * frame["n"] * frame["k"]
    return ((volume / frame["gpus"].where(frame["scaling"] == WEAK, 1)) ** (1 / 3)).round().astype(int)


def _predicted(frame: pd.DataFrame, models: Mapping[scaling.Kernel, Model], caption: str) -> Figure:
    """For one local product: our last rung in the math mode with the most, or else cuBLAS; fused ones are cuBLAS'."""
    kernel = max(models, key=lambda each: (each[2] == "bf16", bool(each[1]), each[0]))
    library = next((each for each in models if each[2] == kernel[2] and not each[1]), kernel)
    own = frame[frame["math"] == kernel[2]]
    edge = int(_edges(own).groupby(own["scaling"]).max().min())  # that was divided, and has grown, where anything has
    one = Problem(edge, edge, edge, kernel[2])
    off = 100 * frame["error"].abs()
    median, most = format_fixed(off.median()), format_fixed(off.max())
    subtitle = (
        f"{style.label_of(kernel[0])}, {kernel[2]}, {one.m} × {one.m} × {one.m}: divided (—), or for each GPU (···); "
        f"marks: measured\nthe model is off by {median}% (median) and {most}% (most) at {len(off)} points; past 8 GPUs "
        "one adapter of 400 Gb/s each is assumed, not measured"
    )
    sheet = Sheet((style.WIDTH, 4.3), "What the model expects of up to 1024 GPUs", subtitle, caption)
    axes = sheet.figure.subplots(1, len(LAYOUTS), sharey=True)
    counts = 2 ** np.arange(scaling.MOST_GPUS.bit_length())
    for ax, layout in zip(axes, LAYOUTS, strict=True):
        for way, colour in COLOURS.items():
            own = library if way == FUSED else kernel
            if way == FUSED and (layout == LAYOUTS[2] or library[1]):
                continue
            for kind, line in _LINES.items():
                shares = [100 * models[own].efficiency(layout, way, one, int(count), kind == WEAK) for count in counts]
                ax.plot(counts, shares, line, color=colour, lw=1.3)
                there = frame[(frame["layout"] == layout) & (frame["way"] == way) & (frame["scaling"] == kind)]
                for row in there.itertuples():
                    alone = one.flops * (row.gpus if kind == WEAK else 1)
                    if (row.stage, row.dialect, row.math) == own and 2 * row.m * row.n * row.k == alone:
                        ax.plot(row.gpus, 100 * row.efficiency, _MARKERS[not row.dialect], color=colour, ms=4)
        ax.set_xscale("log", base=2)
        ax.set_xticks([1, 8, 64, 1024], ["1", "8", "64", "1024"])
        ax.set_title(layout, size=9.5)
        ax.set_xlabel("GPUs", size=9)
    axes[0].set_ylabel("speed of a GPU, % of alone", size=9)
    axes[0].set_ylim(0, 120)  # past 100: a GPU that computes alone, and so for longer, is at its power cap
    _legend(sheet.figure, _key()[: len(COLOURS)])
    return sheet.fit()


def _legend(figure: Figure, handles: list[Line2D]) -> None:
    narrow = {"fontsize": 8, "handletextpad": 0.1, "columnspacing": 1}
    figure.legend(handles=handles, ncols=len(handles), **narrow, **style.AT_THE_TOP)


def _key() -> list[Line2D]:
    ways = [Line2D([], [], color=colour, marker="o", ms=4, lw=0, label=way) for way, colour in COLOURS.items()]
    kinds = {True: "cuBLAS", False: "our rungs"}
    who = [Line2D([], [], color=style.INK, marker=_MARKERS[of], ms=4, lw=0, label=name) for of, name in kinds.items()]
    return ways + who
