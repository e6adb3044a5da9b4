"""What is computed: the sizes and the arithmetic of one GEMM. Nothing here computes, so nothing here imports torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_SIZE = 2**31 - 1 - 1024  # the last tile's indices, up to a block past the edge, must not overflow
B_LAYOUTS = ("kn", "nk")  # how B (K, N) is stored: its rows one after another, or its columns

INPUT_KINDS = ("normal", "uniform", "integers", "one_hot", "zeros")
INTEGER_LIMIT = 4  # integers are in [-4, 4]: sums of products stay exact in fp32 while K * 16 <= 2**24
EXACT_KINDS = ("integers", "one_hot")  # any order of IEEE operations gives the oracle's bits


@dataclass(frozen=True)
class Math:
    """A math mode: what the elements are, what the arithmetic between them is, and what each step of it may lose.

    An element of C may be off by (2 * operand_eps + K * sum_eps) * (|A| @ |B|) + result_eps * |C|; each eps is twice
    what a sound kernel loses at worst.
    """

    name: str
    element: str  # of A and B, as torch names it
    operand_eps: float  # for cutting an operand down before it is multiplied; 0 where it is taken as it is
    sum_eps: float  # for each of the K additions
    result_eps: float  # for rounding the sum to the dtype of C; 0 where it is the sum
    out_element: str  # of C
    exact_sum: int = 2**24  # integers up to here are added without rounding
    parts: int = 1  # of an element: more than one where `operands.split` makes several numbers of it, for tensor cores
    part_element: str = ""  # of a part, as torch names it
    part_shift: int = 0  # parts after the first are 2**part_shift times as large as what they stand for
    least: int = 0  # a scaled element below 2**least may lose more than 2**-22 of itself

    @property
    def most(self) -> int:
        """The largest size: parts are stored one below the other, and the rows of all are counted."""
        return MAX_SIZE // self.parts

    @property
    def products(self) -> int:
        """How many products of parts make one of elements."""
        return self.parts * (self.parts + 1) // 2

    @cached_property
    def dtype(self) -> torch.dtype:
        """Of A and B."""
        return _dtype(self.element)

    @cached_property
    def part_dtype(self) -> torch.dtype:
        """Of what is multiplied."""
        return _dtype(self.part_element or self.element)

    @cached_property
    def out_dtype(self) -> torch.dtype:
        """Of C."""
        return _dtype(self.out_element)

    def is_exact(self, kind: str) -> bool:
        """Whether inputs of this kind leave no room for rounding: any order of operations gives the oracle's bits."""
        return kind in EXACT_KINDS and not (kind == "one_hot" and self.operand_eps)


def _dtype(element: str) -> torch.dtype:
    import torch  # two seconds, for those who compute alone

    return getattr(torch, element)


_FP32_EPS, _FP16_EPS, _BF16_EPS = 2.0**-23, 2.0**-10, 2.0**-7  # from 1 to the next number
# TF32 keeps 10 bits of fraction. Tensor cores cut what IEEE would round (`ptx.units.tensor_core`): g products
# and their addend lose at most (g + 1) 2^-25 + 2^-23 of |A| @ |B|, for each product 0.33 to 0.56 _FP32_EPS (g
# from 16 to 4), and 0.88 where 24 bits are kept in place of 25, as on Ampere. wgmma of fp8: 34 2^-13 of 32 products.
# An element in parts loses 2^-22 at most, and the products of small parts that are left out as much: 6 _FP32_EPS of
# |A| @ |B|. The largest products are added in the tensor core 64 k at a time, which loses 21 more, once: all of this is
# `operand_eps`. Then each 64 k are an addition in fp32, and the small products' sums are 2^-8 of it: `sum_eps`.
_TABLE = (
    Math("fp32", "float32", 0.0, _FP32_EPS, 0.0, "float32"),
    Math("tf32", "float32", 2**-9, 2 * _FP32_EPS, 0.0, "float32"),
    Math("fp16", "float16", 0.0, 2 * _FP32_EPS, _FP16_EPS, "float16"),
    Math("bf16", "bfloat16", 0.0, 2 * _FP32_EPS, _BF16_EPS, "bfloat16"),
    Math("fp8", "float8_e4m3fn", 0.0, 2.0**-12, _BF16_EPS, "bfloat16", exact_sum=2**13),
    Math("fp16x3", "float32", 2.0**-18, 2**-4 * _FP32_EPS, 0.0, "float32",
         parts=2, part_element="float16", part_shift=12, least=-15),
    Math("bf16x6", "float32", 2.0**-18, 2**-4 * _FP32_EPS, 0.0, "float32",
         parts=3, part_element="bfloat16", part_shift=0, least=-112),
)  # fmt: skip
MATHS = {math.name: math for math in _TABLE}
NATIVE = tuple(math.name for math in _TABLE if math.parts == 1)  # what GPUs multiply
WIDE = 1 << 30  # in place of the exponent of a line that parts do not hold (`operands.split`)
EMULATED = tuple(math.name for math in _TABLE if math.parts > 1)  # what s20 makes of several products of those


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
