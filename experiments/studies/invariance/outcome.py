"""What came of `invariance`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_percent, format_percent_range
from experiments.publish.wording import dialect_title, join_words
from experiments.records import frames
from experiments.records.contenders import BATCH_INVARIANT

MANY_ROWS = 128  # rows from which on a tile of C is full


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    rungs = frames.rungs(frame.dropna(subset="vs_cublas"))
    asked = rungs[rungs["variant"] == BATCH_INVARIANT]
    for few, rows in ((True, asked[asked["m"] < MANY_ROWS]), (False, asked[asked["m"] >= MANY_ROWS])):
        if rows.empty:
            continue
        each = [
            f"{format_percent_range(own.min(), own.max())} in {dialect_title(str(dialect))}"
            for dialect, own in rows.groupby("dialect", sort=False)["vs_cublas"]
        ]
        where = f"below {MANY_ROWS} rows" if few else f"from {MANY_ROWS} rows on"
        yield f"With equal bits for any number of rows the last rung has {join_words(each)} of cuBLAS {where}"
    keys = ["dialect", "math", "m", "n", "k", "stage"]
    both = asked.merge(rungs[rungs["variant"] != BATCH_INVARIANT], on=keys, suffixes=("", "_free"))
    if len(both):
        price = 1 - (both["vs_cublas"] / both["vs_cublas_free"]).median()
        yield f"In the median that costs {format_percent(max(price, 0.0), 1)} of the default choice's speed"
