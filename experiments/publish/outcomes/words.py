"""How numbers and dialects are written in the outcomes."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gemm_ref import DIALECTS


def spread(values: pd.Series, form: str) -> str:
    """`0.98 to 1.03`, or one number where both are written alike."""
    low, high = (format(value, form) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def span(sizes: Sequence[int]) -> str:
    return f"at {sizes[0]}" if len(sizes) == 1 else f"from {sizes[0]} to {sizes[-1]}"


def title(dialect: str) -> str:
    return DIALECTS[dialect].title
