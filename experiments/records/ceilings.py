"""The ceilings that `roofs` measures: their names in rows, their titles, and the least time of a problem by them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from experiments.records import store
from gemm_ref.compute import TENSOR_CORE
from gemm_ref.problem import Problem

TFLOPS, TB_S = "TFLOP/s", "TB/s"  # units
TITLES = {
    "fma": "fp32 FMA",
    **{f"mma_{math}": f"{math}, mma.sync" for math in TENSOR_CORE},
    **{f"wgmma_{math}": f"{math}, wgmma" for math in TENSOR_CORE},
    "dram_copy": "device memory, copy",
    "dram_read": "device memory, read",
    "l2_read": "L2, read",
    "l1_read": "L1, read",
    "shared_read": "shared memory, read",
}


@dataclass(frozen=True)
class Roofs:
    """The measured peaks of a device: fp32 FMA in TFLOP/s, and reads of its memory in TB/s."""

    fma: float
    read: float

    @classmethod
    def of(cls, folder: Path) -> Roofs | None:
        """Returns the ceilings of a folder of results, or None if one was not measured."""
        frame = store.read(folder, "roofs")
        if frame.empty:  # and without columns, if the study is gone
            return None
        values = frame.set_index("stage")["value"].dropna()
        return cls(values["fma"], values["dram_read"]) if {"fma", "dram_read"} <= set(values.index) else None

    def read_us(self, problem: Problem) -> float:
        """Returns the microseconds in which A, B and C are moved once at the read roof."""
        return problem.min_bytes / self.read / 1e6

    def read_shares(self, rows: pd.DataFrame) -> pd.Series:
        """Returns the share of the read roof that timed rows reach."""
        problems = (Problem(row.m, row.n, row.k, row.math) for row in rows.itertuples())
        return pd.Series([self.read_us(each) for each in problems], rows.index, float) / rows["median_us"]

    def is_read(self, problem: Problem) -> bool:
        """Returns whether moving A, B and C takes longer than the arithmetic in fp32."""
        return self.read_us(problem) > problem.flops / self.fma / 1e6
