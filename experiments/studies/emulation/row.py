"""The row of emulation.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import CheckedRow


@dataclass(frozen=True, kw_only=True)
class EmulationRow(CheckedRow):
    """The error of one product on inputs of one kind."""

    KEY: ClassVar[tuple[str, ...]] = (*CheckedRow.KEY, "view")
    view: str = ""  # HARDWARE or PREDICTED
    max_error: float | None = None  # the largest |error| / (|A| @ |B|) of an element
    widened: float | None = None  # share of the rows of A and columns of B whose values the parts cannot represent
