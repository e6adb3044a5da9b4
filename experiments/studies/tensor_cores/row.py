"""The row of tensor_cores.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import TimedRow


@dataclass(frozen=True, kw_only=True)
class TensorCoreRow(TimedRow):
    """The time of one contender with B stored by rows or by columns."""

    KEY: ClassVar[tuple[str, ...]] = (*TimedRow.KEY, "b_layout")
    b_layout: str = ""  # of gemm_ref.B_LAYOUTS
