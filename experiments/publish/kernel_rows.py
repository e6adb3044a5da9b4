"""Looks up one kernel's row in a frame of results, and its speedup over the rung below."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.records import frames
from gemm_ref.rung import DEFAULT_VARIANT, Rung


def default_row(at_size: pd.DataFrame, stage: Rung, dialect: str):
    """As `row_of`, for the variant that is the dialect's default."""
    return row_of(at_size, stage, stage.find_variant(DEFAULT_VARIANT, dialect), dialect)


def row_of(at_size: pd.DataFrame, stage: Rung, variant: str, dialect: str):
    """The first row of one kernel, or None."""
    wanted = {"stage": stage.id, "variant": variant, "dialect": dialect}
    own = np.logical_and.reduce([at_size[column].to_numpy() == name for column, name in wanted.items()])
    return at_size.iloc[np.argmax(own)] if own.any() else None


def gain(below: Rung | None, stage: Rung, variant: str, dialect: str, at_size: pd.DataFrame) -> float | None:
    """A kernel's `frames.speedup` over the rung `below` in the same dialect; None where one of them is missing."""
    if below is None or dialect not in below.dialects or dialect not in stage.dialects:
        return None
    ratio = frames.speedup(default_row(at_size, below, dialect), row_of(at_size, stage, variant, dialect))
    return ratio.median if ratio else None
