"""Small Triton programs, for the tests that look at what Triton makes of them."""

from __future__ import annotations

import triton
import triton.language as tl

from triton_kernels.finish import activate


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
