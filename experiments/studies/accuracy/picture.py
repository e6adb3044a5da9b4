"""The plot of `accuracy`: relative error over K, one line for all kernels that have the same errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from experiments.publish.drawing import style
from experiments.publish.drawing.error_lines import NAMES, panel
from experiments.publish.drawing.sheet import Sheet
from experiments.records import frames, store


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw accuracy.csv of `folder`; nothing where there are no errors."""
    frame = frames.defaults(store.read(folder, "accuracy").dropna(subset="rel_error"))
    if frame["k"].nunique() > 1:
        yield "accuracy", _figure(frame, store.caption(frame, folder))


def _figure(frame: pd.DataFrame, caption: str) -> Figure:
    in_fp32 = frame["math"] == "fp32"
    panels = [(t, rows) for t, rows in (("fp32", frame[in_fp32]), ("tensor cores", frame[~in_fp32])) if len(rows)]
    first = frame.iloc[0]
    subtitle = (
        f"||C - oracle|| / ||oracle|| (Frobenius), C of {first.m:.0f} × {first.n:.0f}, normal inputs; less is better\n"
        "kernels with the same errors share a line, named at its right end; libraries alone are dashed"
    )
    size = (style.WIDTH, 1.2 + 3.2 * len(panels))
    sheet = Sheet(size, "How the error grows with K", subtitle, caption)
    axes = sheet.figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    sheet.place(0.3, 0.5, left=0.085, right=1 - NAMES / style.WIDTH, hspace=0.22)
    for ax, (title, rows) in zip(axes, panels, strict=True):
        panel(ax, rows)
        ax.set_title(title, size=9.5)
        ax.set_ylabel("relative error, log scale")
    axes[-1].set_xlabel("K, log scale")
    return sheet.figure
