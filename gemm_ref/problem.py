"""The sizes and the compute type of one GEMM. Nothing here computes, so nothing here imports torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gemm_ref.compute import MATHS

INPUT_KINDS = ("normal", "uniform", "integers", "one_hot", "k_tail", "zeros")
INTEGER_LIMIT = 4  # integers are in [-4, 4]: sums of products stay exact in fp32 while K * 16 <= 2**24
TAIL = 64  # last products of each sum that the kind `k_tail` tries; their sum is at most 256, which 8 bits hold


@dataclass(frozen=True)
class Problem:
    """C[m, n] = A[m, k] @ B[k, n]; any size may be 0 (k = 0 gives zeros, as in BLAS).

    A and C are row-major; B is as `b_layout` says, one of B_LAYOUTS. a_phases: as how many matrices the TMA unit reads
    A (`operands.phases_at`).
    """

    m: int
    n: int
    k: int
    math: str = "fp32"
    b_layout: str = "kn"
    a_phases: int = 1

    @classmethod
    def parse(cls, text: str) -> Problem:
        """`"4096"` is a cube and `"1021x509x131"` is M x N x K. Raises ValueError for anything else."""
        if not re.fullmatch(r"[0-9]+(x[0-9]+x[0-9]+)?", text):
            raise ValueError(f"size {text!r} is not understood: write 4096 for a cube, or MxNxK such as 1021x509x131")
        sizes = [int(part) for part in text.split("x")]
        m, n, k = sizes * 3 if len(sizes) == 1 else sizes
        return cls(m, n, k)

    def resized(self, m: int | None = None, n: int | None = None, k: int | None = None) -> Problem:
        """The same arithmetic at other sizes; None leaves one as it is."""
        return replace(self, m=self.m if m is None else m, n=self.n if n is None else n, k=self.k if k is None else k)

    @property
    def a_shape(self) -> tuple[int, int]:
        return self.m, self.k

    @property
    def b_shape(self) -> tuple[int, int]:
        return self.k, self.n

    @property
    def flops(self) -> int:
        """Floating-point operations: a multiply and an add for each of the M*N*K products."""
        return 2 * self.m * self.n * self.k

    @property
    def c_bytes(self) -> int:
        """The size of C."""
        return self.m * self.n * MATHS[self.math].out_dtype.itemsize

    @property
    def min_bytes(self) -> int:
        """The fewest bytes device memory must move: A and B read once, C written once."""
        operands = (self.m * self.k + self.k * self.n) * MATHS[self.math].dtype.itemsize
        return operands + self.c_bytes

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def integers_are_exact(problem: Problem) -> bool:
    """Whether sums of products of `integers` inputs stay exact in the problem's math, in any order."""
    return problem.k * INTEGER_LIMIT**2 <= MATHS[problem.math].exact_sum
