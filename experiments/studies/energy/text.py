"""Sentences about the result of `energy`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_fixed, format_number
from experiments.publish.wording import join_words
from experiments.records import frames
from experiments.records.rows import SUSTAINED


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    own = frame[(frame["backend"] == "cublas") & (frame["mode"] == SUSTAINED) & frame["tflops"].notna()]
    own = own[own["m"] == own["m"].max()]
    speeds = []
    for math in frames.maths_of(own):
        rows = own[own["math"] == math].set_index("inputs")
        if {"zeros", "normal"} <= set(rows.index):
            zeros, normal = rows.loc["zeros"], rows.loc["normal"]
            watts = f"{format_fixed(zeros['power_w'])} and {format_fixed(normal['power_w'])} W"
            speed = f"{format_number(zeros['tflops'])} and {format_number(normal['tflops'])} TFLOP/s"
            speeds.append(f"{speed} in {math} ({watts})")
    if speeds:
        size = f"At {own['m'].iloc[0]}, run back to back for seconds"
        yield f"{size}, cuBLAS reaches on zeros and on normal numbers {join_words(speeds)}"
