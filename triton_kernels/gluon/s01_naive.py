"""s01 naive: the lanes of a warp run down the rows of C.

Idea: one element of C per thread, K outer products; neighbouring lanes take neighbouring rows, a whole row of A apart.
Changed from nothing: it is the first rung.
Held equal: BLOCK_M, BLOCK_N, 32 warps, the thread of each element, one fused multiply-add per product. Left to the
    compiler: nothing that touches memory.
Cost: each k, a warp asks for 32 elements of A, K * 4 bytes apart: 32 sectors of 32 bytes for 128 bytes used; and for
    one element of B. A thread loads 8 bytes for its 2 flop: 0.25 flop per byte. C is stored to 32 sectors per warp.
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
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, gl.num_warps()], [0, 1])
    rows = gl.program_id(0) * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout))
    cols = gl.program_id(1) * BLOCK_N + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout))
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
