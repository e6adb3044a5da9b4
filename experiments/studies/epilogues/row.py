"""The row of epilogues.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import TimedRow


@dataclass(frozen=True, kw_only=True)
class EpilogueRow(TimedRow):
    """The time of a product with an epilogue, as a ratio to the plain product too."""

    KEY: ClassVar[tuple[str, ...]] = (*TimedRow.KEY, "form", "how")
    form: str = ""  # the epilogue, one of FORMS in study.py
    how: str = ""  # in one kernel, "fused", or in several, "in turn"
    over_plain: float | None = None  # the time over that of the same contender's plain product: the median, and
    over_plain_low: float | None = None  # its 95% interval
    over_plain_high: float | None = None
