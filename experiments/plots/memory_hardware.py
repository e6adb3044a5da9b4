"""The plot of what was predicted over what the hardware counted, for each kernel and kind of access."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

import gemm_ref
from experiments.plots.look import style
from experiments.records import traffic
from gemm_ref import DIALECTS

_SHADES = LinearSegmentedColormap.from_list("off", ["#d1495b", "#f6dfc6", "#eef7dd", "#f6dfc6", "#d1495b"])
_FAR = 0.1  # what is off by this share or more has the strongest shade


def figure(frame: pd.DataFrame, caption: str) -> Figure | None:
    """The ratios as a map, a row per kernel; None where the hardware was not asked."""
    table = traffic.confirmed(frame)
    if table.empty:
        return None
    ratios = table.xs("ratio", axis=1, level=1)
    order = {(item.stage.id, item.variant, item.dialect): i for i, item in enumerate(gemm_ref.implementations())}
    rows = sorted(ratios.index, key=lambda key: (order[key[0], key[1], key[3]], key[-1]))
    ratios = ratios.loc[rows]
    values = ratios.to_numpy(dtype=float)
    result = Figure(figsize=(style.WIDTH, 2.2 + 0.2 * len(rows)))
    subtitle = "sectors of global memory and wavefronts of shared memory: predicted as compiled / counted by ncu"
    top = style.heading(result, "What the hardware counted", subtitle)
    bottom = style.footer(result, caption)
    ax = result.subplots()
    sns.heatmap(
        np.clip(values, 1 - _FAR, 1 + _FAR),
        vmin=1 - _FAR,
        vmax=1 + _FAR,
        cmap=_SHADES,
        annot=np.array([["" if np.isnan(value) else f"{value:.3f}" for value in line] for line in values]),
        fmt="",
        annot_kws={"size": 6.5, "color": style.INK},
        linewidths=1,
        cbar=False,
        xticklabels=[f"{space}\n{traffic.TITLES[space, kind]}" for space, kind in ratios.columns],
        yticklabels=[_name(key) for key in rows],
        ax=ax,
    )
    ax.grid(False)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, labelsize=7)
    ax.tick_params(axis="y", rotation=0)
    ax.set_ylabel("")
    result.subplots_adjust(left=0.3, right=0.985, top=top - 0.45 / result.get_figheight(), bottom=bottom + 0.01)
    return result


def _name(key: tuple) -> str:
    stage, variant, _, dialect = key[:4]
    second = " · second kernel" if key[-1] == 2 else ""
    words = style.label_of(stage) + ("" if variant == "default" else f" · {variant}")
    return f"{words} {DIALECTS[dialect].title}{second}"
