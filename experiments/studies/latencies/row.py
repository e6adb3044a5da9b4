"""The row of latencies.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class LatencyRow(Row):
    """A constant of the multiprocessor or of a launch, which `stage` names `table.entry`; it has no sizes M, N, K."""

    KEY: ClassVar[tuple[str, ...]] = ("experiment", "stage")
    unit: str = ""  # clocks of the multiprocessor, a rate per clock, or us
    value: float | None = None  # the median over `repeats` runs and their multiprocessors,
    low: float | None = None  # and the 20th
    high: float | None = None  # and 80th percentile
    repeats: int | None = None
    description: str = ""
    sm_mhz: float | None = None  # the multiprocessors' clock right after
