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
    plan: Plan,
    a: torch.Tensor,
    b: torch.Tensor,
    depth: int,
    layout: Callable[[int], object] | None = None,
    turned: bool = False,
) -> tuple[Descriptor, Descriptor]:
    """The descriptors of the parts of A (parts, M, K) and of B (parts, K, N) or (parts, N, K), as it is stored.

    A block is of one part, `depth` elements along K. layout: how one with so many columns lies in shared memory.
    turned: as for `describe_operands`.
    """
    config, by_rows = plan.implementation.config, plan.problem.b_layout == "kn"
    of_a, of_b = (config.BLOCK_N, config.BLOCK_M) if turned else (config.BLOCK_M, config.BLOCK_N)
    blocks = (of_a, depth), (depth, of_b) if by_rows else (of_b, depth)
    kind = tensor_descriptor.TensorDescriptor if layout is None else hopper.TensorDescriptor
    described = []
    for x, block in zip((a, b), blocks, strict=True):
        strides = [x.stride(0), x.stride(0) // x.shape[1], 1]
        described.append(kind(x, list(x.shape), strides, [1, *block], *([] if layout is None else [layout(block[1])])))
    a, b = described
    return (b, a) if turned else (a, b)


def describe_operands(
    plan: Plan,
    a: torch.Tensor,
    b: torch.Tensor,
    layout: Callable[[torch.dtype, int], object] = lambda dtype, columns: None,
    turned: bool = False,
) -> tuple[Descriptor, Descriptor]:
    """The descriptors of A and B, in slices of BLOCK_K; of B (K, N) as it is stored, or of its transpose.

    layout: how a block of a type, with so many columns, lies in shared memory, as for `describe`. turned: whether tiles
    are of C^T = B^T @ A^T; then B's comes first.
    """
    config, depth = plan.implementation.config, block_k(plan)
    of_a, of_b = (config.BLOCK_N, config.BLOCK_M) if turned else (config.BLOCK_M, config.BLOCK_N)
    b, block = (b, (depth, of_b)) if plan.problem.b_layout == "kn" else (b.t(), (of_b, depth))
    described = describe(a, of_a, depth, layout(a.dtype, depth)), describe(b, *block, layout(b.dtype, block[1]))
    return described[::-1] if turned else described
