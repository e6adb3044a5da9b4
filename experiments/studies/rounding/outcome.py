"""What came of `rounding`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from experiments.publish.numbers import format_fixed
from experiments.publish.wording import join_words
from experiments.records import frames
from experiments.records.rows import PREDICTED


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    alone = frame[frame["vectors"].notna()]
    if len(alone):
        each = join_words(format_fixed(count) for count in sorted(set(alone["vectors"])))
        wrong = f"{format_fixed(alone['mismatches'].sum())} sums have other bits than predicted"
        yield f"Of {len(alone)} instructions with {each} random vectors each, {wrong}"
    both = frames.pair_products(frame)
    if len(both):
        same = (both["checksum_predicted"] == both["checksum_hardware"]).sum()
        off = np.abs(both["rel_error_predicted"] / both["rel_error_hardware"] - 1).max()
        yield f"Of {len(both)} products that both dealt alike, {same} have the same bits as on the GPU, in all of C"
        yield f"The predicted error is off by at most {100 * off:.2g}%"
    own = frame[(frame["view"] == PREDICTED) & frame["rel_error"].notna() & (frame["dialect"] == "cuda")]
    low, high = own["k"].min(), own["k"].max()
    if low < high:
        errors = own.pivot_table(index="math", columns="k", values="rel_error", aggfunc="max")
        growth = (errors[high] / errors[low]).dropna()  # of the compute types that were measured at both depths
        grown = [f"{format_fixed(growth[math], 2)} times in {math}" for math in frames.maths_of(own) if math in growth]
        yield f"From K = {low} to {high} the largest error of a CUDA rung grows {join_words(grown)}"
