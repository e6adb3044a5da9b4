"""The plot of `rounding`: the errors that the reference GPU predicts over K, with those that the GPU had on them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from experiments.plots.accuracy import NAMES, panel
from experiments.plots.look import style
from experiments.plots.look.sheet import Sheet
from experiments.records import environment, store
from experiments.records.rows import HARDWARE, PREDICTED

_WHO = ["stage", "variant", "dialect", "math", "k"]


def draw(folder: Path, target: Path) -> list[Path]:
    """Draw rounding.csv of `folder` into `target` as PNG and SVG; nothing where nothing was predicted."""
    frame = store.read(folder, "rounding")
    frame = frame[frame["rel_error"].notna()]
    if frame[frame["view"] == PREDICTED]["k"].nunique() < 2:
        return []
    measured = frame[frame["view"] == HARDWARE]
    caption = environment.caption(store.runs_of(measured if len(measured) else frame, folder))
    with style.themed():
        return style.save(_figure(frame, caption), target, "rounding")


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    predicted, measured = (frame[frame["view"] == view] for view in (PREDICTED, HARDWARE))
    predicted = predicted[predicted.groupby(_WHO[:-1])["k"].transform("nunique") > 1]  # what has a line
    first = predicted.iloc[0]
    subtitle = (
        f"||C - oracle|| / ||oracle|| (Frobenius), C of {first.m:.0f} × {first.n:.0f}, normal inputs; less is better"
    )
    subtitle += "\nlines: predicted without a GPU; kernels with the same errors share one"
    subtitle += "; rings: the GPU" if len(measured) else ""
    sheet = Sheet((style.WIDTH, 4.6), "What tensor cores lose", subtitle, caption)
    ax = sheet.figure.subplots()
    sheet.place(0.1, 0.5, left=0.085, right=1 - NAMES / style.WIDTH)
    panel(ax, predicted)
    points = measured.merge(predicted[_WHO], on=_WHO).drop_duplicates(["math", "k", "checksum"])
    ax.plot(points["k"], points["rel_error"], "o", mfc="none", mew=1.1, ms=6, color=style.INK, zorder=4)
    ax.set_ylabel("relative error, log scale")
    ax.set_xlabel("K, log scale")
    return sheet.figure
