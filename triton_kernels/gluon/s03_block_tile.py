"""s03 block tile: K is walked in slices, still from global memory only.

Idea: the loop has a fixed inner length, as the next rung's staging will need; no byte is saved yet.
Changed from s02: the loop over K is two loops, slices of BLOCK_K and the steps in one, with a guard for the tail.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 32 warps, the thread of each element, one fused multiply-add per product. Left to
    the compiler: nothing that touches memory. The inner loop is unrolled by `gl.static_range`.
Cost: the requests of s02; each slice's 2 * BLOCK_K loads follow one another without a branch, and the tail slice issues
    its masked steps too. Still 0.25 flop per byte loaded.
Requires: fp32, contiguous; any M, N, K.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels import launcher


# One compiled kernel for all sizes: with one element a load, knowing what divides them changes no instruction.
@gluon.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
):  # fmt: skip
    # Who am I.
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    rows = gl.program_id(1) * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))
    cols = gl.program_id(0) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
    row = rows[:, None].to(gl.int64)  # (BLOCK_M, 1)
    col = cols[None, :].to(gl.int64)  # (1, BLOCK_N)
    a_ptrs = a_ptr + row * K
    b_ptrs = b_ptr + col

    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    for k_start in range(0, K, BLOCK_K):
        for k in gl.static_range(BLOCK_K):
            # Load.
            in_k = k_start + k < K
            a = gl.load(a_ptrs, mask=(row < M) & in_k, other=0.0)  # (BLOCK_M, 1)
            b = gl.load(b_ptrs, mask=(col < N) & in_k, other=0.0)  # (1, BLOCK_N)
            # Multiply.
            acc = gl.fma(a, b, acc)
            a_ptrs += 1
            b_ptrs += N

    # Store.
    gl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


prepare = launcher.make_prepare(_gemm_kernel)
