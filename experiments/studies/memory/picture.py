"""The plots of `memory`: what requests cost, arithmetic intensity, and banks by lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_number
from experiments.records import environment, frames, store, traffic
from experiments.records.controls import size_name
from experiments.records.rows import PASS
from gemm_ref import DIALECTS
from gemm_ref.ptx.count.banks import BANKS, WORD, turns
from gemm_ref.ptx.count.counts import WRITTEN
from gemm_ref.ptx.count.sectors import SECTOR, WARP

_SECTORS = {"loads of A": ("load", "A"), "loads of B": ("load", "B"), "stores": ("store", None)}
_CONFLICTS = {"reads": "load", "writes": "store"}
_NONE = "none"  # of such accesses
_LEVELS = {  # level -> title of its panel
    "shared": "shared memory: 128 bytes per wavefront",
    "l2": "global memory: 32 bytes per sector (│ each sector once)",
}
_NOWHERE = -1
TURNS = maps.Scale.of(  # of a lane whose turn is the first, counted from 0, and so on
    ("1", "2 to 8", "9 to 16", "17 to 24", "25 to 32"),
    ("#2f78c4", "#f4984f", "#d9641a", "#a34708", "#6b2d04"),
    (1, 8, 16, 24),
    "served in wavefront:",
)
COLOURS = tuple(colour for _, colour in TURNS.steps)


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw memory.csv of `folder` at the size with the most kernels."""
    frame = store.read(folder, "memory")
    counted = frame[frame["status"] == PASS]
    if counted.empty:
        return
    counted = frames.at(counted, frames.most_measured_size(counted.drop_duplicates(list(traffic.KERNEL))))
    caption = environment.compilers_caption(store.runs_of(counted, folder))
    compiled = traffic.best_view(counted)
    yield "memory_requests", _requests(compiled, caption)
    yield "memory_intensity", _intensity(compiled, caption)
    if figure := _banks(counted, caption):
        yield "memory_banks", figure


# --- what requests cost ----------------------------------------------------------------------------------------


def _requests(frame: pd.DataFrame, caption: str) -> Figure:
    """A row a variant; a column per dialect, five times: what each kind of access costs."""
    rows = style.rows_of(frame)
    subtitle = (
        "global memory: bytes of the sectors moved, per byte that the lanes ask for; below 1 lanes share bytes\n"
        "shared memory: wavefronts, per wavefront that it takes without bank conflicts, of the worst line"
    )
    cells = _cells(frame, rows)
    texts = {text for words, _ in cells.values() for text in words.flat}
    caption = style.with_absent(f"none: no such access · {caption}", texts)
    size, title = (style.WIDTH, 2.85 + 0.3 * len(rows)), f"What a warp's requests cost, at {size_name(frame)}"
    sheet = Sheet(size, title, subtitle, caption, scale=maps.COST)
    axes = sheet.figure.subplots(1, len(cells))
    titles = [dialect.title for dialect in DIALECTS.values()]
    for ax, (title, (words, costs)) in zip(axes, cells.items(), strict=True):
        names = [style.label_of(*row, " · ") if ax is axes[0] else "" for row in rows]
        maps.draw(ax, costs, words, names, titles, maps.COST)
        ax.set_title(title, loc="center", size=9.5, pad=8)
    sheet.place(0.62, 0.08, left=0.24, right=0.985, wspace=0.06)
    for axs, title in ((axes[: len(_SECTORS)], "global memory"), (axes[len(_SECTORS) :], "shared memory")):
        sheet.head((axs[0].get_position().x0 + axs[-1].get_position().x1) / 2, title)
    return sheet.figure


def _cells(frame: pd.DataFrame, rows: list[tuple[str, str]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each panel the texts and the costs, (rows, dialects): bytes moved per byte asked for, or conflicts."""
    kinds = frame["kind"].str.removeprefix("async ")
    there = set(zip(frame["stage"], frame["variant"], frame["dialect"], strict=True))
    found = {}
    for title, (kind, array) in _SECTORS.items():
        own = frame[(frame["space"] == "global") & (kinds == kind)]
        found[title] = _grid(own[own["array"] == array] if array else own, rows, there, _bytes_per_byte)
    for title, kind in _CONFLICTS.items():
        found[title] = _grid(frame[(frame["space"] == "shared") & (kinds == kind)], rows, there, _conflict)
    return found


def _grid(
    frame: pd.DataFrame, rows: list[tuple[str, str]], there: set[tuple[str, str, str]], cost: Callable
) -> tuple[np.ndarray, np.ndarray]:
    keys = [[(*row, dialect) for dialect in DIALECTS] for row in rows]
    texts = np.array([[_NONE if key in there else style.absent(*key) for key in line] for line in keys], dtype=object)
    costs = np.full(texts.shape, np.nan)
    for (stage, variant, dialect), part in frame.groupby(["stage", "variant", "dialect"]):
        place = rows.index((stage, variant)), list(DIALECTS).index(dialect)
        costs[place] = float(f"{cost(part):.2g}")  # the shade is that of the number that is shown
        texts[place] = f"{costs[place]:g}"
    return texts, costs


def _bytes_per_byte(part: pd.DataFrame) -> float:
    return SECTOR * part["sectors"].sum() / (part["lane_bytes"] * part["lanes"]).sum()


def _conflict(part: pd.DataFrame) -> float:
    """Of the source line that conflicts most."""
    return (part["wavefronts"] / part["ideal"]).max()


# --- arithmetic intensity ------------------------------------------------------------------------------------


def _intensity(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per rung, a panel a level of memory, FLOP per byte across."""
    table = traffic.totals(frame)
    rows = style.rungs_of(table)
    size, title = (style.WIDTH, 2.2 + 0.52 * len(rows)), f"FLOP per byte that moves, at {size_name(frame)}"
    sheet = Sheet(size, title, "more is better; each dialect's best variant, others hollow", caption)
    axes = sheet.figure.subplots(1, len(_LEVELS), sharex=True, sharey=True)
    values = table[["shared_intensity", "l2_intensity", "dram_intensity"]]
    axes[0].set_xscale("log")
    axes[0].set_xlim(values.min().min() / 1.8, values.max().max() * 5)  # room for the numbers on the right
    for ax, (level, title) in zip(axes, _LEVELS.items(), strict=True):
        ax.set_title(title, loc="center", size=9.5, weight="normal")
        style.rows(ax, [style.label_of(row) for row in rows])
        there = table[table[f"{level}_intensity"].notna()]
        for row in there.itertuples():
            y = rows.index(row.stage) + style.LANE * style.LOOKS[row.dialect].lane
            _mark(ax, row, y, getattr(row, f"{level}_intensity"))
            if level == "l2":
                ax.plot([row.dram_intensity] * 2, [y - 0.12, y + 0.12], color=style.BASELINE, lw=1.6, zorder=2)
        for y, row in enumerate(rows):
            if row not in set(there["stage"]):
                style.note(ax, y, f"uses no {level} memory")
        style.plain(ax.xaxis)
        ax.set_xlabel("FLOP per byte, log scale")
    style.gaps(axes[0], rows, table)
    style.legend(sheet.figure, table["dialect"])
    return sheet.place(0.3, 0.48, left=0.165, right=0.985, wspace=0.05)


def _mark(ax: Axes, row, y: float, value: float) -> None:
    look = style.LOOKS[row.dialect]
    if not frames.is_default(row.stage, row.variant, row.dialect):
        ax.plot(value, y, look.marker, color=look.colour, zorder=2, **style.OTHER)
        return
    ax.plot(value, y, look.marker, color=look.colour, ms=5, zorder=3)
    ax.annotate(format_number(value), (0.985, y), xycoords=("axes fraction", "data"), va="center", ha="right", size=8)


# --- banks by lane -------------------------------------------------------------------------------------------


def _banks(frame: pd.DataFrame, caption: str) -> Figure | None:
    """The rung of which an access conflicts most, a column a variant, a row per access; None where none conflicts.

    Of accesses of 4 bytes per lane, as written; the request with most conflicts of each.
    """
    own = frame[(frame["view"] == WRITTEN) & (frame["space"] == "shared") & (frame["lane_bytes"] == WORD)]
    own = own.assign(factor=own["wavefronts"] / own["ideal"])
    if own.empty or own["factor"].max() <= 1:
        return None
    worst = own.loc[own["factor"].idxmax()]
    own = own[(own["stage"] == worst["stage"]) & (own["dialect"] == worst["dialect"])]
    keys = ["kind", "array"]
    accesses = [key for key, part in own.groupby(keys, sort=False) if part["factor"].max() > 1]
    variants = [variant for stage, variant in style.rows_of(own)]
    return _draw_banks(own, accesses, variants, caption)


def _draw_banks(frame: pd.DataFrame, accesses: list[tuple[str, str]], variants: list[str], caption: str) -> Figure:
    first = frame.iloc[0]
    name = f"{style.label_of(first['stage'])}, {DIALECTS[first['dialect']].title}"
    subtitle = "across: the 32 lanes of a warp; down: the 32 banks of shared memory; the request with most conflicts"
    size, title = (style.WIDTH, 1.8 + 2.1 * len(accesses)), f"Which bank each lane asks: {name}"
    sheet = Sheet(size, title, subtitle, caption, scale=TURNS)
    axes = sheet.figure.subplots(len(accesses), len(variants), sharex=True, sharey=True, squeeze=False)
    for line, (kind, array) in zip(axes, accesses, strict=True):
        for ax, variant in zip(line, variants, strict=True):
            own = frame[(frame["variant"] == variant) & (frame["kind"] == kind) & (frame["array"] == array)]
            _bank_panel(ax, own)
        line[0].set_ylabel(f"{'reads' if kind == 'load' else 'writes'} of {array or 'shared memory'}", size=9.5)
    for ax, variant in zip(axes[0], variants, strict=True):
        ax.annotate(variant, (0.5, 1.16), xycoords="axes fraction", ha="center", size=10, weight="bold")
    return sheet.place(0.42, 0.25, left=0.075, right=0.985, hspace=0.2, wspace=0.08)


def _bank_panel(ax: Axes, own: pd.DataFrame) -> None:
    ax.set_xlim(-0.5, WARP - 0.5)
    ax.set_ylim(BANKS - 0.5, -0.5)
    ax.set_xticks((0, 8, 16, 24, 31))
    ax.set_yticks((0, 8, 16, 24, 31))
    style.bare(ax)
    ax.tick_params(labelsize=7.5)
    ax.set_facecolor(style.BAND)
    if own.empty:
        return
    row = own.loc[own["factor"].idxmax()]
    words = [_NOWHERE if word == "-" else int(word) for word in row["words"].split()]
    asked = turns(WORD * np.array(words), np.array(words) != _NOWHERE, WORD, pairs=True)
    lanes, places = [lane for lane, _, _ in asked], [word % BANKS for _, word, _ in asked]
    colours = [TURNS.shade(wavefront) for _, _, wavefront in asked]
    ax.scatter(lanes, places, c=colours, marker="s", s=15, linewidths=0, zorder=3)
    each = row["wavefronts"] / row["requests"]
    ax.set_title(f"line {row['line']}: {each:.3g} wavefront{'s' if each > 1 else ''}", size=8.5, weight="normal", pad=4)
