"""The roofline: every rung under the roofs that were measured on this very device.

Left panel, as the problem allows: FLOP per byte that device memory must move at least, one value for all kernels of a
size. Right panel, as the kernel asks: FLOP per byte of the sectors that it requests from global memory, which L1 or L2
has to deliver; it is there where `memory` has counted them.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.ticker as ticker
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gemm_ref
from experiments.plots.look import style
from experiments.plots.look.labels import beside
from experiments.records import frames, store
from experiments.records.controls import CONTROL, explained, size_name
from experiments.records.rows import PASS
from gemm_ref import DIALECTS
from gemm_ref.ptx.count.records import COMPILED, WRITTEN
from gemm_ref.ptx.count.sectors import SECTOR

Points = dict[tuple[str, str], tuple[float, float]]  # (stage, dialect) -> FLOP per byte, TFLOP/s

_STEP = 1.16  # times x, from one dialect to the next: most kernels of a rung have the same
_MEASURED = {"color": style.INK, "lw": 1.6, "zorder": 2}
_FAINT = {"color": style.MUTED, "lw": 1.0, "alpha": 0.55, "zorder": 1}
_DATASHEET = {"ls": (0, (4, 3)), "color": style.MUTED, "lw": 1.0, "zorder": 1}
_TEXT = {"size": 8, "va": "bottom"}
_TENSOR = ("tf32", "bf16", "fp8")  # fp16 is as fast as bf16


def requested_intensity(folder: Path, problem: gemm_ref.Problem) -> dict[tuple[str, str, str], float]:
    """(stage, variant, dialect) -> FLOP per byte of the 32-byte sectors requested from global memory.

    From the counts of memory.csv in `folder`, as compiled where the machine code was read, at `problem` where it was
    counted, and else carried over from a smaller cube of whole tiles: what is loaded grows with M N K, what is stored
    with M N. A kernel of two launches is left out then, since how often it splits K depends on the size. Empty where
    there is no such file.
    """
    if not store.csv_path(folder, "memory").exists():
        return {}
    counts = pd.read_csv(store.csv_path(folder, "memory"), keep_default_na=False)
    counts = counts[(counts["status"] == PASS) & (counts["space"] == "global")]
    counts = counts.astype(dict.fromkeys(("m", "n", "k", "launch", "sectors"), "int64"))
    found = {}
    for kernel, own in counts.groupby(["stage", "variant", "dialect"]):
        own = own[own["view"] == (COMPILED if (own["view"] == COMPILED).any() else WRITTEN)]
        at_problem = (own["m"] == problem.m) & (own["n"] == problem.n) & (own["k"] == problem.k)
        if at_problem.any():
            own = own[at_problem]
        else:
            cubes = own[(own["m"] == own["n"]) & (own["n"] == own["k"])]
            own = cubes[cubes["m"] == cubes["m"].max()]
            if own.empty or own["launch"].max() > 1:
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


def roofline(measured: pd.DataFrame, ladder: pd.DataFrame, asked: dict, caption: str) -> Figure:
    kernels, problem = ladder[ladder["dialect"] != ""], problem_of(ladder)
    allowed = problem.flops / problem.min_bytes
    left = {(r.stage, r.dialect): (allowed, r.tflops) for r in kernels.itertuples()}
    right = {
        (r.stage, r.dialect): (asked[r.stage, r.variant, r.dialect], r.tflops)
        for r in kernels.itertuples()
        if (r.stage, r.variant, r.dialect) in asked
    }
    figure = Figure(figsize=(style.WIDTH, 7.2))
    subtitle = (
        "solid: measured on this device; dashed: its datasheet; each dialect's best variant, the dialects side by side"
    )
    top = style.heading(figure, f"Under the roofs at {size_name(ladder)}, fp32", subtitle)
    bottom = style.footer(figure, explained(caption, size_name(ladder)))
    panels = figure.subplots(1, 2 if right else 1, sharey=True, squeeze=False)[0]
    inch = 1 / figure.get_figheight()
    figure.subplots_adjust(left=0.07, right=0.985, wspace=0.06, top=top - 0.3 * inch, bottom=bottom + 0.5 * inch)
    peak = max(_tensor_roofs(measured).values(), default=measured.loc["fma", "value"])
    panels[0].set_ylim(min(kernels["tflops"]) / 2.2, peak * 1.6)
    _as_the_problem_allows(panels[0], measured, ladder, left, allowed)
    if right:
        _as_the_kernel_asks(panels[1], measured, right)
    style.legend(figure, panels[0])
    return figure


def _as_the_problem_allows(ax: Axes, measured: pd.DataFrame, ladder: pd.DataFrame, points: Points, x: float) -> None:
    dram = measured.loc["dram_copy"]
    ridge = measured.loc["fma", "value"] / dram["value"]
    _axes(ax, ridge / 9, x * 8, "FLOP per byte: A and B read once, C written once")
    ax.set_ylabel("TFLOP/s")
    ax.set_title("As the problem allows", size=10)
    free = min(_tensor_roofs(measured).values(), default=ax.get_ylim()[1])
    _slope(ax, dram["value"], f"device memory {style.number(dram['value'])} TB/s", free, dram["datasheet"])
    _flats(ax, measured, dram["value"])
    ax.axvline(x, color="#e4e7eb", lw=22, zorder=0)
    reference = ladder[ladder["backend"] == "cublas"]
    if not reference.empty:
        y = reference.iloc[0]["tflops"]
        ax.plot([x / 1.45, x * 1.45], [y, y], color=style.BASELINE, lw=2, zorder=3)
        text = {"textcoords": "offset points", "ha": "right", "va": "center", "size": 8, "color": style.BASELINE}
        ax.annotate("cuBLAS", (x / 1.45, y), (-4, 0), **text)
    _points(ax, points, measured.loc["fma", "value"])


def _as_the_kernel_asks(ax: Axes, measured: pd.DataFrame, points: Points) -> None:
    asked = [x for x, _ in points.values()]
    _axes(ax, min(asked) / 2.5, max(asked) * 4, "FLOP per byte of the sectors that it requests")
    ax.set_title("As the kernel asks", size=10)
    fastest, free = 0.0, min(_tensor_roofs(measured).values(), default=ax.get_ylim()[1])
    for name in ("l2_read", "l1_read"):
        if name in measured.index:
            fastest = measured.loc[name, "value"]
            _slope(ax, fastest, f"{name[:2].upper()} {style.number(fastest)} TB/s", free)
    _flats(ax, measured, fastest or np.inf, labelled=False)
    _points(ax, points, measured.loc["fma", "value"])


def _axes(ax: Axes, low: float, high: float, label: str) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_xlabel(label, size=9.5)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(ticker.NullLocator())
    ax.tick_params(length=0)


def _slope(ax: Axes, tb_s: float, label: str, label_top: float, datasheet: float | None = None) -> None:
    """TFLOP/s = TB/s * FLOP per byte, from edge to edge, with its label along the line and not above `label_top`."""
    x = np.array(ax.get_xlim())
    ax.plot(x, tb_s * x, **_MEASURED)
    upper = tb_s
    if datasheet is not None and not pd.isna(datasheet):
        ax.plot(x, datasheet * x, **_DATASHEET)
        upper = max(tb_s, datasheet)
    end = min(x[1], label_top / upper)
    (x0, y0), (x1, y1) = ax.transData.transform([(end / 2, upper * end / 2), (end, upper * end)])
    angle = np.arctan2(y1 - y0, x1 - x0)
    along, away = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    text = {"textcoords": "offset points", "rotation": np.degrees(angle), "rotation_mode": "anchor", "ha": "right"}
    ax.annotate(label, (end, upper * end), 3 * away - 6 * along, color=style.INK, **text, **_TEXT)


def _tensor_roofs(measured: pd.DataFrame) -> dict[str, float]:
    """Arithmetic -> the most that either instruction for it reached."""
    best = measured[measured["math"].isin(_TENSOR)].groupby("math")["value"].max()
    return {math: best[math] for math in _TENSOR if math in best}


def _flats(ax: Axes, measured: pd.DataFrame, tb_s: float, labelled: bool = True) -> None:
    """The roofs of arithmetic, each from where memory of `tb_s` TB/s would feed it; faint where it is not fp32 FMA."""
    right = ax.get_xlim()[1]
    fma = measured.loc["fma"]
    ax.plot([fma["value"] / tb_s, right], [fma["value"]] * 2, **_MEASURED)
    text = f"fp32 FMA {style.number(fma['value'])}"
    if not pd.isna(fma["datasheet"]):
        ax.plot([fma["datasheet"] / tb_s, right], [fma["datasheet"]] * 2, **_DATASHEET)
        text += f" of {style.number(fma['datasheet'])}"
    labels = [(fma, text, style.INK)]
    for math, value in _tensor_roofs(measured).items():
        ax.plot([value / tb_s, right], [value] * 2, **_FAINT)
        labels.append(({"value": value}, f"{math} tensor {style.number(value)}", style.MUTED))
    for row, words, colour in labels if labelled else ():
        place = {"textcoords": "offset points", "ha": "right", "color": colour}
        ax.annotate(words, (right, row["value"]), (-4, 4), **place, **_TEXT)


def _points(ax: Axes, points: Points, top: float) -> None:
    """A mark a kernel, a line through a rung's dialects, side by side, and its number on their right, below `top`."""
    anchors = {}
    for stage in dict.fromkeys(stage for stage, _ in points):
        own = {dialect: points[stage, dialect] for dialect in DIALECTS if (stage, dialect) in points}
        own = {dialect: (x * _STEP ** style.LOOKS[dialect].lane, y) for dialect, (x, y) in own.items()}
        ax.plot(*zip(*sorted(own.values()), strict=True), color=style.MUTED, lw=0.7, alpha=0.6, zorder=3)
        for dialect, (x, y) in own.items():
            look = style.LOOKS[dialect]
            ax.plot(x, y, look.marker, color=look.colour, ms=5.5, mec="white", mew=0.6, zorder=4)
        anchors[stage.split("_")[0]] = max(own.values())
    beside(ax, anchors, top)
