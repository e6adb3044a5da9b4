"""Sentences about the result of `cost`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_fixed, format_range
from experiments.publish.wording import join_dialects
from experiments.records import compiled


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    own = frame[frame["own_lines"].notna()]
    if own.empty:
        return
    lines = (own["own_lines"] + own["shared_lines"]).groupby(own["dialect"], sort=False)
    ranges = join_dialects({dialect: format_range(counts, format_fixed) for dialect, counts in lines})
    yield f"A rung takes this many lines of code, with the files that rungs share: {ranges}"
    seconds = compiled.defaults(own).groupby("dialect", sort=False)["compile_s"].median()
    each = join_dialects({dialect: f"{format_fixed(of, 1)} s" for dialect, of in seconds.items() if of > 0})
    if each:
        yield f"The median kernel, of default variants, compiles in {each} of a processor's time"
