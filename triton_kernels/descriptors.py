"""Tensor descriptors: what the TMA unit is told about a matrix, as Triton and Gluon take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from triton.experimental.gluon.nvidia import hopper
from triton.tools import tensor_descriptor

from gemm_ref.call import Plan
from gemm_ref.compute import MATHS
from gemm_ref.operands import row_elements

Descriptor: TypeAlias = tensor_descriptor.TensorDescriptor | hopper.TensorDescriptor
Operand: TypeAlias = torch.Tensor | Descriptor


def block_k(plan: Plan) -> int:
    """BLOCK_K in elements, for the rungs whose slices are as many bytes in every compute type."""
    return plan.implementation.config.depth(MATHS[plan.problem.math].dtype.itemsize)


def describe(x: torch.Tensor, rows: int, columns: int, layout: object | None = None) -> Descriptor:
    """The descriptor of x (M, N), whose rows are as `operands.with_tma_rows` has them, in blocks of rows x columns.

    layout: how a block lies in shared memory, which Gluon says here and Triton decides by itself.
    """
    strides = [row_elements(x), 1]
    if layout is None:
        return tensor_descriptor.TensorDescriptor(x, list(x.shape), strides, [rows, columns])
    return hopper.TensorDescriptor(x, list(x.shape), strides, [rows, columns], layout)


def describe_parts(
    plan: Plan, left: torch.Tensor, right: torch.Tensor, depth: int, layout: Callable[[int], object] | None = None
) -> tuple[Descriptor, Descriptor]:
    """The descriptors of the parts of both operands: of A (parts, M, K), and of B (parts, K, N) or (parts, N, K).

    left is A's, or B's where the kernel computes C^T. A block is of one part, `depth` elements along K. layout: how one
    with so many columns lies in shared memory.
    """
    kind = tensor_descriptor.TensorDescriptor if layout is None else hopper.TensorDescriptor

    def describe_one(x: torch.Tensor, block: tuple[int, int]) -> Descriptor:
        strides = [x.stride(0), x.stride(0) // x.shape[1], 1]
        return kind(x, list(x.shape), strides, [1, *block], *([] if layout is None else [layout(block[1])]))

    of_left, of_right = _blocks(plan, depth, plan.implementation.config.BLOCK_N)
    return describe_one(left, of_left), describe_one(right, of_right)


def describe_operands(
    plan: Plan,
    left: torch.Tensor,
    right: torch.Tensor,
    layout: Callable[[torch.dtype, int], object] = lambda dtype, columns: None,
    widths: tuple[int, ...] = (),
) -> tuple[Descriptor, ...]:
    """The descriptors of both operands in slices of BLOCK_K: of A (M, K) and of B (K, N), or of its transpose.

    left is A, or B where the kernel computes C^T. layout: how a block of a type, with so many columns, lies in shared
    memory, as for `describe`. widths: of the right operand's blocks, with a descriptor for each; else BLOCK_N.
    """
    item = plan.implementation
    if item.b_layout == "nk":  # as it is stored
        left, right = (left.t(), right) if item.transpose_c else (left, right.t())
    depth = block_k(plan)
    widths = widths or (item.config.BLOCK_N,)
    of_left, of_right = _blocks(plan, depth, widths[0])[0], [_blocks(plan, depth, width)[1] for width in widths]
    return (
        describe(left, *of_left, layout(left.dtype, of_left[1])),
        *(describe(right, *block, layout(right.dtype, block[1])) for block in of_right),
    )


def _blocks(plan: Plan, depth: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of a slice of the left and of `width` columns of the right operand, as each is stored."""
    item, config = plan.implementation, plan.implementation.config
    of_a, of_b = (width, config.BLOCK_M) if item.transpose_c else (config.BLOCK_M, width)
    a, b = (of_a, depth), (depth, of_b) if item.b_layout == "kn" else (of_b, depth)
    return (b, a) if item.transpose_c else (a, b)
