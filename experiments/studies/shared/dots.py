"""The instructions whose sums `rounding` examines, and how a GPU is made to carry out one of them many times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cuda_kernels import ceilings
from cuda_kernels.ceilings import MicroKernel
from experiments.studies.shared.dot_vectors import Vectors
from gemm_ref.launch import cdiv
from gemm_ref.ptx.units.formats import BITS, numbers
from gemm_ref.ptx.units.tensor_core import multiply_add

PER_WARP = 8  # vectors that one instruction of mma_dots.cu and wgmma_dots.cu takes


@dataclass(frozen=True)
class Dots:
    """One instruction: D = A @ B + C, k products a sum."""

    instruction: str  # mma, wgmma
    kinds: tuple[str, str, str]  # of A, B, and of C and D
    k: int

    @property
    def ptx_name(self) -> str:
        a, b, sums = self.kinds
        if self.instruction == "wgmma":
            return f"wgmma.mma_async.sync.aligned.m64n8k{self.k}.{sums}.{a}.{b}"
        return f"mma.sync.aligned.m16n8k{self.k}.row.col.{sums}.{a}.{b}.{sums}"

    @property
    def kernel(self) -> MicroKernel:
        if self.instruction == "wgmma":
            return MicroKernel("wgmma_dots", 128, 1, ("WGMMA", self.ptx_name), (9, 0), (9, 0))
        least = (8, 9) if BITS[self.kinds[0]].itemsize == 1 else (8, 0)
        return MicroKernel("mma_dots", 32, 1, ("MMA", self.ptx_name), least)

    def __str__(self) -> str:
        a, b, sums = self.kinds
        return f"{self.instruction} {a if a == b else f'{a} x {b}'} k{self.k}" + ("" if sums == "f32" else " f16 sums")


def _all() -> tuple[Dots, ...]:
    fp8 = ("e4m3", "e5m2")
    found = [Dots("mma", (kind, kind, "f32"), k) for kind, k in (("f16", 16), ("f16", 8), ("bf16", 16), ("bf16", 8))]
    found += [Dots("mma", ("tf32", "tf32", "f32"), k) for k in (8, 4)]
    found += [Dots("mma", ("f16", "f16", "f16"), k) for k in (16, 8)]
    found += [Dots("mma", (a, b, "f32"), 32) for a in fp8 for b in fp8]
    found += [Dots("mma", (kind, kind, "f16"), 32) for kind in fp8]
    found += [Dots("wgmma", (kind, kind, "f32"), k) for kind, k in (("f16", 16), ("bf16", 16), ("tf32", 8))]
    found += [Dots("wgmma", (a, b, "f32"), 32) for a in fp8 for b in fp8]
    return tuple(found)


DOTS = _all()


def words(vectors: Vectors) -> np.ndarray:
    """What the micro-kernels read: a, b and c one after another; whole warps of vectors, the last ones zeros."""
    missing = -len(vectors.c) % PER_WARP
    parts = [vectors.a, vectors.b, vectors.c.astype(np.uint32)]
    filled = [np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) for part in parts]
    return np.concatenate([np.ascontiguousarray(part).view(np.uint32).ravel() for part in filled])


def on_gpu(dots: Dots, vectors: Vectors) -> np.ndarray:
    """a . b + c of each vector on the current GPU: (count,) codes of the format of c. Raises as `ceilings.launch`."""
    given = torch.from_numpy(words(vectors).view(np.int32)).cuda()
    blocks = cdiv(len(vectors.c), PER_WARP)
    out = torch.full((blocks * PER_WARP,), -1, dtype=torch.int32, device="cuda")
    ceilings.launch(dots.kernel, given, out, 1, blocks)
    return out.cpu().numpy().view(np.uint32)[: len(vectors.c)].astype(vectors.c.dtype)


def modelled(dots: Dots, vectors: Vectors) -> np.ndarray:
    """The same as the reference GPU makes it."""
    c = vectors.c.view(np.float32 if dots.kinds[2] == "f32" else np.float16)[:, None, None]
    with np.errstate(all="ignore"):
        operands = (vectors.a, dots.kinds[0]), (vectors.b, dots.kinds[1])
        a, b = (numbers(codes, kind, np.float32)[:, None] for codes, kind in operands)
        return multiply_add(dots.instruction, a, b, dots.kinds[:2], c).ravel().view(vectors.c.dtype)
