"""Sentences about the result of `correctness`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_count, format_percent
from experiments.publish.wording import dialect_title, join_words
from experiments.records import frames
from experiments.records.rows import PASS, SKIPPED


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    run = frame[frame["status"] != SKIPPED]
    failed, (good, count) = run[run["status"] != PASS], frames.tally(run)
    if len(failed):
        kernels = dict.fromkeys(f"`{row.stage}` in {dialect_title(row.dialect)}" for row in failed.itertuples())
        yield f"{format_count(count - good)} of {format_count(count)} checks failed: {join_words(kernels)}"
    elif len(run):
        number = len(run[["stage", "variant", "dialect", "math"]].drop_duplicates())
        yield f"Yes: all {format_count(count)} checks of {number} kernels passed"
        if run["bound_share"].notna().any():
            share = format_percent(run["bound_share"].max(), 0)
            yield f"The largest error of an element is {share} of what is allowed"
