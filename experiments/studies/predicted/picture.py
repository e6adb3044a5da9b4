"""The picture of `predicted`: the predicted ladder, beside the measured one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.ticker as ticker
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import gemm_ref
from experiments.publish.drawing import style
from experiments.publish.drawing.sheet import Sheet
from experiments.publish.numbers import format_change
from experiments.records import environment, frames, store
from experiments.records.controls import size_name
from experiments.studies.predicted.text import errors_of, reason_of
from gemm_ref.clock.gpu import read


def draw(folder: Path) -> Iterator[style.Picture]:
    """Draw predicted.csv of `folder` at the card and size with the most rows; nothing without a prediction."""
    frame = store.read(folder, "predicted")
    frame = frame[frame["math"] == frame["stage"].map({name: rung.maths[0] for name, rung in gemm_ref.STAGES.items()})]
    if frame["predicted_us"].notna().any():
        frame = frame[frame["card"] == frame["card"].mode()[0]]
        at_size = frames.at(frame, frames.most_measured_size(frame[frame["predicted_us"].notna()]))
        yield "predicted_ladder", _ladder(at_size, environment.compilers_caption(store.runs_of(at_size, folder)))


def _ladder(frame: pd.DataFrame, caption: str) -> Figure:
    """A row per variant, in it for each dialect a line over the predicted interval and a mark where it was measured."""
    rows, known, compared = style.rows_of(frame), frame["predicted_us"].notna(), frame[frame["ratio"].notna()]
    subtitle = (
        f"TFLOP/s at {size_name(frame)} on an {read(frame['card'].iloc[0]).name}, each rung in its first compute type\n"
        "a line: the predicted interval, its tick the prediction; a mark: measured and published"
    )
    if len(compared):
        errors = errors_of(compared)
        subtitle += f"\nmedian error {errors.median}; of pairs more than 10% apart {errors.order} in the right order"
    texts = {(y, dialect): style.absent(*row, dialect) for y, row in enumerate(rows) for dialect in gemm_ref.DIALECTS}
    caption = style.with_absent(caption, texts.values())
    sheet = Sheet((style.WIDTH, 2.5 + 0.34 * len(rows)), "The predicted ladder", subtitle, caption)
    ax = sheet.figure.subplots()
    sheet.place(0.72, 0.45, left=0.245, right=0.75)
    style.rows(ax, [style.label_of(*row, " · ") for row in rows])
    for row in frame[known].itertuples():
        place, look = rows.index((row.stage, row.variant)), style.look_of(row.dialect)
        y, work = place + style.LANE * look.lane, row.tflops * row.predicted_us
        ax.plot(
            [work / row.high_us, work / row.low_us],
            [y, y],
            color=look.colour,
            lw=5,
            alpha=0.4,
            solid_capstyle="butt",
            zorder=2,
        )
        ax.vlines(row.tflops, y - 0.13, y + 0.13, color=look.colour, lw=1.8, zorder=3)
        if not np.isnan(row.ratio):
            ax.plot(work / row.measured_us, y, look.marker, color=look.colour, ms=5, mec="white", mew=0.7, zorder=4)
            texts[place, row.dialect] = format_change(row.ratio, 0)
    for row in frame[~known].itertuples():
        place = rows.index((row.stage, row.variant))
        texts[place, row.dialect] = "refused"
        if frame.loc[frame["stage"] == row.stage, "predicted_us"].isna().all():
            style.note(ax, place + style.LANE * style.look_of(row.dialect).lane, reason_of(row.detail))
    ax.set_xscale("log")
    ax.set_xlim(0.8 * frame["tflops"].min(), 1.4 * frame["tflops"].max())
    ax.xaxis.set_major_locator(ticker.LogLocator(10, (1, 2, 5)))
    style.plain(ax.xaxis)
    ax.set_xlabel("TFLOP/s, log scale")
    style.columns(ax, texts, 0.66, "predicted time over measured")
    return sheet.figure
