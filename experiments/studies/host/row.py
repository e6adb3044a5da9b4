"""The row of host.csv."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class HostRow(Row):
    """What one call of a contender costs the host: the time until it is in the GPU's queue, C allocated."""

    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    repeats: int | None = None  # samples, of several calls each
