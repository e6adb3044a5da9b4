"""The plots of `energy`: what the values of the inputs do to a kernel that is held; each rung, in a burst and held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed
from experiments.records import frames, store
from experiments.records.controls import CONTROL
from experiments.records.rows import BURST, SUSTAINED
from gemm_ref import DIALECTS, MATHS

COLOURS = {"zeros": "#cbd2d9", "integers": "#94b8e0", "uniform": "#3f78b5", "normal": "#1c3f6b"}
_PANELS = (
    ("relative", "speed, normal inputs = 1"),
    ("sm_mhz", "SM clock, MHz (median)"),
    ("power_w", "power, W (median)"),
    ("per_watt", "TFLOP/s per W"),
)


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw energy.csv of `folder`; nothing where nothing was timed."""
    frame = frames.defaults(store.read(folder, "energy").dropna(subset="median_us"))
    frame = frame[frame["stage"] != CONTROL]
    if frame.empty:
        return
    frame = frame.sort_values("math", key=lambda names: names.map(list(MATHS).index), kind="stable")
    held, normal = frame[frame["mode"] == SUSTAINED], frame[frame["inputs"] == "normal"]
    kinds = held.groupby(["math", "stage", "dialect", "m"])["inputs"].transform("nunique")
    every_kind = _largest(held[kinds > 1])
    both = _largest(normal[normal["m"].isin(normal[normal["mode"] == BURST]["m"])])
    if len(every_kind):
        yield "energy", _figure(every_kind, store.caption(every_kind, folder))
    if len(both):
        yield "energy_rungs", _rungs(both, store.caption(both, folder))


def _largest(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the largest size, at which power matters most."""
    return frame[frame["m"] == frame["m"].max()]


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    frame = frame.assign(who=[_who(row) for row in frame.itertuples()], per_watt=frame["tflops"] / frame["power_w"])
    names = list(dict.fromkeys(frame["who"]))
    normal = frame[frame["inputs"] == "normal"].set_index("who")["tflops"]
    frame = frame.assign(relative=frame["tflops"] / frame["who"].map(normal))
    first = frame.iloc[0]
    subtitle = f"the same kernel, back to back at {first.m:.0f} × {first.n:.0f} × {first.k:.0f}; only the values differ"
    sheet = Sheet((style.WIDTH, 1.7 + 0.62 * len(names)), "What the values of the inputs do", subtitle, caption)
    axes = sheet.figure.subplots(1, len(_PANELS), sharey=True)
    for ax, (column, title) in zip(axes, _PANELS, strict=True):
        for lane, (kind, colour) in enumerate(COLOURS.items()):
            own = frame[frame["inputs"] == kind].set_index("who")[column].reindex(names)
            y = np.arange(len(names)) + (lane - 1.5) * 0.19
            ax.barh(y, own, height=0.17, color=colour, label=kind, lw=0)
            for place, value in zip(y, own, strict=True):
                if not np.isnan(value):
                    text = format_fixed(value, 2) if value < 10 else format_fixed(value)
                    ax.annotate(text, (value, place), (3, 0), textcoords="offset points", va="center", size=6.5)
        ax.set_title(title, size=9)
        ax.set_xmargin(0.16)
        style.bare(ax, "y")
        ax.tick_params(axis="x", labelsize=7)
    axes[0].set_yticks(range(len(names)), names, size=8)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    sheet.figure.legend(handles, labels, ncols=4, **style.AT_THE_TOP)
    return sheet.fit()


def _rungs(frame: pd.DataFrame, caption: str) -> Figure:
    """A row of panels for each math mode: speed in a burst and held, and what is computed for a joule."""
    maths = {math: frame[frame["math"] == math] for math in frames.maths_of(frame)}
    names = {math: list(dict.fromkeys([*style.rungs_of(own), *own["stage"]])) for math, own in maths.items()}
    heights = [len(of_one) for of_one in names.values()]
    first = frame.iloc[0]
    size = f"{first.m:.0f} × {first.n:.0f} × {first.k:.0f}"
    subtitle = f"back to back at {size}, normal numbers; ring: a burst of 20 ms; dot: held for seconds"
    sheet = Sheet((style.WIDTH, 1.8 + 0.34 * sum(heights)), "What holds for seconds, and for a watt", subtitle, caption)
    axes = sheet.figure.subplots(len(names), 2, sharey="row", squeeze=False, height_ratios=heights)
    for (left, right), (math, own) in zip(axes, maths.items(), strict=True):
        _marks(left, names[math], own.assign(value=own["tflops"]))
        _marks(right, names[math], own.assign(value=own["tflops"] / own["power_w"]))
        for ax in (left, right):
            style.rows(ax, [f"{style.label_of(name)} {math}" for name in names[math]], size=8)
            ax.set_xlim(0, 1.03 * ax.get_xlim()[1])  # a ring is wider than the margin where all values are alike
        style.gaps(left, names[math], own)
    axes[0][0].set_title("TFLOP/s", size=9.5)
    axes[0][1].set_title("TFLOP/s per W, held", size=9.5)
    style.legend(sheet.figure, frame["dialect"], "o")
    return sheet.fit()


def _marks(ax: Axes, names: list[str], own: pd.DataFrame) -> None:
    for row in own[own["value"].notna()].itertuples():
        look, mark = style.look_of(row.dialect), {"ms": 7, "mfc": "none"} if row.mode == BURST else {"ms": 3.5}
        ax.plot(row.value, names.index(row.stage) + style.LANE * look.lane, "o", color=look.colour, mew=1, **mark)


def _who(row) -> str:
    if not row.dialect:
        return f"{style.label_of(row.stage)} {row.math}"
    return f"{row.stage[:3]} {DIALECTS[row.dialect].title} {row.math}"
