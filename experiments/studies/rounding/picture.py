"""The plot of `rounding`: the errors that the reference GPU predicts over K, with those that the GPU had on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.error_lines import NAMES, panel
from experiments.publish.drawing.sheet import Sheet
from experiments.records import store
from experiments.records.rows import HARDWARE, PREDICTED

_WHO = ["stage", "variant", "dialect", "math", "k"]


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw rounding.csv of `folder`; nothing where nothing was predicted."""
    frame = store.read(folder, "rounding").dropna(subset="rel_error")
    measured = frame[frame["view"] == HARDWARE]
    if frame[frame["view"] == PREDICTED]["k"].nunique() > 1:
        caption = store.caption(measured if len(measured) else frame, folder)
        yield "rounding", _figure(frame, caption)


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    predicted, measured = (frame[frame["view"] == view] for view in (PREDICTED, HARDWARE))
    predicted = predicted[predicted.groupby(_WHO[:-1])["k"].transform("nunique") > 1]  # what has a line
    first = predicted.iloc[0]
    rings = "; rings: the GPU" if len(measured) else ""
    subtitle = (
        f"||C - oracle|| / ||oracle|| (Frobenius), C of {first.m:.0f} × {first.n:.0f}, normal inputs; less is better\n"
        f"lines: predicted without a GPU; kernels with the same errors share one{rings}"
    )
    sheet = Sheet((style.WIDTH, 4.6), "What tensor cores lose", subtitle, caption)
    ax = sheet.figure.subplots()
    sheet.place(0.1, 0.5, left=0.085, right=1 - NAMES / style.WIDTH)
    panel(ax, predicted)
    points = measured.merge(predicted[_WHO], on=_WHO).drop_duplicates(["math", "k", "checksum"])
    ax.plot(points["k"], points["rel_error"], "o", mfc="none", mew=1.1, ms=6, color=style.INK, zorder=4)
    ax.set_ylabel("relative error, log scale")
    ax.set_xlabel("K, log scale")
    return sheet.figure
