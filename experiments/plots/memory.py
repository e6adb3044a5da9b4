"""The plots of `memory`: a table of sectors and bank conflicts, the ladder of arithmetic intensity, banks by lane."""

from __future__ import annotations

from pathlib import Path

import matplotlib.ticker as ticker
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from experiments.plots import memory_hardware
from experiments.plots.look import style
from experiments.plots.memory_banks import banks
from experiments.records import environment, frames, store, traffic
from experiments.records.controls import size_name
from experiments.records.rows import HARDWARE, PASS
from gemm_ref import DIALECTS
from gemm_ref.ptx.count.sectors import SECTOR

_COST = LinearSegmentedColormap.from_list("cost", ["#eef7dd", "#f6d8a8", "#d1495b"])  # free .. wasteful
_SECTORS = {"loads of A": ("load", "A"), "loads of B": ("load", "B"), "stores": ("store", None)}
_CONFLICTS = {"reads": "load", "writes": "store"}
_LEVELS = {  # level -> title of its panel
    "shared": "shared memory: 128 bytes a wavefront",
    "l2": "global memory: 32 bytes a sector (│ each sector once)",
}


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw memory.csv of `folder` into `target` as PNG and SVG, at the size with the most kernels."""
    frame = store.read(folder, "memory")
    counted = frame[frame["status"] == PASS]
    if counted.empty:
        return []
    m, n, k = frames.fullest(counted.drop_duplicates(list(traffic.KERNEL)))
    counted = counted[(counted["m"] == m) & (counted["n"] == n) & (counted["k"] == k)]
    caption = environment.compilers_caption(store.runs_of(counted, folder))
    compiled = traffic.best_view(counted)
    paths = []
    with style.themed():
        paths += style.save(_requests(compiled, caption), target, "memory_requests")
        paths += style.save(_intensity(compiled, caption), target, "memory_intensity")
        if figure := banks(counted, caption):
            paths += style.save(figure, target, "memory_banks")
        if figure := memory_hardware.figure(counted, _hardware_caption(counted, folder)):
            paths += style.save(figure, target, "memory_hardware")
    return paths


def _hardware_caption(counted: pd.DataFrame, folder: Path) -> str:
    """Of the GPU that counted, which need not be the machine that predicted."""
    return environment.caption(store.runs_of(counted[counted["view"] == HARDWARE], folder))


# --- sectors per request, and bank conflicts -------------------------------------------------------------------


def _requests(frame: pd.DataFrame, caption: str) -> Figure:
    """A row a variant; a column per dialect, five times: what each kind of access costs."""
    rows = style.rows_of(frame)
    figure = Figure(figsize=(style.WIDTH, 2.4 + 0.36 * len(rows)))
    subtitle = "32-byte sectors per request of a warp · wavefronts over those without bank conflicts, of the worst line"
    top = style.heading(figure, f"What a warp's requests cost, at {size_name(frame)}", subtitle)
    bottom = style.footer(figure, caption)
    axes = figure.subplots(1, len(_SECTORS) + len(_CONFLICTS), sharey=True)
    cells = _cells(frame, rows)
    for ax, (title, (texts, costs)) in zip(axes, cells.items(), strict=True):
        worst = 32 if title in _CONFLICTS else SECTOR // 4  # wavefronts for one; bytes moved for one asked for
        sns.heatmap(
            costs,
            vmin=1,  # else it looks for the least, even where there is none
            vmax=worst,
            norm=LogNorm(1, worst),
            cmap=_COST,
            annot=texts,
            fmt="",
            annot_kws={"size": 8, "color": style.INK},
            linewidths=2,
            cbar=False,
            xticklabels=[DIALECTS[dialect].title for dialect in DIALECTS],
            yticklabels=[style.label_of(*row).replace("\n", " · ") for row in rows],
            ax=ax,
        )
        ax.set_title(title, loc="center", size=9.5, pad=20)
        ax.grid(False)
        ax.xaxis.tick_top()
        ax.tick_params(length=0, rotation=0, labelsize=8)
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.24, right=0.985, top=top - 0.62 / height, bottom=bottom + 0.12 / height, wspace=0.06)
    for axs, title in ((axes[: len(_SECTORS)], "global memory"), (axes[len(_SECTORS) :], "shared memory")):
        middle = (axs[0].get_position().x0 + axs[-1].get_position().x1) / 2
        figure.text(middle, top - 0.02 / height, title, ha="center", va="top", size=9.5, color=style.MUTED)
    return figure


def _cells(frame: pd.DataFrame, rows: list[tuple[str, str]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each panel the texts and the costs, (rows, dialects): bytes moved a byte asked for, or conflicts."""
    kinds = frame["kind"].str.removeprefix("async ")
    found = {}
    for title, (kind, array) in _SECTORS.items():
        own = frame[(frame["space"] == "global") & (kinds == kind)]
        if array:
            own = own[own["array"] == array]
        found[title] = _grid(own, rows, lambda part: (_a_request(part), _bytes_a_byte(part)))
    for title, kind in _CONFLICTS.items():
        own = frame[(frame["space"] == "shared") & (kinds == kind)]
        found[title] = _grid(own, rows, lambda part: (_short(_conflict(part)), _conflict(part)))
    return found


def _grid(frame: pd.DataFrame, rows: list[tuple[str, str]], cell) -> tuple[np.ndarray, np.ndarray]:
    texts = np.full((len(rows), len(DIALECTS)), "", dtype=object)
    costs = np.full(texts.shape, np.nan)
    for (stage, variant, dialect), part in frame.groupby(["stage", "variant", "dialect"]):
        place = rows.index((stage, variant)), list(DIALECTS).index(dialect)
        text, cost = cell(part)
        texts[place], costs[place] = text, max(1.0, float(cost))
    return texts, costs


def _a_request(part: pd.DataFrame) -> str:
    return _short(part["sectors"].sum() / part["requests"].sum())


def _bytes_a_byte(part: pd.DataFrame) -> float:
    return SECTOR * part["sectors"].sum() / (part["lane_bytes"] * part["lanes"]).sum()


def _conflict(part: pd.DataFrame) -> float:
    """Of the source line that conflicts most."""
    return (part["wavefronts"] / part["ideal"]).max()


def _short(value: float) -> str:
    return f"{value:.3g}"


# --- arithmetic intensity ------------------------------------------------------------------------------------


def _intensity(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per rung, a panel a level of memory, FLOP per byte across."""
    table = traffic.totals(frame)
    rows = style.rungs_of(table)
    figure = Figure(figsize=(style.WIDTH, 2.2 + 0.52 * len(rows)))
    title = f"The ladder of arithmetic intensity, at {size_name(frame)}"
    top = style.heading(figure, title, "2MNK FLOP over the bytes moved; each dialect's best variant, others hollow")
    bottom = style.footer(figure, caption)
    axes = figure.subplots(1, len(_LEVELS), sharex=True, sharey=True)
    values = table[["shared_intensity", "l2_intensity", "dram_intensity"]]
    axes[0].set_xscale("log")
    axes[0].set_xlim(values.min().min() / 1.8, values.max().max() * 5)  # room for the numbers on the right
    axes[0].set_ylim(len(rows) - 0.45, -0.55)
    axes[0].set_yticks(range(len(rows)), [style.label_of(row) for row in rows])
    for ax, (level, title) in zip(axes, _LEVELS.items(), strict=True):
        ax.set_title(title, loc="center", size=9.5, weight="normal")
        style.bands(ax, len(rows))
        for row in table[table[f"{level}_intensity"].notna()].itertuples():
            y = rows.index(row.stage) + style.LANE * style.LOOKS[row.dialect].lane
            _mark(ax, row, y, getattr(row, f"{level}_intensity"))
            if level == "l2":
                ax.plot([row.dram_intensity] * 2, [y - 0.12, y + 0.12], color=style.BASELINE, lw=1.6, zorder=2)
        ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(ticker.NullLocator())
        ax.set_xlabel("FLOP per byte, log scale")
        style.bare(ax, "y")
    style.legend(figure, axes[0])
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.165, right=0.985, top=top - 0.3 / height, bottom=bottom + 0.48 / height, wspace=0.05)
    return figure


def _mark(ax: Axes, row, y: float, value: float) -> None:
    colour, marker = style.LOOKS[row.dialect].colour, style.LOOKS[row.dialect].marker
    if not frames.is_default(row.stage, row.variant, row.dialect):
        ax.plot(value, y, marker, color=colour, zorder=2, **style.OTHER)
        return
    ax.plot([ax.get_xlim()[0], value], [y, y], color=colour, alpha=0.25, lw=1.2, zorder=1)
    ax.plot(value, y, marker, color=colour, ms=5, zorder=3)
    ax.annotate(style.number(value), (0.985, y), xycoords=("axes fraction", "data"), va="center", ha="right", size=8)
