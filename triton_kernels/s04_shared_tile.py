"""s04 shared tile: a slice of A and one of B are loaded once for the whole tile of C.

Idea: what BLOCK_N threads need of a row of A, and BLOCK_M of a column of B, is fetched once and shared.
Changed from s03: the slice is loaded as two 2-D tiles and multiplied by one `tl.dot`.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 32 warps, fp32 fused multiply-adds (`input_precision="ieee"`), no pipelining
    (`num_stages=1`). Left to the compiler: that the tiles are staged in shared memory at all, their layout there, the
    barriers, and the width of the loads from it.
Cost: a slice moves 2 * 32 * 32 * 4 bytes from global memory for 2 * 32**3 flop: 8 flop per byte, 32 times s03's.
    Shared memory: the same 8192 bytes.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `tl.dot`.
"""

import triton
import triton.language as tl

from triton_kernels import launcher


# One kernel is compiled for all sizes: loads are by the element, so knowing their divisors changes no instruction. The
# annotations are for s08, whose kernel is specialised: they keep a size of 1 a variable.
@triton.jit(do_not_specialize=["M", "N", "K"])
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


prepare = launcher.make_prepare(_gemm_kernel)
