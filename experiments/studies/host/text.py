"""Sentences about the result of `host`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_fixed, format_range
from experiments.publish.wording import dialect_title, join_dialects
from experiments.records import frames


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    own = frame.dropna(subset="median_us")
    own = own[own["m"] == own["m"].min()]
    rungs, library = frames.rungs(own), own[own["dialect"] == ""]
    if rungs.empty:
        return
    medians = rungs.groupby("dialect", sort=False)["median_us"].median()
    costs = join_dialects({dialect: f"{format_fixed(us, 1)} µs" for dialect, us in medians.items()})
    torchs = format_range(library["median_us"], lambda us: format_fixed(us, 1)) if len(library) else ""
    beside = f"; torch's own takes {torchs} µs" if torchs else ""
    yield f"A call at {own['m'].iloc[0]} costs the host {costs}, the median of the rungs{beside}"
    worst = rungs.loc[rungs["median_us"].idxmax()]
    yield f"The most is {format_fixed(worst.median_us, 1)} µs, of `{worst.stage}` in {dialect_title(worst.dialect)}"
