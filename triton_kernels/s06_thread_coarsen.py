"""s06 thread coarsen: a block's tile has more elements than threads, so each thread reuses what it reads.

Idea: a thread computes several elements of C, and reads from shared memory less than twice for each product.
Changed from s05: only the tile, 64 x 64 x 16 for 16 warps, 8 elements per thread; the kernel is s04's.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 16 warps, fp32 fused multiply-adds, no pipelining. Left to the compiler: which
    8. It cuts C in pieces of 2 x 2, a warp's lanes side by side along a row (TTGIR: sizePerThread = [2, 2]), and a
    thread has two of them, 4 x 2, not a column of 8. To store C along its rows it rearranges the tile in shared
    memory (one convert_layout).
Cost: a slice moves 2 * 64 * 16 * 4 bytes for 2 * 64 * 64 * 16 flop: 16 flop per byte, twice s04's. At one k a thread
    reads 4 + 2 words for 8 products. Shared memory: 8192 bytes for the slices, 16384 to rearrange C.
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
