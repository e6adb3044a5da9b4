"""s02 coalesced: the lanes of a warp run along the columns of C.

Idea: neighbouring lanes take neighbouring columns, so what a warp loads of B and stores of C is side by side.
Changed from s01: the layout, turned by 90 degrees; the grid's x walks columns.
Held equal: BLOCK_M, BLOCK_N, 32 warps, the thread of each element, one fused multiply-add per product. Left to the
    compiler: nothing that touches memory.
Cost: each k, a warp asks for one element of A and 128 neighbouring bytes of B: 1 + 4 sectors of 32 bytes (5 of B where
    its row does not start on a sector). Still 0.25 flop per byte loaded.
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
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
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
    for _ in range(K):
        # Load.
        a = gl.load(a_ptrs, mask=row < M, other=0.0)  # (BLOCK_M, 1)
        b = gl.load(b_ptrs, mask=col < N, other=0.0)  # (1, BLOCK_N)
        # Multiply.
        acc = gl.fma(a, b, acc)
        a_ptrs += 1
        b_ptrs += N

    # Store.
    gl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


prepare = launcher.make_prepare(_gemm_kernel)
