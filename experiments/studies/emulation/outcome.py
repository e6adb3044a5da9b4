"""What came of `emulation`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

import gemm_ref
from experiments.publish.wording import join_words
from experiments.studies.emulation.table import INPUTS, select_kernels


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    errors = select_kernels(frame).pivot_table(index=["view", *INPUTS], columns="math", values="max_error", sort=False)
    for math in gemm_ref.EMULATED:
        if {math, "fp32"} <= set(errors.columns):
            beside = (errors[math] / errors["fp32"]).dropna()
            most = beside.idxmax()
            yield (
                f"The largest error of an element in {math} is below SGEMM's at {(beside < 1).sum()} of {len(beside)} "
                f"inputs and depths, and at most {beside.max():.2g} times as large ({join_words(map(str, most[1:]))})"
            )
