"""The plot of `inputs`: speed, clock and power of each kernel by the kind of its inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.plots.look import style
from experiments.plots.look.sheet import Sheet
from experiments.records import environment, frames, store
from gemm_ref import DIALECTS, MATHS

COLOURS = {"zeros": "#cbd2d9", "integers": "#94b8e0", "uniform": "#3f78b5", "normal": "#1c3f6b"}
_PANELS = (
    ("relative", "speed, normal inputs = 1"),
    ("sm_mhz", "SM clock, MHz (median)"),
    ("power_w", "power, W (median)"),
)


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw inputs.csv of `folder` into `target` as PNG and SVG; nothing where nothing was timed."""
    frame = store.read(folder, "inputs")
    frame = frames.defaults(frame[frame["median_us"].notna()])
    frame = frame.sort_values("math", key=lambda names: names.map(list(MATHS).index), kind="stable")
    if frame.empty:
        return []
    caption = environment.caption(store.runs_of(frame, folder))
    with style.themed():
        return style.save(_figure(frame, caption), target, "inputs")


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    frame = frame.assign(who=[_who(row) for row in frame.itertuples()])
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
                    text = f"{value:.2f}" if column == "relative" else f"{value:.0f}"
                    ax.annotate(text, (value, place), (3, 0), textcoords="offset points", va="center", size=6.5)
        ax.set_title(title, size=9)
        ax.set_xmargin(0.16)
        style.bare(ax, "y")
        ax.tick_params(axis="x", labelsize=7)
    axes[0].set_yticks(range(len(names)), names, size=8)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    sheet.figure.legend(handles, labels, ncols=4, **style.AT_THE_TOP)
    sheet.fit()
    return sheet.figure


def _who(row) -> str:
    if not row.dialect:
        return f"{style.label_of(row.stage)} {row.math}"
    return f"{row.stage[:3]} {DIALECTS[row.dialect].title} {row.math}"
