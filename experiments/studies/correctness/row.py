"""The row of correctness.csv."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.records.rows import CheckedRow


@dataclass(frozen=True, kw_only=True)
class CorrectnessRow(CheckedRow):
    """One check; in a published folder, the worst of several, which used the largest share of the allowed error."""

    checks: int = 1  # passed checks that the row stands for: those of one kernel, K and kind of inputs
