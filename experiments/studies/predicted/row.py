"""The row of predicted.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class PredictedRow(Row):
    """The time of one kernel at one problem on one card: predicted, and measured where a published row has it."""

    KEY: ClassVar[tuple[str, ...]] = (*Row.KEY, "card")
    card: str  # of gemm_ref/clock/gpus.toml, as its folder of results is called
    predicted_us: float | None = None  # of the whole call, with caches cold
    low_us: float | None = None  # the interval that holds about nine in ten measured times
    high_us: float | None = None
    tflops: float | None = None
    limit: str = ""  # what holds it back: here and below, of its longest kernel
    limit_share: float | None = None  # of its time
    waves: float | None = None
    blocks_held: int | None = None  # by a multiprocessor at a time
    unexplained: float | None = None  # share of the executions of PTX lines that its path leaves out
    measured_us: float | None = None  # of the newest published row of the same kernel and problem, caches cold
    measured_in: str = ""  # the study that has this row
    ratio: float | None = None  # predicted / measured time
