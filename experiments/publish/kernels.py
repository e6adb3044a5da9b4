"""One kernel's place in a table: its row in a frame of results, its speed, and its gain over the rung below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from experiments.publish.numbers import format_number, format_percent, format_percent_range
from experiments.publish.wording import NOT_MEASURED
from experiments.records import frames
from gemm_ref.rung import DEFAULT_VARIANT, Rung


@dataclass(frozen=True)
class KernelCell:
    """What a table says of one kernel at one size, or in `note` why it says nothing."""

    note: str = ""
    variant: str = ""  # whose speed it is
    row: Any = None  # of the CSV
    gain: float | None = None  # its speed as a multiple of the rung's below, in the same dialect

    @property
    def has_share(self) -> bool:
        """Whether cuBLAS was timed in the same rounds."""
        return self.row is not None and pd.notna(self.row.vs_cublas)

    @property
    def tflops(self) -> str:
        return "" if self.row is None else format_number(self.row.tflops)

    @property
    def share(self) -> str:
        """Its share of cuBLAS; empty where that is not known."""
        return format_percent(self.row.vs_cublas) if self.has_share else ""

    @property
    def interval(self) -> str:
        """The 95% interval of the share."""
        return format_percent_range(self.row.vs_cublas_low, self.row.vs_cublas_high)

    @property
    def speed(self) -> str:
        """TFLOP/s, and % of cuBLAS where that was measured."""
        return f"{self.tflops} ({self.share})" if self.has_share else self.tflops


def cell_of(at_size: pd.DataFrame, stage: Rung, variant: str, dialect: str, below: Rung | None = None) -> KernelCell:
    """The cell of a kernel in a frame of one size; with `below`, its gain over that rung."""
    if dialect not in stage.dialects:
        return KernelCell("no kernel")
    if variant not in stage.variants_in(dialect):
        return KernelCell("–")
    row = row_of(at_size, stage, variant, dialect)
    if row is None:
        return KernelCell(NOT_MEASURED)
    return KernelCell("", variant, row, gain(below, stage, variant, dialect, at_size))


def best_cell_of(at_size: pd.DataFrame, stage: Rung, dialect: str) -> KernelCell:
    """The cell of the dialect's fastest variant, or of its default one where none was timed."""
    row = fastest_row(at_size, stage, dialect)
    variant = stage.find_variant(DEFAULT_VARIANT, dialect) if row is None else row.variant
    return cell_of(at_size, stage, variant, dialect)


def fastest_row(at_size: pd.DataFrame, stage: Rung, dialect: str):
    """The row of the rung's fastest variant in a dialect, or None."""
    own = at_size[(at_size["stage"] == stage.id) & (at_size["dialect"] == dialect)]
    times = own["median_us"].dropna() if len(own) else own
    return own.loc[times.idxmin()] if len(times) else None


def default_row(at_size: pd.DataFrame, stage: Rung, dialect: str):
    """As `row_of`, for the variant that is the dialect's default."""
    return row_of(at_size, stage, stage.find_variant(DEFAULT_VARIANT, dialect), dialect)


def row_of(at_size: pd.DataFrame, stage: Rung, variant: str, dialect: str):
    """The first row of one kernel, or None."""
    wanted = {"stage": stage.id, "variant": variant, "dialect": dialect}
    own = np.logical_and.reduce([at_size[column].to_numpy() == name for column, name in wanted.items()])
    return at_size.iloc[np.argmax(own)] if own.any() else None


def gain(below: Rung | None, stage: Rung, variant: str, dialect: str, at_size: pd.DataFrame) -> float | None:
    """A kernel's `frames.speedup` over the rung `below` in the same dialect; None where one of them is missing."""
    if below is None or dialect not in below.dialects or dialect not in stage.dialects:
        return None
    ratio = frames.speedup(default_row(at_size, below, dialect), row_of(at_size, stage, variant, dialect))
    return ratio.median if ratio else None
