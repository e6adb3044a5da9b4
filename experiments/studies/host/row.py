"""The row of host.csv."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class HostRow(Row):
    """Host time of one call of a contender: until the call is in the GPU's queue, allocation of C included."""

    median_us: float | None = None
    p20_us: float | None = None
    p80_us: float | None = None
    repeats: int | None = None  # samples; each averages several calls
