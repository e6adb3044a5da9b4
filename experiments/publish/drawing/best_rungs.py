"""Tensor cores over many problems: each dialect's best rung in each math mode, with its share of cuBLAS."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_short_percent
from experiments.records import frames
from experiments.records.controls import MARK, Controls, explained
from gemm_ref import DIALECTS

_SUBTITLE = "each dialect's best rung: the median of the ratios in a round"

Sizes = tuple[int, int, int]


def over_squares(timed: pd.DataFrame, controls: Controls, caption: str) -> Figure:
    """A row for each math mode and dialect, a column for each edge of a cube."""
    edges = sorted(set(timed["m"]))
    marks = {edge: controls.mark(m=edge, n=edge, k=edge) for edge in edges}
    shares, texts, who = _best(timed, [(edge, edge, edge) for edge in edges], "\n")
    titles = _titles(timed)
    size, title = (style.WIDTH, 2.1 + 0.34 * len(who)), "Share of cuBLAS at every size, on tensor cores"
    sheet = _sheet(size, title, caption, timed, *marks.values())
    ax = sheet.figure.subplots()
    rows = [f"{titles[math]} {DIALECTS[dialect].title}" for math, dialect in who]
    maps.share_map(ax, shares.T, rows, [f"{edge}{mark}" for edge, mark in marks.items()], texts.T)
    ax.tick_params(axis="x", rotation=90 if len(edges) > 14 else 0)
    maps.part(ax.axhline, [math for math, _ in who])
    return sheet.place(0.42, 0.02 * size[1], left=0.16, right=0.985)


def over_shapes(timed: pd.DataFrame, named: Mapping[str, Sizes], controls: Controls, caption: str) -> Figure:
    """A row for each named problem, a column for each math mode and dialect; geometric means come last.

    The means leave out problems whose control failed.
    """
    shares, texts, who = _best(timed, list(named.values()), " ")
    titles = _titles(timed)
    trusted, _, _ = _best(controls.passed(timed), list(named.values()), " ", who)
    means = np.exp(pd.DataFrame(np.log(trusted)).mean().to_numpy())
    shares = np.vstack([shares, means])
    texts = np.vstack([texts, ["" if np.isnan(mean) else format_short_percent(mean) for mean in means]])
    rows = [*named, "geometric mean" + f", without {MARK}" * any(MARK in name for name in named)]
    size, title = (style.WIDTH, 2.8 + 0.2 * len(shares)), "The best rung at real-world shapes, on tensor cores"
    sheet = _sheet(size, title, caption, timed, *named)
    ax = sheet.figure.subplots()
    columns = [DIALECTS[dialect].title for _, dialect in who]
    maps.share_map(ax, shares, rows, columns, texts, size=7)
    ax.axhline(len(named), color=style.MUTED, lw=0.8)
    maps.part(ax.axvline, [math for math, _ in who])
    for math in dict.fromkeys(math for math, _ in who):
        places = [place for place, (other, _) in enumerate(who) if other == math]
        over = {"textcoords": "offset points", "ha": "center", "size": 9.5, "weight": "bold"}
        ax.annotate(titles[math], (np.mean(places) + 0.5, 1), (0, 20), xycoords=ax.get_xaxis_transform(), **over)
    return sheet.place(0.55, 0.02 * size[1], left=0.35, right=0.985)


def _titles(timed: pd.DataFrame) -> dict[str, str]:
    """The name of each math mode's part: with the rung, where one was timed, and it stands in no cell then."""
    rungs = {math: sorted(set(timed.loc[timed["math"] == math, "stage"])) for math in frames.maths_of(timed)}
    return {math: f"{math} {stages[0][:3]}" if len(stages) == 1 else math for math, stages in rungs.items()}


def _best(
    timed: pd.DataFrame, problems: list[Sizes], joint: str, who: list | None = None
) -> tuple[np.ndarray, np.ndarray, list]:
    """Shares in % and texts, (problems, who), of the best rung of each (math mode, dialect)."""
    best, titles = frames.leaders(timed), _titles(timed)
    there = set(zip(best["math"], best["dialect"], strict=True))
    who = who or [(math, dialect) for math in titles for dialect in DIALECTS if (math, dialect) in there]
    shares = np.full((len(problems), len(who)), np.nan)
    texts = np.full(shares.shape, "", dtype=object)
    places = {sizes: place for place, sizes in enumerate(problems)}
    for row in best.itertuples():
        place = places[row.m, row.n, row.k], who.index((row.math, row.dialect))
        shares[place] = 100 * row.vs_cublas
        name = f"{row.stage[:3]}{joint}" if titles[row.math] == row.math else ""
        texts[place] = name + format_short_percent(shares[place])
    return shares, texts, who


def _sheet(size: tuple[float, float], title: str, caption: str, timed: pd.DataFrame, *marked: str) -> Sheet:
    caption = explained(frames.with_modes(caption, frames.maths_of(timed)), *marked)
    return Sheet(size, title, _SUBTITLE, caption, scale=maps.SHARE)
