"""s05 bank conflict: a slice is asked for in another order, and the compiler stores it as before.

Idea: where an element of a slice is stored decides how often a warp's access to the 32 banks has to be repeated.
Changed from s04: the tile of A is loaded as (k, m) and given to `tl.dot` through `tl.trans`, the one way there is to
    ask for a transposed slice.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 32 warps, fp32 fused multiply-adds (`input_precision="ieee"`), no pipelining
    (`num_stages=1`). Left to the compiler: the whole idea. A tile's order in registers follows its addresses, and its
    order in shared memory follows the registers, so A is there as (m, k) and B as (k, n), as in s04, and `tl.trans`
    is a change of name (TTGIR: memdesc_trans). The PTX has s04's instructions, as many of each.
Cost: as s04: 8 flop per byte, 8192 bytes of shared memory. That layout has no bank conflicts: a warp stores 32
    neighbours, reads one address of A (a broadcast) and 32 neighbours of B.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `tl.dot`.
"""

import triton
import triton.language as tl

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
    a_row = tl.trans(row)  # (1, BLOCK_M)
    a_ptrs = a_ptr + a_row * K + k[:, None]  # (BLOCK_K, BLOCK_M)
    b_ptrs = b_ptr + k[:, None].to(tl.int64) * N + col  # (BLOCK_K, BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k_start in range(0, K, BLOCK_K):
        # Load.
        in_k = k_start + k < K
        a = tl.load(a_ptrs, mask=(a_row < M) & in_k[:, None], other=0.0)  # (BLOCK_K, BLOCK_M)
        b = tl.load(b_ptrs, mask=(col < N) & in_k[:, None], other=0.0)  # (BLOCK_K, BLOCK_N)
        # Multiply. Were A turned before B is loaded, it would be read back at once, and B staged in its place.
        acc = tl.dot(tl.trans(a), b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(tl.int64)

    # Store.
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


prepare = launcher.make_prepare(_gemm_kernel)
