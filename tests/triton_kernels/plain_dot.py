"""A plain `tl.dot`, for the tests that look at what Triton makes of it."""

from __future__ import annotations

import triton
import triton.language as tl

BLOCK_N, BLOCK_K = 64, 32


@triton.jit
def dot(
    a, b, c,
    M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """c[M, N] = a[M, K] @ b[K, N], row-major, summed in fp32."""
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        a_inside = (rows[:, None] < M) & (depth[None, :] < K)
        b_inside = (depth[:, None] < K) & (columns[None, :] < N)
        x = tl.load(a + rows[:, None] * K + depth[None, :], mask=a_inside, other=0.0)
        y = tl.load(b + depth[:, None] * N + columns[None, :], mask=b_inside, other=0.0)
        sums = tl.dot(x, y, sums, input_precision=PRECISION)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], sums.to(c.dtype.element_ty), mask=inside)
