"""Small Triton programs, for the tests that look at what Triton makes of them."""

from __future__ import annotations

import triton
import triton.language as tl

from triton_kernels.finish import activate

BLOCK_N, BLOCK_K = 64, 32  # of `dot`


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


@triton.jit
def promoting(a_ptr, b_ptr, c_ptr, steps, AS_FMA: tl.constexpr):
    """c[64, 64] = the sum of steps products of 64 x 64 x 64, each added to the others outside the tensor core."""
    i = tl.arange(0, 64)
    at = i[:, None] * 64 + i[None, :]
    acc = tl.zeros((64, 64), tl.float32)
    for step in range(steps):
        a = tl.load(a_ptr + step * 4096 + at)
        b = tl.load(b_ptr + step * 4096 + at)
        if AS_FMA:
            acc = tl.fma(tl.dot(a, b), 1.0, acc)
        else:
            acc += tl.dot(a, b)
    tl.store(c_ptr + at, acc)


@triton.jit
def activated(x_ptr, SIZE: tl.constexpr, ACTIVATION: tl.constexpr):
    """x[SIZE] = activation(x[SIZE]), as in the epilogues of both dialects."""
    i = tl.arange(0, SIZE)
    tl.store(x_ptr + i, activate(tl.load(x_ptr + i), ACTIVATION))
