"""The orders in which rungs on tensor cores add, without the rungs: as fast as NumPy is, so K may be large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gemm_ref import MATHS
from gemm_ref.ptx.units.formats import round_to_tf32, round_to_tf32_away
from gemm_ref.ptx.units.tensor_core import Sum, add_products, sum_of


@dataclass(frozen=True)
class Chain:
    """One accumulator for each element of C, from zero, and all of K in order."""

    kind: str  # of the operands, as a tensor core takes them
    how: Sum
    prepare: Callable[[np.ndarray], np.ndarray] = np.asarray  # fp32 operands, before they are multiplied

    def product(self, a: torch.Tensor, b: torch.Tensor, math: str) -> torch.Tensor:
        """C (M, N) of the math mode's type."""
        x, y = (self.prepare(part.float().contiguous().numpy()).view(np.float32) for part in (a, b.t()))
        zeros = np.zeros((1, len(x), len(y)), np.float32)
        with np.errstate(all="ignore"):
            sums = add_products(x[None], y[None], (self.kind, self.kind), zeros, self.how)
        return torch.from_numpy(sums[0]).to(MATHS[math].out_dtype)


def _cut(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint32) & np.uint32(0xFFFFE000)


# tf32: what TMA does with fp32 that it copies; cvt.rna; and where neither is asked to, what the instruction leaves out.
CHAINS = {
    "fp16": (Chain("f16", sum_of("wgmma", "f16", 16)),),
    "bf16": (Chain("bf16", sum_of("wgmma", "bf16", 16)),),
    "tf32": tuple(
        Chain("tf32", sum_of(instruction, "tf32", 8), prepare)
        for instruction in ("wgmma", "wmma")
        for prepare in (round_to_tf32, round_to_tf32_away, _cut)
    ),
    "fp8": (Chain("e4m3", sum_of("wgmma", "e4m3", 32)),),
}
