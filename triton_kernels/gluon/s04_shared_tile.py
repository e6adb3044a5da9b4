"""s04 shared tile: a slice of A and one of B are staged in shared memory and read from there.

Idea: what BLOCK_N threads need of a row of A, and BLOCK_M of a column of B, is fetched once and shared.
Changed from s03: the slice is loaded as two 2-D tiles, stored to shared memory and multiplied by one `gl.dot_fma`.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 32 warps, the thread of each element, the layout in shared memory, fp32 fused
    multiply-adds, no pipelining. Left to the compiler: the two barriers per slice, which it derives from the stores and
    loads, and the width of the loads from shared memory.
Cost: a slice moves 2 * 32 * 32 * 4 bytes from global memory for 2 * 32**3 flop: 8 flop per byte, 32 times s03's.
    Shared memory: the same 8192 bytes.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `gl.dot_fma`.
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
    a_k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))[None, :]  # (1, BLOCK_K): along the columns of A
    b_k = gl.arange(0, BLOCK_K, gl.SliceLayout(1, layout))[:, None]  # (BLOCK_K, 1): along the rows of B
    a_ptrs = a_ptr + row * K + a_k  # (BLOCK_M, BLOCK_K)
    b_ptrs = b_ptr + b_k.to(gl.int64) * N + col  # (BLOCK_K, BLOCK_N)
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    a_smem = gl.allocate_shared_memory(gl.float32, (BLOCK_M, BLOCK_K), shared)
    b_smem = gl.allocate_shared_memory(gl.float32, (BLOCK_K, BLOCK_N), shared)

    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    for k_start in range(0, K, BLOCK_K):
        # Load.
        a = gl.load(a_ptrs, mask=(row < M) & (k_start + a_k < K), other=0.0)
        b = gl.load(b_ptrs, mask=(col < N) & (k_start + b_k < K), other=0.0)
        a_smem.store(a)
        b_smem.store(b)
        # Multiply.
        a = a_smem.load(gl.DotOperandLayout(0, layout, 0))
        b = b_smem.load(gl.DotOperandLayout(1, layout, 0))
        acc = gl.dot_fma(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(gl.int64)

    # Store.
    gl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


prepare = launcher.make_prepare(_gemm_kernel)
