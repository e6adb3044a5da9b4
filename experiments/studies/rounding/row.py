"""The row of rounding.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import CheckedRow


@dataclass(frozen=True, kw_only=True)
class RoundingRow(CheckedRow):
    """A product's error and its bits; or, of an instruction by itself, how many of its sums are not as predicted."""

    KEY: ClassVar[tuple[str, ...]] = (*CheckedRow.KEY, "view")
    view: str = ""  # HARDWARE or PREDICTED
    checksum: str = ""  # CRC-32 of C's bytes
    dealt: str = ""  # the tile, and the blocks that its tiles are dealt to, of a rung that chooses them by shape
    vectors: int | None = None  # that an instruction was given,
    mismatches: int | None = None  # and of how many the sum has other bits than the reference GPU's
