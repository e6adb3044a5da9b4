"""The row of registers.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import TimedRow


@dataclass(frozen=True, kw_only=True)
class RegisterRow(TimedRow):
    """A loop that reads registers: one of chosen registers, or the main loop of a rung whose text is changed.

    Clocks are those of one scheduler for one instruction, of a rung's loop for one multiply-add.
    """

    KEY: ClassVar[tuple[str, ...]] = (*TimedRow.KEY, "form", "warps")
    form: str = ""  # what the loop asks of the ports; of a rung, which of its text's rules are applied
    warps: int | None = None  # of a scheduler, at a time
    registers: int | None = None  # of a thread of a rung
    predicted: float | None = None  # clocks, from the machine code alone
    clocks: float | None = None  # measured: the median,
    clocks_low: float | None = None  # the 20th
    clocks_high: float | None = None  # and the 80th percentile
