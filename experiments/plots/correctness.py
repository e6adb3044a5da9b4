"""The plot of `correctness`: rung by dialect, each cell the largest share of the allowed error that was used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import gemm_ref
from experiments.plots.look import style
from experiments.records import environment, store
from experiments.records.rows import ERROR, FAIL, PASS
from gemm_ref import DIALECTS

_SHADES = LinearSegmentedColormap.from_list("share", ["#eef7dd", "#76b900"])  # nothing .. all of the allowed error


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw correctness.csv of `folder` into `target` as PNG and SVG; nothing where there are no rows."""
    frame = store.read(folder, "correctness")
    if frame.empty:
        return []
    caption = environment.caption(store.runs_of(frame, folder))
    with style.themed():
        return style.save(_matrix(frame, caption), target, "correctness")


def _matrix(frame: pd.DataFrame, caption: str) -> Figure:
    rows = style.rows_of(frame)
    shares = np.full((len(rows), len(DIALECTS)), np.nan)
    texts = np.full(shares.shape, "", dtype=object)
    wrong = np.zeros(shares.shape, dtype=bool)
    for y, (stage, variant) in enumerate(rows):
        for x, dialect in enumerate(DIALECTS):
            own = frame[(frame["stage"] == stage) & (frame["variant"] == variant) & (frame["dialect"] == dialect)]
            texts[y, x], shares[y, x], wrong[y, x] = _cell(own)
            if dialect not in gemm_ref.get_stage(stage).dialects:
                texts[y, x] = "no kernel"
    figure = Figure(figsize=(style.WIDTH, 1.6 + 0.5 * len(rows)))
    sizes = len(frame[["m", "n", "k"]].drop_duplicates())
    subtitle = f"the largest |error| of any element as a share of what is allowed, over {sizes} size{'s' * (sizes > 1)}"
    top = style.heading(figure, "Correctness", subtitle)
    bottom = style.footer(figure, caption)
    ax = figure.subplots()
    names = [DIALECTS[dialect].title for dialect in DIALECTS]
    sns.heatmap(
        shares,
        vmin=0,
        vmax=1,
        cmap=_SHADES,
        annot=texts,
        fmt="",
        annot_kws={"size": 8.5, "color": style.INK},
        linewidths=3,
        cbar=False,
        xticklabels=names,
        yticklabels=[style.label_of(*row) for row in rows],
        ax=ax,
    )
    for y, x in np.argwhere(np.isnan(shares)):  # the heatmap leaves these empty
        if wrong[y, x]:
            ax.add_patch(_red(x, y))
        colour = "white" if wrong[y, x] else style.MUTED
        ax.text(x + 0.5, y + 0.5, texts[y, x], ha="center", va="center", size=8.5, color=colour, zorder=4)
    ax.grid(False)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, rotation=0)
    figure.subplots_adjust(left=0.165, right=0.985, top=top - 0.2 / figure.get_figheight(), bottom=bottom + 0.02)
    return figure


def _cell(own: pd.DataFrame) -> tuple[str, float, bool]:
    """Text, share and 'is wrong' of one rung in one dialect."""
    if own.empty:
        return "not run", np.nan, False
    passed = own[own["status"] == PASS]
    failed = own["status"].isin([FAIL, ERROR])
    if failed.any():
        return f"{failed.sum()} of {len(own)} failed", np.nan, True
    if passed.empty:
        return "skipped", np.nan, False
    share = passed["bound_share"].max()
    return f"{100 * share:.2g}% · {len(passed)} passed", share, False


def _red(x: int, y: int) -> Rectangle:
    return Rectangle((x, y), 1, 1, facecolor=style.FAILED, edgecolor="white", lw=3, zorder=3)
