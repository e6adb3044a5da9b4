"""Sentences about the result of `timers`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_percent
from experiments.publish.wording import join_words
from experiments.records import frames
from experiments.records.rows import COLD


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    frame = frame[frame["median_us"].notna() & (frame["m"] == frame["m"].min())]
    for math in frames.maths_of(frame):
        own = frame[frame["math"] == math]
        library = own[own["backend"] == "cublas"].set_index("mode")["median_us"]
        shares = frames.rungs(own).groupby("mode")["vs_cublas"].max().dropna()
        if COLD not in library or shares.empty:
            continue
        others = [f"{format_percent(us / library[COLD], 0)} ({mode})" for mode, us in library.items() if mode != COLD]
        yield (
            f"At {own['m'].iloc[0]} in {math} cuBLAS takes, of its time from a cold cache, {join_words(others)}; the "
            f"best rung has {format_percent(shares.min(), 0)} of its speed by one timer ({shares.idxmin()}) and "
            f"{format_percent(shares.max(), 0)} by another ({shares.idxmax()})"
        )
