"""Tensor cores over many problems: each dialect's best rung in each math mode, with its share of cuBLAS."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import maps, style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_short_percent
from experiments.records import frames
from experiments.records.controls import Controls, explained
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


def _titles(timed: pd.DataFrame) -> dict[str, str]:
    """The name of each math mode's part: with the rung, where one was timed, and it stands in no cell then."""
    rungs = {math: sorted(set(timed.loc[timed["math"] == math, "stage"])) for math in frames.maths_of(timed)}
    return {math: f"{math} {stages[0][:3]}" if len(stages) == 1 else math for math, stages in rungs.items()}


def _best(timed: pd.DataFrame, problems: list[Sizes], joint: str) -> tuple[np.ndarray, np.ndarray, list]:
    """Shares in % and texts, (problems, who), of the best rung of each (math mode, dialect)."""
    best, titles = frames.leaders(timed), _titles(timed)
    there = set(zip(best["math"], best["dialect"], strict=True))
    who = [(math, dialect) for math in titles for dialect in DIALECTS if (math, dialect) in there]
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
