"""From the rows of `instructions` to those that tables and plots show."""

from __future__ import annotations

import pandas as pd

import gemm_ref
from gemm_ref.stage import DEFAULT_VARIANT

MAIN_ARCHITECTURE = "sm_90a"  # what is shown where nothing else is said


def at_one_size(frame: pd.DataFrame) -> pd.DataFrame:
    """The compiled rows of the size that most of them have, the largest of several such."""
    frame = frame[frame["instructions"].notna()]
    sizes = frame.groupby(["m", "n", "k"]).size().to_dict()
    if not sizes:
        return frame
    m, n, k = max(sizes, key=lambda size: (sizes[size], size))
    return frame[(frame["m"] == m) & (frame["n"] == n) & (frame["k"] == k)]


def defaults(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of each dialect's default variant, in the first of its rung's math modes."""
    default = [
        default_variant(row.stage, row.dialect) == row.variant and row.math == gemm_ref.get_stage(row.stage).maths[0]
        for row in frame.itertuples()
    ]
    return frame[pd.Series(default, index=frame.index, dtype=bool)]


def default_variant(stage: str, dialect: str) -> str:
    """The name of the variant that a rung's dialect runs by default."""
    return gemm_ref.get_stage(stage).find_variant(DEFAULT_VARIANT, dialect)
