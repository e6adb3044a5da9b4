"""s08 vectorized: global memory is accessed 16 bytes at a time.

Idea: one instruction moves 4 neighbours: a quarter of the loads, stores and address arithmetic.
Changed from s07: the compiler may know whether N, K and addresses are multiples of 16; the body is the same.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 8 warps, fp32 fused multiply-adds, no pipelining. Left to the compiler: the
    width. It makes 16-byte loads and stores where it can prove that 4 neighbours are aligned and under one mask, and
    compiles another kernel for each combination of what divides. The thread's tile is s07's.
Cost: flop per byte and shared memory as s07. A thread makes 4 global loads per slice instead of 16, and 16 stores of C
    instead of 64.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `tl.dot`. A matrix whose rows are not a multiple of 16
    elements (K for A, N for B and C) or that does not start at a multiple of 16 bytes is accessed element by element.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Call
from gemm_ref.call.plan import Launcher
from triton_kernels import launcher


# The compiler is told when N, K or an address is a multiple of 16, and may then move 4 neighbours at once. The
# annotations keep a size of 1 a variable like any other.
@triton.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: tl.int32, K: tl.int32,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Who am I.
    row = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)  # (BLOCK_M, 1)
    col = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)  # (1, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + row * K + k[None, :]  # (BLOCK_M, BLOCK_K)
    b_ptrs = b_ptr + k[:, None].to(tl.int64) * N + col  # (BLOCK_K, BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k_start in range(0, K, BLOCK_K):
        # Load.
        in_k = k_start + k < K
        a = tl.load(a_ptrs, mask=(row < M) & in_k[None, :], other=0.0)  # (BLOCK_M, BLOCK_K)
        b = tl.load(b_ptrs, mask=(col < N) & in_k[:, None], other=0.0)  # (BLOCK_K, BLOCK_N)
        # Multiply.
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(tl.int64)

    # Store.
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


def prepare(call: Call, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.plan.Prepare`."""
    return launcher.prepare(_gemm_kernel, call, num_stages=1)
