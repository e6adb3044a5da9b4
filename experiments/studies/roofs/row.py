"""The row of roofs.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class RoofRow(Row):
    """What the device reached in one micro-kernel, which `stage` names; it has no sizes M, N, K."""

    KEY: ClassVar[tuple[str, ...]] = ("experiment", "stage")
    unit: str = ""  # TFLOP/s or TB/s, of all that follow
    value: float | None = None  # the median of `repeats` runs,
    low: float | None = None  # and their 20th
    high: float | None = None  # and 80th percentile
    repeats: int | None = None
    median_us: float | None = None
    by_clock: float | None = None  # what the device's own properties allow at its highest clock
    datasheet: float | None = None  # the vendor's figure
    source: str = ""  # the title of the document that it is from
    sm_mhz: float | None = None  # the multiprocessors' clock under this load
