"""The row of choice.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import TimedRow


@dataclass(frozen=True, kw_only=True)
class ChoiceRow(TimedRow):
    """As `TimedRow`, of a tile (`variant`) and blocks that could have been chosen for the problem."""

    KEY: ClassVar[tuple[str, ...]] = (*TimedRow.KEY, "blocks")
    blocks: int = 0  # that the tiles are dealt to; 0 for a library
    predicted_us: float | None = None
    chosen: int = 0  # 1 where the model chose it
    candidates: int = 0  # for this problem and dialect, with those that were not tried
    autotune_s: float | None = None  # where Triton's autotune picked it: the seconds that this took
