"""The orders in which rungs on tensor cores add, without the rungs: as fast as NumPy is, so K may be large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gemm_ref import MATHS
from gemm_ref.compute import TENSOR_CORE, WIDE
from gemm_ref.launch import cdiv
from gemm_ref.operands.split import in_parts
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


@dataclass(frozen=True)
class Emulated:
    """s20's sums: of the largest products for `promote` k at a time, added in fp32; of the small ones for all of K."""

    kind: str
    how: Sum
    promote: int = 64
    depth: int = 64  # of a slice: the k in which each of the small products is added in turn

    def product(self, a: torch.Tensor, b: torch.Tensor, math: str) -> torch.Tensor:
        """C (M, N) in fp32; what the mode does not hold is added in fp32, one product after another."""
        mode, depth = MATHS[math], cdiv(a.shape[1], self.promote) * self.promote
        sides = [np.pad(x.contiguous().numpy(), ((0, 0), (0, depth - a.shape[1]))) for x in (a, b.t())]
        (rows, x), (columns, y) = (in_parts(torch.from_numpy(side), True, math) for side in sides)
        x, y = ([part.float().numpy() for part in parts] for parts in (x, y))
        sums = np.zeros((len(a), b.shape[1]), np.float32)
        for first in range(0, depth, self.promote):
            k = slice(first, first + self.promote)
            sums += self._sums(x[0][:, k], y[0][:, k])
        if small := [(i, total - i) for total in range(1, mode.parts) for i in range(total + 1)]:
            slices = range(0, depth, self.depth)
            left, right = (
                np.concatenate([side[pair[which]][:, k : k + self.depth] for k in slices for pair in small], axis=1)
                for which, side in enumerate((x, y))
            )
            sums = (sums + np.float64(self._sums(left, right)) * 2.0**-mode.part_shift).astype(np.float32)
        exponents = rows[:, None] + columns
        wide = (rows[:, None] == WIDE) | (columns == WIDE)
        c = torch.ldexp(torch.from_numpy(sums).double(), -torch.where(wide, 0, exponents)).float()
        return torch.where(wide, in_fp32(a, b), c) if wide.any() else c

    def _sums(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        zeros = np.zeros((1, len(x), len(y)), np.float32)
        with np.errstate(all="ignore"):
            return add_products(x[None], y[None], (self.kind, self.kind), zeros, self.how)[0]


@dataclass(frozen=True)
class InTurn:
    """One multiply-add after another in IEEE fp32."""

    def product(self, a: torch.Tensor, b: torch.Tensor, math: str) -> torch.Tensor:
        """C (M, N)."""
        return in_fp32(a, b)


def in_fp32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b as one multiply-add after another, each rounded to fp32: what SGEMM computes, in its order of K."""
    sums = torch.zeros(len(a), b.shape[1])
    for k in range(a.shape[1]):
        sums = torch.addcmul(sums.double(), a[:, k, None].double(), b[k].double()).float()
    return sums


def _cut(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint32) & np.uint32(0xFFFFE000)


def _wgmma_chain(math: str) -> Chain:
    """Returns the chain of a compute type whose operands wgmma takes as they are, 32 bytes along K at a time."""
    kind = MATHS[math].mma_type
    return Chain(kind, sum_of("wgmma", kind, 32 // MATHS[math].dtype.itemsize))


Adds = Chain | Emulated | InTurn
# tf32: what TMA does with fp32 that it copies; cvt.rna; and where neither is asked to, what the instruction leaves out.
CHAINS: dict[str, tuple[Adds, ...]] = {
    "fp32": (InTurn(),),
    **{math: (_wgmma_chain(math),) for math in TENSOR_CORE},
    "tf32": tuple(
        Chain("tf32", sum_of(instruction, "tf32", 8), prepare)
        for instruction in ("wgmma", "wmma")
        for prepare in (round_to_tf32, round_to_tf32_away, _cut)
    ),
    "fp16x3": (Emulated("f16", sum_of("wgmma", "f16", 16)),),
    "bf16x6": tuple(
        Emulated("bf16", sum_of("wgmma", "bf16", 16), depth, depth)
        for depth in (64, 32)  # the latter is Triton's
    ),
}


def chain_of(math: str, dialect: str) -> Adds:
    """How SGEMM, TF32 or s20 adds: of s20's slices Triton's are as deep as three have room for."""
    chains = CHAINS[math]
    return chains[-1] if math == "bf16x6" and dialect == "triton" else chains[0]
