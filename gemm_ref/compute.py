"""The table of compute types, one row each: what the elements are, what the arithmetic between them is, and its names.

A new compute type is a row here and the kernels that have it. Nothing here computes, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_SIZE = 2**31 - 1 - 1024  # the last tile's indices, up to a block past the edge, must not overflow
B_LAYOUTS = ("kn", "nk")  # how B (K, N) is stored: its rows one after another, or its columns
EXACT_KINDS = ("integers", "one_hot", "k_tail")  # of inputs: any order of IEEE operations gives the oracle's bits
WIDE = 1 << 30  # in place of the exponent of a row or column that parts cannot represent (`operands.split`)


@dataclass(frozen=True)
class Element:
    """A type of matrix elements, under the name that each language has for it."""

    name: str  # of torch
    cpp: str  # of CUDA C++, as include/element.cuh has it
    cutlass: str
    tma_code: int  # CUtensorMapDataType of cuda.h

    @cached_property
    def dtype(self) -> torch.dtype:
        """The type in torch."""
        import torch  # two seconds, which only callers that compute have to wait

        return getattr(torch, self.name)

    @cached_property
    def integer_dtype(self) -> torch.dtype:
        """The torch integer of the same width, as which the bits of an element are compared."""
        import torch

        return getattr(torch, f"int{8 * self.dtype.itemsize}")


_FLOAT32 = Element("float32", "float", "float", 7)
_FLOAT16 = Element("float16", "__half", "cutlass::half_t", 6)
_BFLOAT16 = Element("bfloat16", "__nv_bfloat16", "cutlass::bfloat16_t", 9)
_FLOAT8 = Element("float8_e4m3fn", "__nv_fp8_e4m3", "cutlass::float_e4m3_t", 0)
ELEMENTS: Mapping[str, Element] = MappingProxyType({e.name: e for e in (_FLOAT32, _FLOAT16, _BFLOAT16, _FLOAT8)})
TMA_TF32 = 11  # CUtensorMapDataType TFLOAT32: fp32 elements that the TMA unit rounds to tf32


def element_of(dtype: torch.dtype) -> Element:
    """The row of a torch type; KeyError for a type that no compute type takes or returns."""
    return ELEMENTS[str(dtype).removeprefix("torch.")]


@dataclass(frozen=True)
class ComputeType:
    """One row: the elements of A and B, the arithmetic between them, and what each step of it may lose.

    An element of C may be off by (2 * operand_eps + K * sum_eps) * (|A| @ |B|) + result_eps * |C|; each eps is twice
    what a sound kernel loses at worst.
    """

    name: str
    element: Element  # of A and B
    operand_eps: float  # lost by rounding an operand before it is multiplied; 0 where it is multiplied as it is
    sum_eps: float  # lost by each of the K additions
    result_eps: float  # lost by rounding the sum to C's type; 0 where C has the type of the sum
    out_element: Element  # of C
    mma_type: str = ""  # in mnemonics of mma and wgmma; empty for a compute type of CUDA cores, and for an emulated one
    tensor_rate: float = 0.0  # FLOP per clock of a tensor core, relative to 16-bit elements
    cublas_b_layouts: tuple[str, ...] = B_LAYOUTS  # in which cuBLAS reads B
    exact_sum: int = 2**24  # integers up to here are added without rounding
    parts: int = 1  # of an element: more than one where `operands.split` makes several numbers of it, for tensor cores
    part: Element | None = None  # the type of a part; None for the element's own
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

    @property
    def has_scales(self) -> bool:
        """Whether a call may scale the product: the range of 8-bit elements is small."""
        return self.element.name.startswith("float8")

    @property
    def part_element(self) -> Element:
        """The type of the numbers that are multiplied."""
        return self.part or self.element

    @cached_property
    def dtype(self) -> torch.dtype:
        """The torch type of A and B."""
        return self.element.dtype

    @cached_property
    def part_dtype(self) -> torch.dtype:
        """The torch type of the numbers that are multiplied."""
        return self.part_element.dtype

    @cached_property
    def out_dtype(self) -> torch.dtype:
        """The torch type of C."""
        return self.out_element.dtype

    @property
    def tma_code(self) -> int:
        """CUtensorMapDataType of what is multiplied, as the TMA unit copies it."""
        return TMA_TF32 if self.mma_type == "tf32" else self.part_element.tma_code

    @property
    def wgmma_b_layouts(self) -> tuple[str, ...]:
        """The layouts in which wgmma reads B: by rows only in 16-bit types, and else along K."""
        return B_LAYOUTS if self.part_element in (_FLOAT16, _BFLOAT16) else ("nk",)

    def is_exact(self, kind: str) -> bool:
        """Whether inputs of this kind leave no room for rounding: any order of operations gives the oracle's bits."""
        return kind in EXACT_KINDS and not (kind == "one_hot" and self.operand_eps)


_FP32_EPS, _FP16_EPS, _BF16_EPS = 2.0**-23, 2.0**-10, 2.0**-7  # from 1 to the next number
# TF32 keeps 10 bits of fraction. Tensor cores cut what IEEE would round (`ptx.units.tensor_core`): g products
# and their addend lose at most (g + 1) 2^-25 + 2^-23 of |A| @ |B|, for each product 0.33 to 0.56 _FP32_EPS (g
# from 16 to 4), and 0.88 where 24 bits are kept in place of 25, as on Ampere. wgmma of fp8: 34 2^-13 of 32 products.
# An element in parts loses 2^-22 at most, and the products of small parts that are left out as much: 6 _FP32_EPS of
# |A| @ |B|. The largest products are added in the tensor core 64 k at a time, which loses 21 more, once: all of this is
# `operand_eps`. Then each 64 k are an addition in fp32, and the small products' sums are 2^-8 of it: `sum_eps`.
_TABLE = (
    ComputeType("fp32", _FLOAT32, 0.0, _FP32_EPS, 0.0, _FLOAT32),
    ComputeType("tf32", _FLOAT32, 2**-9, 2 * _FP32_EPS, 0.0, _FLOAT32, "tf32", 0.5),
    ComputeType("fp16", _FLOAT16, 0.0, 2 * _FP32_EPS, _FP16_EPS, _FLOAT16, "f16", 1.0),
    ComputeType("bf16", _BFLOAT16, 0.0, 2 * _FP32_EPS, _BF16_EPS, _BFLOAT16, "bf16", 1.0),
    ComputeType("fp8", _FLOAT8, 0.0, 2.0**-12, _BF16_EPS, _BFLOAT16, "e4m3", 2.0, ("nk",), exact_sum=2**13),
    ComputeType("fp16x3", _FLOAT32, 2.0**-18, 2**-4 * _FP32_EPS, 0.0, _FLOAT32, tensor_rate=1 / 3,
                parts=2, part=_FLOAT16, part_shift=12, least=-15),
    ComputeType("bf16x6", _FLOAT32, 2.0**-18, 2**-4 * _FP32_EPS, 0.0, _FLOAT32, tensor_rate=1 / 6,
                parts=3, part=_BFLOAT16, part_shift=0, least=-112),
)  # fmt: skip
MATHS: Mapping[str, ComputeType] = MappingProxyType({compute.name: compute for compute in _TABLE})
NATIVE = tuple(compute.name for compute in _TABLE if compute.parts == 1)  # what GPUs multiply
SCALED = tuple(compute.name for compute in _TABLE if compute.has_scales)
EMULATED = tuple(compute.name for compute in _TABLE if compute.parts > 1)  # what s20 makes of several products of those
TENSOR_CORE = tuple(compute.name for compute in _TABLE if compute.mma_type)  # what mma and wgmma multiply
