"""Plots of the ceilings: what was reached of what the vendor says, and with the ladder's times the roofline.

The roofline has across what a kernel asks for: FLOP per byte of the sectors that it requests from global memory, which
L1 or L2 has to deliver. Left are all rungs, right those that are crowded under the roof of arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.ticker as ticker
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

import gemm_ref
from experiments.publish.drawing import style
from experiments.publish.drawing.labels import label_line_ends
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_fixed, format_number
from experiments.records import environment, frames, store
from experiments.records.ceilings import TFLOPS, TITLES
from experiments.records.controls import CONTROL, explained, size_name
from experiments.records.rows import ERROR, FAIL, PASS
from gemm_ref import DIALECTS
from gemm_ref.ptx.count.counts import COMPILED, WRITTEN
from gemm_ref.ptx.count.sectors import SECTOR
from gemm_ref.rung import DEFAULT_VARIANT

_ROW_INCHES = 0.34
COLOURS = {"arithmetic": "#3e4c59", "memory": "#9aa5b1"}
_Points = dict[tuple[str, str], tuple[float, float]]  # (stage, dialect) -> FLOP per byte, TFLOP/s

_MEASURED = {"color": style.INK, "lw": 1.6, "zorder": 2}
_DATASHEET = {"ls": (0, (4, 3)), "color": style.MUTED, "lw": 1.0, "zorder": 1}
_CUBLAS = {"ls": (0, (1, 1.5)), "color": style.BASELINE, "lw": 1.6, "zorder": 1}
_TEXT = {"size": 8, "va": "bottom"}
_CROWDED = 0.2  # of the roof of arithmetic: rungs that reach this much are on the right


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw roofs.csv of `folder`, and with ladder.csv and memory.csv the roofline; nothing without."""
    frame = store.read(folder, "roofs")
    measured = frame[frame["value"].notna()].set_index("stage")
    if frame.empty:
        return
    yield "roofs", _shares(frame, store.caption(frame, folder))
    ladder = rungs_at_size(store.read(folder, "ladder"))
    if len(ladder) and {"fma", "dram_copy"} <= set(measured.index):
        runs = store.runs_of(pd.concat([frame[["run"]], ladder[["run"]]]), folder)
        asked = requested_intensity(folder, problem_of(ladder))
        if figure := _roofline(measured, ladder, asked, environment.caption(runs)):
            yield "roofline", figure


def _shares(frame: pd.DataFrame, caption: str) -> Figure:
    rows = [row for row in frame.itertuples() if not pd.isna(row.value) or row.status in (FAIL, ERROR)]
    subtitle = "median and its 20th to 80th percentile, as a share of the datasheet; | is what the highest clock allows"
    sheet = Sheet((style.WIDTH, 1.75 + _ROW_INCHES * max(1, len(rows))), "What the device reaches", subtitle, caption)
    ax = sheet.figure.subplots()
    sheet.place(0.1, 0.42, left=0.185, right=0.59)
    for y, row in enumerate(rows):
        _share(ax, y, row)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [TITLES[row.stage] for row in rows])
    ax.set_xlim(0, max(104, ax.get_xlim()[1]))
    ax.axvline(100, color=style.BASELINE, lw=1.2, zorder=1)
    ax.set_xlabel("% of the datasheet; where it has no figure, of what the clock allows", size=9)
    style.bare(ax, "y")
    handles = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items()]
    sheet.figure.legend(handles=handles, ncols=len(handles), **style.AT_THE_TOP)
    return sheet.figure


def _share(ax: Axes, y: int, row) -> None:
    """One ceiling: a bar where there is something to compare with, and the figures on the right."""
    beside = {"xycoords": ("axes fraction", "data"), "va": "center", "size": 8}
    if pd.isna(row.value):
        ax.annotate(f"{row.status}: {row.detail[:60]}", (1.02, y), color=style.FAILED, **beside)
        return
    full = row.by_clock if pd.isna(row.datasheet) else row.datasheet
    clock = "" if row.unit != TFLOPS or pd.isna(row.sm_mhz) else f" at {format_fixed(row.sm_mhz / 1000, 2)} GHz"
    texts = [f"{format_number(row.value)} {row.unit}{clock}"]
    texts += [f"datasheet {format_number(row.datasheet)}"] if not pd.isna(row.datasheet) else []
    texts += [f"by clock {format_number(row.by_clock)}"] if not pd.isna(row.by_clock) else []
    ax.annotate(" · ".join(texts), (1.02, y), color=style.INK, **beside)
    if pd.isna(full):
        ax.annotate("no figure to compare with", (0.01, y), color=style.MUTED, **beside)
        return
    colour = COLOURS["arithmetic" if row.unit == TFLOPS else "memory"]
    ax.barh(y, 100 * row.value / full, height=0.62, lw=0, color=colour)
    ax.plot([100 * row.low / full, 100 * row.high / full], [y, y], color=style.INK, lw=3, solid_capstyle="butt")
    if not pd.isna(row.by_clock) and full != row.by_clock:
        ax.plot(100 * row.by_clock / full, y, "|", color=style.INK, ms=11, mew=1.3)


def requested_intensity(folder: Path, problem: gemm_ref.Problem) -> dict[tuple[str, str, str], float]:
    """(stage, variant, dialect) -> FLOP per byte of the 32-byte sectors requested from global memory.

    From the counts of memory.csv in `folder`, as compiled where the machine code was read, at `problem` where it was
    counted, and else carried over from a smaller cube of whole tiles: what is loaded grows with M N K, what is stored
    with M N. Left out then are a kernel of two launches, since how often it splits K depends on the size, and one whose
    tile does. Empty where there is no such file.
    """
    if not store.csv_path(folder, "memory").exists():
        return {}
    counts = pd.read_csv(store.csv_path(folder, "memory"), keep_default_na=False)
    counts = counts[(counts["status"] == PASS) & (counts["space"] == "global")]
    counts = counts.astype(dict.fromkeys(("m", "n", "k", "launch", "sectors"), "int64"))
    found = {}
    for kernel, own in counts.groupby(["stage", "variant", "dialect"]):
        stage, variant, dialect = kernel
        chosen = variant == DEFAULT_VARIANT and stage in gemm_ref.STAGES and dialect in gemm_ref.STAGES[stage].tiles
        own = own[own["view"] == (COMPILED if (own["view"] == COMPILED).any() else WRITTEN)]
        at_problem = (own["m"] == problem.m) & (own["n"] == problem.n) & (own["k"] == problem.k)
        if at_problem.any():
            own = own[at_problem]
        else:
            cubes = own[(own["m"] == own["n"]) & (own["n"] == own["k"])]
            own = cubes[cubes["m"] == cubes["m"].max()]
            if own.empty or own["launch"].max() > 1 or chosen:
                continue
        m, n, k = (int(own.iloc[0][name]) for name in "mnk")
        sectors = own["sectors"].where(own["kind"] == "store", own["sectors"] * problem.k / k).sum()
        found[kernel] = problem.flops / (SECTOR * sectors * (problem.m * problem.n) / (m * n))
    return found


def rungs_at_size(ladder: pd.DataFrame) -> pd.DataFrame:
    """Each rung's default variant in each dialect, cuBLAS and its control, at the size of the documents' tables."""
    at_size = frames.defaults(frames.largest_cube(ladder))
    return at_size[(at_size["dialect"] != "") | at_size["backend"].isin(("cublas", CONTROL))]


def problem_of(ladder: pd.DataFrame) -> gemm_ref.Problem:
    """The one problem of these rows."""
    m, n, k = (int(ladder.iloc[0][name]) for name in "mnk")
    return gemm_ref.Problem(m, n, k)


def _roofline(measured: pd.DataFrame, ladder: pd.DataFrame, asked: dict, caption: str) -> Figure | None:
    """None where no kernel's requests were counted."""
    kernels, problem = ladder[ladder["dialect"] != ""], problem_of(ladder)
    points = {
        (row.stage, row.dialect): (asked[row.stage, row.variant, row.dialect], row.tflops)
        for row in kernels.itertuples()
        if (row.stage, row.variant, row.dialect) in asked
    }
    if not points:
        return None
    fma, memory = measured.loc["fma", "value"], measured.loc["dram_copy", "value"]
    allowed = problem.flops / problem.min_bytes
    subtitle = (
        f"{size_name(ladder)}, default variants; solid: measured here; dashed: datasheet; dotted: cuBLAS\n"
        f"device memory is no roof: at {format_number(memory)} TB/s and {format_fixed(allowed)} FLOP per byte it would "
        f"feed {format_fixed(memory * allowed)} TFLOP/s"
    )
    left_out = sorted({stage[:3] for stage in kernels["stage"]} - {stage[:3] for stage, _ in points})
    caption = f"not counted at this size: {', '.join(left_out)} · {caption}" if left_out else caption
    caption = explained(caption, size_name(ladder))
    sheet = Sheet((style.WIDTH, 6.4), "How close each rung comes to the roofs, fp32", subtitle, caption)
    crowded = {key: point for key, point in points.items() if point[1] > _CROWDED * fma}
    panels = sheet.figure.subplots(1, 2 if crowded else 1, squeeze=False)[0]
    sheet.place(0.3, 0.5, left=0.07, right=0.985, wspace=0.13)
    reference = ladder[ladder["backend"] == "cublas"]["tflops"].max()
    everyone = {key: point for key, point in points.items() if key not in crowded}
    _panel(panels[0], measured, points, everyone, reference, "All rungs", 2.2)
    if crowded:
        stages = sorted({stage[:3] for stage, _ in crowded})
        _panel(panels[1], measured, crowded, crowded, reference, f"{stages[0]} to {stages[-1]}, closer", 1.25)
        _frame(panels[0], panels[1])
    style.legend(sheet.figure, kernels["dialect"], overlaid=True)
    return sheet.figure


def _panel(
    ax: Axes, measured: pd.DataFrame, points: _Points, named: _Points, cublas: float, title: str, margin: float
) -> None:
    """All of `points`, with the numbers of those that are `named`, in a range that leaves a `margin` around them."""
    fma = measured.loc["fma"]
    ceiling = np.nanmax([fma["value"], fma["datasheet"]])
    xs, ys = zip(*points.values(), strict=True)
    _axes(ax, (min(xs) / margin, max(xs) * margin**1.4), (min(ys) / margin, ceiling * 1.35))
    ax.set_title(title, size=10)
    fastest = [
        (measured.loc[name, "value"], f"{name[:2].upper()} {format_number(measured.loc[name, 'value'])} TB/s")
        for name in ("l2_read", "l1_read")
        if name in measured.index
    ]
    for tb_s, label in fastest:
        _slope(ax, tb_s, label, fma["value"])
    left, right = ax.get_xlim()
    ax.plot([max([left, *(fma["value"] / tb_s for tb_s, _ in fastest[-1:])]), right], [fma["value"]] * 2, **_MEASURED)
    text = f"fp32 FMA {format_number(fma['value'])}"
    if not pd.isna(fma["datasheet"]):
        ax.plot([left, right], [fma["datasheet"]] * 2, **_DATASHEET)
        text += f" of {format_number(fma['datasheet'])}"
    ax.annotate(text, (left, ceiling), (4, 3), textcoords="offset points", color=style.INK, **_TEXT)
    if not pd.isna(cublas):
        ax.plot([left, right], [cublas] * 2, **_CUBLAS)
    _points(ax, points, named, fma["value"])


def _axes(ax: Axes, across: tuple[float, float], up: tuple[float, float]) -> None:
    ax.set(xscale="log", yscale="log", xlim=across, ylim=up)
    ax.set_xlabel("FLOP per byte of the sectors that it requests", size=9.5)
    ax.set_ylabel("TFLOP/s", labelpad=1)
    for axis, (low, high) in ((ax.xaxis, across), (ax.yaxis, up)):
        axis.set_major_locator(ticker.LogLocator(10, subs=(1, 2, 5) if high / low < 100 else (1,)))
        style.plain(axis)
    ax.tick_params(length=0)


def _slope(ax: Axes, tb_s: float, label: str, label_top: float) -> None:
    """TFLOP/s = TB/s * FLOP per byte, as far as it is in view, with its label along it and not above `label_top`."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    ends = np.array([max(left, low / tb_s), min(right, high / tb_s)])
    if ends[0] >= ends[1]:
        return
    ax.plot(ends, tb_s * ends, **_MEASURED)
    end = min(right, label_top / tb_s)
    (x0, y0), (x1, y1) = ax.transData.transform([(end / 2, tb_s * end / 2), (end, tb_s * end)])
    angle = np.arctan2(y1 - y0, x1 - x0)
    along, away = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    text = {"textcoords": "offset points", "rotation": np.degrees(angle), "rotation_mode": "anchor", "ha": "right"}
    ax.annotate(label, (end, tb_s * end), 3 * away - 6 * along, color=style.INK, **text, **_TEXT)


def _frame(ax: Axes, closer: Axes) -> None:
    """Show in `ax` what is in view of another."""
    (left, right), (low, high) = closer.get_xlim(), closer.get_ylim()
    look = {"fill": False, "edgecolor": style.MUTED, "lw": 0.8, "zorder": 1}
    ax.add_patch(Rectangle((left, low), right - left, high - low, **look))


def _points(ax: Axes, points: _Points, named: _Points, top: float) -> None:
    """A mark per kernel, a line through a rung's dialects, and its number on their right, below `top`."""
    anchors = {}
    for stage in dict.fromkeys(stage for stage, _ in points):
        own = {dialect: points[stage, dialect] for dialect in DIALECTS if (stage, dialect) in points}
        ax.plot(*zip(*sorted(own.values()), strict=True), color=style.MUTED, lw=0.7, alpha=0.6, zorder=3)
        for dialect, point in own.items():
            ax.plot(*point, ls="", zorder=4, **style.look_of(dialect).overlaid())
        if any(key[0] == stage for key in named):
            anchors[stage.split("_")[0]] = max(own.values())
    label_line_ends(ax, anchors, top)
