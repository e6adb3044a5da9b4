"""s01 naive: the tile the wrong way round, its fast axis along the rows of C.

Idea: one element of C per thread, K outer products; neighbouring lanes take neighbouring rows, a whole row of A apart.
Changed from nothing: it is the first rung.
Held equal: BLOCK_M, BLOCK_N, 32 warps, one fused multiply-add per product. Left to the compiler: which lane owns which
    element (its default runs a warp along the last axis, so the tile is transposed to get rows there), and the order
    of the store, which it rearranges in shared memory.
Cost: each k, a warp asks for 32 elements of A, K * 4 bytes apart: 32 sectors of 32 bytes for 128 bytes used; and for
    one element of B. A thread loads 8 bytes for its 2 flop: 0.25 flop per byte.
Requires: fp32, contiguous; any M, N, K.
"""

import triton
import triton.language as tl

from triton_kernels import launcher


# One compiled kernel for all sizes: with one element a load, knowing what divides them changes no instruction.
@triton.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # Who am I.
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[None, :].to(tl.int64)  # (1, BLOCK_M)
    col = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N))[:, None].to(tl.int64)  # (BLOCK_N, 1)
    a_ptrs = a_ptr + row * K
    b_ptrs = b_ptr + col

    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for _ in range(K):
        # Load.
        a = tl.load(a_ptrs, mask=row < M, other=0.0)  # (1, BLOCK_M)
        b = tl.load(b_ptrs, mask=col < N, other=0.0)  # (BLOCK_N, 1)
        # Multiply.
        acc = tl.fma(a, b, acc)
        a_ptrs += 1
        b_ptrs += N

    # Store.
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


prepare = launcher.make_prepare(_gemm_kernel)
