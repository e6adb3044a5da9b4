"""The row of correctness.csv."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.records.rows import CheckedRow


@dataclass(frozen=True, kw_only=True)
class CorrectnessRow(CheckedRow):
    """A check of `correctness`; or, in a published folder, of several the one that used most of what is allowed."""

    checks: int = 1  # that the row stands for: passed ones of one kernel, K and kind of inputs
