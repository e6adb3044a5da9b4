"""The row of choice.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import TimedRow


@dataclass(frozen=True, kw_only=True)
class ChoiceRow(TimedRow):
    """The time of one candidate of the choice: a tile (`variant`) and a count of blocks."""

    KEY: ClassVar[tuple[str, ...]] = (*TimedRow.KEY, "blocks")
    blocks: int = 0  # thread blocks that the tiles are scheduled on; 0 for a library
    predicted_us: float | None = None
    chosen: int = 0  # 1 where the model chose it
    candidates: int = 0  # candidates for this problem and dialect, including those that were not timed
    autotune_s: float | None = None  # seconds that Triton's autotune took, in the row that it selected
