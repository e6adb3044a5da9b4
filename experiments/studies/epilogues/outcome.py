"""What came of `epilogues`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_percent, format_size
from experiments.publish.wording import dialect_title, join_words
from experiments.records import frames


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    frame = frames.with_epilogue(frame)
    if frame.empty:
        return
    first = frame.iloc[0]
    own = frames.at(frame[frame["math"] == first["math"]], (first["m"], first["n"], first["k"]))
    for form, rows in own[own["form"].isin(("bias", "bias, gelu", "c"))].groupby("form", sort=False):
        fused = rows[rows["how"] == "fused"]
        names = [dialect_title(dialect) if dialect else "cuBLASLt" for dialect in fused["dialect"]]
        costs = list(zip(fused["over_plain"], names, strict=True))
        costs += [(share, "kernels of their own") for share in rows.loc[rows["how"] == "in turn", "over_plain"]]
        each = [f"{format_percent(share - 1, 1)} in {name}" for share, name in costs]
        yield f"{form} at {format_size(first)} in {first['math']} costs {join_words(each)}"
