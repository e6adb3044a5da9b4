"""s03 block tile: K is walked in slices, still from global memory only.

Idea: the loop has a fixed inner length, as the next rung's staging will need; no byte is saved yet.
Changed from s02: the loop over K is two loops, slices of BLOCK_K and the steps in one, with a guard for the tail.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 32 warps, one fused multiply-add per product. Left to the compiler: which lane
    owns which element. The inner loop is unrolled by `tl.static_range`.
Cost: the requests of s02; each slice's 2 * BLOCK_K loads follow one another without a branch, and the tail slice issues
    its masked steps too. Still 0.25 flop per byte loaded.
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
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Who am I.
    row = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)  # (BLOCK_M, 1)
    col = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)  # (1, BLOCK_N)
    a_ptrs = a_ptr + row * K
    b_ptrs = b_ptr + col

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k_start in range(0, K, BLOCK_K):
        for k in tl.static_range(BLOCK_K):
            # Load.
            in_k = tl.full((1, 1), k_start + k, tl.int32) < K  # (1, 1): the interpreter takes no scalar in a mask
            a = tl.load(a_ptrs, mask=(row < M) & in_k, other=0.0)  # (BLOCK_M, 1)
            b = tl.load(b_ptrs, mask=(col < N) & in_k, other=0.0)  # (1, BLOCK_N)
            # Multiply.
            acc = tl.fma(a, b, acc)
            a_ptrs += 1
            b_ptrs += N

    # Store.
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


prepare = launcher.make_prepare(_gemm_kernel)
