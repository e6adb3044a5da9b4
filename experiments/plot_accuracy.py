"""The plot of `accuracy`: relative error over K, a line a kernel, the math modes far apart."""

from __future__ import annotations

from pathlib import Path

import matplotlib.ticker as ticker
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gemm_ref
from experiments import environment, frames, results, style

_LABEL = {"textcoords": "offset points", "size": 7}
_MATH_STYLES = {"fp32": "-", "tf32": "--", "fp16": "-.", "bf16": ":", "fp8": (0, (1, 3))}


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw accuracy.csv of `folder` into `target` as PNG and SVG; nothing where there are no errors."""
    frame = results.read(folder, "accuracy")
    frame = frame[frame["rel_error"].notna()]
    if frame["k"].nunique() < 2:
        return []
    caption = environment.caption(results.runs_of(frame, folder))
    with style.themed():
        return style.save(_figure(frame, caption), target, "accuracy")


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    figure = Figure(figsize=(style.WIDTH, 5.6))
    first = frame.iloc[0]
    subtitle = f"||C - oracle|| / ||oracle|| (Frobenius) for C of {first.m:.0f} × {first.n:.0f}, normal inputs, over K"
    top = style.heading(figure, "How the error grows with K", subtitle)
    bottom = style.footer(figure, caption)
    fp32 = frame[frame["math"] == "fp32"]
    libraries = frame[(frame["dialect"] == "") | ((frame["dialect"] == "cuda") & (frame["math"] != "fp32"))]
    panels = [(_modes, libraries)] + ([(_rungs, fp32)] if len(frames.rungs(fp32)) else [])
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (panel, rows) in zip(axes, panels, strict=True):
        panel(ax, rows)
        ax.set_xscale("log", base=4)
        ax.set_yscale("log")
        ax.set_xlabel("K")
        ax.set_xmargin(0.1)
        ax.xaxis.set_major_locator(ticker.FixedLocator(sorted(set(frame["k"]))))
        ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.0f}"))
        ax.tick_params(axis="x", labelsize=7)
        style.bare(ax, "x")
    axes[0].set_ylabel("relative error")
    figure.tight_layout(rect=(0, bottom, 1, top))
    return figure


def _modes(ax: Axes, rows: pd.DataFrame) -> None:
    ends = {}
    for (name, math), own in rows.groupby(["stage", "math"], sort=False):
        own = own.sort_values("k")
        colour = style.BASELINE if (own["dialect"] == "").all() else style.COLOURS["cuda"]
        ax.plot(own["k"], own["rel_error"], color=colour, ls=_MATH_STYLES[math], lw=1.3)
        who = style.label_of(name) if colour == style.BASELINE else name[:3]
        ends[f"{who} {math}"] = own.iloc[-1]
    _label_ends(ax, ends)
    ax.set_title("Libraries and CUDA's tensor-core rungs, in each math mode", size=9.5)


def _rungs(ax: Axes, rows: pd.DataFrame) -> None:
    rungs = frames.rungs(rows)
    for (_, dialect), own in rungs.groupby(["stage", "dialect"], sort=False):
        ax.plot(own["k"], own["rel_error"], color=style.COLOURS[dialect], lw=1.1, alpha=0.75)
    cuda = rungs[rungs["dialect"] == "cuda"].sort_values("k")
    _label_ends(ax, {stage[:3]: own.iloc[-1] for stage, own in cuda.groupby("stage")})
    cublas = rows[(rows["backend"] == "cublas") & (rows["math"] == "fp32")]
    ax.plot(cublas["k"], cublas["rel_error"], color=style.BASELINE, lw=2.2, label="cuBLAS")
    for dialect in gemm_ref.DIALECTS:
        ax.plot([], [], color=style.COLOURS[dialect], label=style.LABELS[dialect])
    ax.legend(frameon=False, loc="upper left", ncols=2)
    ax.set_title("Rungs, fp32", size=9.5)


def _label_ends(ax: Axes, ends: dict[str, pd.Series]) -> None:
    """Name each line at its right end; lines that end within 3% of each other share a label."""
    groups: list[list[str]] = []
    for name in sorted(ends, key=lambda name: ends[name].rel_error):
        if groups and ends[name].rel_error < 1.03 * ends[groups[-1][0]].rel_error:
            groups[-1].append(name)
        else:
            groups.append([name])
    for names in groups:
        end = ends[names[0]]
        ordered = sorted(names)
        text = ", ".join(ordered) if len(ordered) < 4 else f"{ordered[0]} to {ordered[-1]}"
        ax.annotate(text, (end.k, end.rel_error), (0, 4), ha="right", va="bottom", **_LABEL)
