"""s20 on operands past 2^32 elements: one block of each kernel, on matrices that are files full of holes."""

from __future__ import annotations

import functools
from math import prod
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import cuda_kernels
import gemm_ref
import triton_kernels
from experiments.studies.shared.chains import chain_of
from gemm_ref import DIALECTS, MATHS, Launch, Split, ptx
from gemm_ref.call import validate
from gemm_ref.launch import cdiv
from gemm_ref.operands.split import in_parts
from gemm_ref.ptx import program
from gemm_ref.ptx.core.coordinates import block_order
from tests.matrices import sparse

LONG, SHORT, EDGE = 2**28, 20, 128  # 16 long lines are 2^32 elements: zeros, but for an edge


def in_large_parts(folder: Path, few: torch.Tensor, by_rows: bool, math: str) -> Split:
    """`few` as the last rows, or else the first columns, of an operand of which there are LONG."""
    mode, (exponents, parts) = MATHS[math], in_parts(few, by_rows, math)
    rows, columns = (LONG, SHORT) if by_rows else (SHORT, LONG)
    edge, lines = (slice(-EDGE, None), slice(-EDGE, None)) if by_rows else ((..., slice(EDGE)), slice(EDGE))
    made = Split(
        sparse(folder, torch.float32, rows, columns),
        by_rows,
        math,
        sparse(folder, mode.part_dtype, mode.parts, rows, cdiv(columns, 8) * 8)[..., :columns],
        sparse(folder, torch.int32, LONG),
        "a" if by_rows else "b",
    )
    made.matrix[edge], made.exponents[lines] = few, exponents
    for to, part in zip(made.parts, parts, strict=True):
        to[edge] = part
    return made


def from_the_end(launch: Launch) -> np.ndarray:
    return block_order(launch).reshape(-1, prod(launch.cluster))[::-1].ravel()


@pytest.mark.filterwarnings("ignore:.*will take the reference GPU")
@pytest.mark.parametrize("large, math", [("A", "bf16x6"), ("B", "fp16x3")])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_offsets_of_64_bits(dialect, large, math, tmp_path):
    """The block with the first columns of a long B, or the last rows of a long A, where one of them is wide."""
    gemm = cuda_kernels.gemm if dialect == "cuda" else functools.partial(triton_kernels.gemm, dialect=dialect)
    tile = "swapped64x16" if dialect in gemm_ref.get_stage("s20").tiles else "default"  # which compiles fastest
    torch.manual_seed(1)
    a, b = torch.randn(EDGE if large == "A" else SHORT, SHORT), torch.randn(SHORT, EDGE if large == "B" else SHORT)
    (a[-3] if large == "A" else b[:, 2]).mul_(2.0**-110)
    want = chain_of(math, dialect).product(a, b, math)
    if large == "A":
        given, shape, order = (in_large_parts(tmp_path, a, True, math), b), (LONG, SHORT), from_the_end
    else:
        given, shape, order = (a, in_large_parts(tmp_path, b, False, math)), (SHORT, LONG), block_order
    out = sparse(tmp_path, torch.float32, *shape)
    everything = mock.patch.object(validate, "REFERENCE_SMS", LONG)  # so a tile is all that a block has
    with ptx.first_block(), everything, mock.patch.object(program, "block_order", order):
        gemm(*given, stage="s20", variant=tile, math=math, out=out)
    got = out[-EDGE:] if large == "A" else out[:, :EDGE]
    written = got != 0
    assert written.sum() >= 16 * SHORT and written[-3 if large == "A" else 3, 2]
    assert torch.equal(got[written], want[written])
