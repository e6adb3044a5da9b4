"""The plots of `choice`: what is lost by choosing without trying, and how near predicted times are to measured ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.problem_rows import mark_fastest, problem_rows
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed
from experiments.records import frames, store, workloads
from experiments.records.controls import Controls
from gemm_ref import DIALECTS


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw the fp32 rows of choice.csv of `folder`; nothing where none was timed."""
    frame = frames.held_out(frames.tried(store.read(folder, "choice")))
    frame = frame[frame["math"] == "fp32"]
    own = frames.rungs(frame)
    if len(own):
        caption = store.caption(own, folder)
        yield "choice_regret", _regret(own, Controls(frame), caption)
        yield "choice_predicted", _predicted(own, caption)


def _regret(own: pd.DataFrame, controls: Controls, caption: str) -> Figure:
    """What is lost at each problem, in each dialect, and by Triton's autotune."""
    found = frames.regrets(own).assign(stage="", median_us=0.0)
    sizes = list(dict.fromkeys(found[list(frames.SIZES)].itertuples(index=False, name=None)))
    shapes = [workloads.Shape("", "", "", "", "", each) for each in sizes]
    subtitle = "% that the chosen tile and blocks take longer than the fastest; x is what Triton's autotune picked"
    figure, ax = problem_rows("What is lost by choosing without trying, fp32", subtitle, shapes, controls, caption)
    ax.set_xlabel("% of the fastest candidate's time", size=9)
    chosen = found[found["regret"].notna()]
    mark_fastest(ax, shapes, chosen, lambda row: 100 * row.regret, lambda row: "", width=0.5)
    for row in found[found["tuned"].notna()].itertuples():
        y = sizes.index((row.m, row.n, row.k))
        ax.plot(100 * row.tuned, y, "x", color=style.look_of(row.dialect).colour, ms=5, mew=1)
    ax.set_xlim(-1, max(16, 1.05 * ax.get_xlim()[1]))
    return figure


def _predicted(own: pd.DataFrame, caption: str) -> Figure:
    """A panel for each dialect: every candidate's predicted time over its measured one."""
    there = [name for name in DIALECTS if name in set(own["dialect"])]
    subtitle = "every candidate that was timed; those that were chosen are filled"
    sheet = Sheet((style.WIDTH, 4.2), "Predicted beside measured times, fp32", subtitle, caption)
    axes = sheet.figure.subplots(1, len(there), sharex=True, sharey=True, squeeze=False)[0]
    ends = [own[["median_us", "predicted_us"]].min().min(), own[["median_us", "predicted_us"]].max().max()]
    for ax, dialect in zip(axes, there, strict=True):
        of, look = own[own["dialect"] == dialect], style.look_of(dialect)
        taken = of[of["chosen"] == 1]
        off = 100 * np.abs(of["predicted_us"] / of["median_us"] - 1).median()
        ax.plot(ends, ends, color=style.BASELINE, lw=1, zorder=1)
        many = {"rasterized": True, **style.OTHER}  # thousands of marks weigh more than their picture
        ax.plot(of["median_us"], of["predicted_us"], look.marker, color=look.colour, **many)
        ax.plot(taken["median_us"], taken["predicted_us"], look.marker, color=look.colour, ms=4.5, ls="none")
        ax.set(xscale="log", yscale="log", xlabel="measured µs, log scale")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        ax.set_title(f"{DIALECTS[dialect].title}: {format_fixed(off)}% off, median", size=9.5)
    axes[0].set_ylabel("predicted µs, log scale")
    return sheet.fit()
