"""The row of registers.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import TimedRow


@dataclass(frozen=True, kw_only=True)
class RegisterRow(TimedRow):
    """Times of a loop that reads registers: selected registers, or the main loop of a rung whose text is changed.

    A clock count is per scheduler and per instruction; in a rung's loop it is per multiply-add.
    """

    KEY: ClassVar[tuple[str, ...]] = (*TimedRow.KEY, "form", "warps")
    form: str = ""  # what the loop requires of the register ports; for a rung, which rules change its text
    warps: int | None = None  # resident warps per scheduler
    registers: int | None = None  # per thread, for a rung
    predicted: float | None = None  # clocks, from the machine code alone
    clocks: float | None = None  # measured: the median,
    clocks_low: float | None = None  # the 20th
    clocks_high: float | None = None  # and the 80th percentile
