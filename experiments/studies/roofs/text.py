"""Sentences about the result of `roofs`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_fixed, format_range
from experiments.publish.wording import join_words
from experiments.records.ceilings import TITLES


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    frame = frame[frame["value"].notna()]
    for column, of in (("by_clock", "what the highest clock allows"), ("datasheet", "its datasheet")):
        own = frame[frame[column].notna() & ((column == "by_clock") | frame["by_clock"].isna())]
        if len(own):
            kinds = own.assign(share=100 * own["value"] / own[column]).groupby(_name_ceilings(own), sort=False)["share"]
            each = [f"{kind} {format_range(shares, format_fixed, '%')}" for kind, shares in kinds]
            yield f"Of {of}: {join_words(each)}"


def _name_ceilings(rows: pd.DataFrame) -> list[str]:
    """What each ceiling is of, without the math mode or the kind of access."""
    titles = [TITLES[stage].split(", ") for stage in rows["stage"]]
    return [parts[-1 if math else 0] for parts, math in zip(titles, rows["math"], strict=True)]
