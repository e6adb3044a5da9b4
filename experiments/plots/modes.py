"""The plots of `modes`, of `timers` and of `host`.

The time of each kernel warm and from a graph, as a share of its time from a cold cache; what other ways of taking a
time say; and what a call of each rung's default variant costs the host, beside torch's own `a @ b`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots.look import style
from experiments.plots.look.sheet import Sheet
from experiments.records import frames, store
from experiments.records.controls import CONTROL, Controls, explained
from experiments.records.rows import COLD, DO_BENCH, EVENTS, GRAPH, HOST, PROFILER, WARM, WAYS

# A ring around a dot where both are the same.
_MARKS: dict[str, dict[str, Any]] = {WARM: {"ms": 7, "mfc": "none"}, GRAPH: {"ms": 3.5}}
_WORDS = {
    COLD: "cold: our own",
    WARM: "warm: operands in L2",
    GRAPH: "graph: no launch, operands in L2",
    PROFILER: "profiler: no gaps",
    DO_BENCH: "do_bench: a memset before",
    EVENTS: "events: the launch too",
    HOST: "host clock: all of it",
}


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw modes.csv of `folder`, fp32 and tensor cores; nothing without a cold time."""
    frame = store.read(folder, "modes")
    for name, own in (("modes", frames.timed(frame)), ("modes_tensor_cores", frames.on_tensor_cores(frame))):
        own, titles = _titled(frames.defaults(own))
        if (own["mode"] == COLD).any():
            caption = frames.with_modes(store.caption(own, folder), frames.maths_of(own))
            yield name, _figure(own, titles, explained(caption, *titles.values()))


def _titled(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[int, str]]:
    """The rows without the control's, and by edge the titles of the panels, marked where the control failed."""
    controls, frame = Controls(frame), frame[frame["stage"] != CONTROL]
    edges = sorted(set(frame["m"]))
    return frame, {edge: f"M = N = K = {edge}{controls.mark(m=edge, n=edge, k=edge)}" for edge in edges}


def _figure(frame: pd.DataFrame, titles: dict[int, str], caption: str) -> Figure:
    """A panel for each size across, and for each math mode down, where there are several."""
    by_math = {math: frame[frame["math"] == math] for math in frames.maths_of(frame)}
    libraries = {math: dict.fromkeys(own[own["dialect"] == ""]["stage"]) for math, own in by_math.items()}
    rows = {math: [*style.rungs_of(own), *libraries[math]] for math, own in by_math.items()}
    heights = [len(of_one) for of_one in rows.values()]
    subtitle = "times as shares of the time from a cold cache; ring: warm cache; dot: replayed from a CUDA graph"
    where = "fp32" if list(rows) == ["fp32"] else "on tensor cores"
    size = (style.WIDTH, 1.8 + 0.34 * sum(heights))
    sheet = Sheet(size, f"What warm caches and graphs save, {where}", subtitle, caption)
    share = {"sharey": "row", "sharex": True}
    axes = sheet.figure.subplots(len(rows), len(titles), squeeze=False, height_ratios=heights, **share)
    for line, (math, own) in zip(axes, by_math.items(), strict=True):
        words = "" if math == "fp32" else f" {math}"
        for ax, edge in zip(line, titles, strict=True):
            _panel(ax, rows[math], own[own["m"] == edge], words)
    for ax, title in zip(axes[0], titles.values(), strict=True):
        ax.set_title(title, size=9.5)
    for ax in axes[-1]:
        ax.set_xlabel("of the cold time; less is better", size=9)
    style.legend(sheet.figure, frame["dialect"], "o")
    return sheet.fit()


def _panel(ax: Axes, rows: list[str], own: pd.DataFrame, words: str) -> None:
    cold = own[own["mode"] == COLD].set_index(["stage", "dialect"])["median_us"]
    for mode, mark in _MARKS.items():
        for row in own[own["mode"] == mode].itertuples():
            if (row.stage, row.dialect) not in cold.index:
                continue
            look = style.look_of(row.dialect)
            share = row.median_us / cold[row.stage, row.dialect]
            y = rows.index(row.stage) + style.LANE * look.lane
            ax.plot(share, y, "o", color=look.colour, mew=1, **mark)
    ax.axvline(1, color=style.BASELINE, lw=1)
    style.rows(ax, [style.label_of(row) + words for row in rows], size=8)
    style.gaps(ax, rows, own)


def draw_timers(folder: Path) -> Iterator[style.Picture]:
    """Draw timers.csv of `folder`; nothing without a cold time."""
    frame, titles = _titled(store.read(folder, "timers").dropna(subset="median_us"))
    if (frame["mode"] == COLD).any():
        caption = explained(store.caption(frame, folder), *titles.values())
        yield "timers", _stopwatches(frame, titles, caption)


def _stopwatches(frame: pd.DataFrame, titles: dict[int, str], caption: str) -> Figure:
    """A panel for each size across and each math mode down; times beside cuBLAS' cold one."""
    maths = frames.maths_of(frame)
    subtitle = "times by cuBLAS' cold time; the number: the best rung's share of cuBLAS by the same timer"
    size = (style.WIDTH, 1.9 + 2.3 * len(maths))
    sheet = Sheet(size, "One product, seven stopwatches", subtitle, caption)
    axes = sheet.figure.subplots(len(maths), len(titles), sharey=True, squeeze=False)
    for line, math in zip(axes, maths, strict=True):
        for ax, edge in zip(line, titles, strict=True):
            _stopwatch(ax, frame[(frame["math"] == math) & (frame["m"] == edge)])
        line[0].set_ylabel(math, rotation=0, ha="right", fontweight="bold")
    for ax, title in zip(axes[0], titles.values(), strict=True):
        ax.set_title(title, size=9.5)
    style.legend(sheet.figure, frame["dialect"], "o", library="cuBLAS")
    return sheet.fit()


def _stopwatch(ax: Axes, own: pd.DataFrame) -> None:
    style.rows(ax, list(_WORDS.values()), size=8)
    ax.axvline(1, color=style.BASELINE, lw=1)
    reference = own[own["dialect"] == ""].set_index("mode")["median_us"]
    if COLD not in reference:
        return
    for row in own.itertuples():
        look = style.look_of(row.dialect)
        ax.plot(row.median_us / reference[COLD], WAYS.index(row.mode), "o", color=look.colour, ms=4.5, alpha=0.9)
    ax.set_xlim(0, 1.3 * own["median_us"].max() / reference[COLD])  # the numbers are at the right
    best = frames.rungs(own).groupby("mode")["vs_cublas"].max()
    for way, share in best.dropna().items():
        style.note(ax, WAYS.index(way), f"{style.percent(100 * share)}%", right=True)


def draw_host(folder: Path) -> Iterator[style.Picture]:
    """Draw host.csv of `folder`; nothing where nothing was timed."""
    frame = store.read(folder, "host").dropna(subset="median_us")
    if len(frame):
        yield "host", _calls(frame, store.caption(frame, folder))


def _calls(frame: pd.DataFrame, caption: str) -> Figure:
    torch = frame[frame["dialect"] == ""]
    libraries = list(dict.fromkeys(zip(torch["stage"], torch["math"], strict=True)))
    rungs = frames.defaults(frames.rungs(frame))
    names = style.rungs_of(rungs) if len(rungs) else []
    titles = [style.label_of(name) for name in names]
    titles += [f"{style.label_of(stage)}, {math}" for stage, math in libraries]
    sizes = sorted(set(frame["m"]))
    subtitle = "until a call is in the GPU's queue, C allocated; lines from the 20th to the 80th percentile"
    sheet = Sheet((style.WIDTH, 1.8 + 0.34 * len(titles)), "What a call costs the host", subtitle, caption)
    axes = sheet.figure.subplots(1, len(sizes), sharey=True, sharex=True, squeeze=False)[0]
    for ax, size in zip(axes, sizes, strict=True):
        for row in rungs[rungs["m"] == size].itertuples():
            look = style.look_of(row.dialect)
            _point(ax, row, names.index(row.stage) + style.LANE * look.lane, look)
        for row in torch[torch["m"] == size].itertuples():
            place = len(names) + libraries.index((row.stage, row.math))
            _point(ax, row, place, style.look_of(row.dialect))
            ax.plot([row.median_us] * 2, [-0.5, place], color=style.BASELINE, lw=0.8, zorder=1)
        ax.set_title(f"M = N = K = {size}", size=9.5)
        ax.set_xlim(left=0)
        ax.set_xlabel("microseconds; less is better", size=9)
        style.rows(ax, titles, size=8)
        style.gaps(ax, names, rungs[rungs["m"] == size])
    style.legend(sheet.figure, rungs["dialect"])
    return sheet.fit()


def _point(ax: Axes, row, y: float, look: style.Look) -> None:
    ax.plot((row.p20_us, row.p80_us), (y, y), color=look.colour, lw=1.2)
    ax.plot(row.median_us, y, look.marker, color=look.colour, ms=4)
