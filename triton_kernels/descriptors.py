"""Tensor descriptors: what the TMA unit is told about a matrix, as Triton and Gluon take it."""

from __future__ import annotations

import torch
from triton.experimental.gluon.nvidia import hopper
from triton.tools import tensor_descriptor

from gemm_ref.operands import TMA_BYTES
from gemm_ref.stage import cdiv

Descriptor = tensor_descriptor.TensorDescriptor | hopper.TensorDescriptor


def describe(x: torch.Tensor, rows: int, columns: int, layout: object | None = None) -> Descriptor:
    """The descriptor of x (M, N), row-major with rows as `operands.with_tma_rows` makes them, in blocks of rows x columns.

    layout: how a block lies in shared memory, which Gluon says here and Triton decides by itself.
    """
    strides = [_row_elements(x), 1]
    if layout is None:
        return tensor_descriptor.TensorDescriptor(x, list(x.shape), strides, [rows, columns])
    return hopper.TensorDescriptor(x, list(x.shape), strides, [rows, columns], layout)


def _row_elements(x: torch.Tensor) -> int:
    """Elements from a row of x to the next; torch says what it likes where there is one row."""
    rows, columns = x.shape
    multiple = TMA_BYTES // x.itemsize
    return x.stride(0) if rows > 1 else cdiv(columns, multiple) * multiple
