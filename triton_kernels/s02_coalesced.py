"""s02 coalesced: the tile the right way round, its fast axis along the columns of C.

Idea: neighbouring lanes take neighbouring columns, so what a warp loads of B and stores of C is side by side.
Changed from s01: the tile is BLOCK_M x BLOCK_N and no longer transposed; the grid's x walks columns.
Held equal: BLOCK_M, BLOCK_N, 32 warps, one fused multiply-add per product. Left to the compiler: which lane owns which
    element; its default is already the coalesced one.
Cost: each k, a warp asks for one element of A and 128 neighbouring bytes of B: 1 + 4 sectors of 32 bytes (5 of B where
    its row does not start on a sector). Still 0.25 flop per byte loaded.
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
    row = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)  # (BLOCK_M, 1)
    col = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)  # (1, BLOCK_N)
    a_ptrs = a_ptr + row * K
    b_ptrs = b_ptr + col

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(K):
        # Load.
        a = tl.load(a_ptrs, mask=row < M, other=0.0)  # (BLOCK_M, 1)
        b = tl.load(b_ptrs, mask=col < N, other=0.0)  # (1, BLOCK_N)
        # Multiply.
        acc = tl.fma(a, b, acc)
        a_ptrs += 1
        b_ptrs += N

    # Store.
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


prepare = launcher.make_prepare(_gemm_kernel)
