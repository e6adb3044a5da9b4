"""s07 thread tile: a thread computes 64 elements of C in registers.

Idea: at each k a thread multiplies a column of A with a row of B, and both are reused: an outer product.
Changed from s06: only the tile, 128 x 128 x 16 for 8 warps, 64 elements per thread; the kernel is the same.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 8 warps, fp32 fused multiply-adds, no pipelining. Left to the compiler: which
    64. It cuts C in pieces of 4 x 4, a warp's lanes side by side along a row (TTGIR: sizePerThread = [4, 4],
    threadsPerWarp = [1, 32]), and a thread has four of them in a column, 16 x 4, not 8 x 8. C is rearranged in
    shared memory before the store.
Cost: a slice moves 2 * 128 * 16 * 4 bytes for 2 * 128 * 128 * 16 flop: 32 flop per byte. At one k a thread reads 16 + 4
    words for 64 products; the 16 of A are the same for the whole warp. Shared memory: 16384 bytes.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `tl.dot`.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Call
from gemm_ref.call.plan import Launcher
from triton_kernels import launcher


# One compiled kernel for all sizes: with one element a load, knowing what divides them changes no instruction.
@triton.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
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
