"""The row of rounding.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import CheckedRow


@dataclass(frozen=True, kw_only=True)
class RoundingRow(CheckedRow):
    """A product's error and the checksum of its bits; or how many sums of one instruction differ from the model."""

    KEY: ClassVar[tuple[str, ...]] = (*CheckedRow.KEY, "view")
    view: str = ""  # HARDWARE or PREDICTED
    checksum: str = ""  # CRC-32 of C's bytes
    dealt: str = ""  # tile and thread blocks, for a rung that selects them by shape
    vectors: int | None = None  # input vectors of the instruction,
    mismatches: int | None = None  # and those whose sum differs in bits from the reference GPU's
