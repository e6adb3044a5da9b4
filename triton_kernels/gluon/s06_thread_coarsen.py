"""s06 thread coarsen: a thread computes a column of outputs, and reuses what it read of B.

Idea: an element of B is read from shared memory once for THREAD_M products.
Changed from s05: the slices are stored as in s04; the tile of C has THREAD_M elements per thread, in a column, and the
    slices, now of other shapes than C, are loaded in layouts of their own.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, 16 warps, the thread of each element, fp32 fused multiply-adds, no
    pipelining. Left to the compiler: the two barriers per slice and the width of accesses to shared memory: it reads A
    several k at a time and B by ldmatrix, four rows in one.
Cost: a slice moves 2 * 64 * 16 * 4 bytes for 2 * 64 * 64 * 16 flop: 16 flop per byte, twice s04's. At one k a thread
    reads 8 + 1 words for 8 products; the 8 of A are the same for the whole warp. Shared memory: 8192 bytes.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `gl.dot_fma`.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels import launcher
from triton_kernels.gluon.tile_io import locate_slices, multiply, store_tile


# One compiled kernel for all sizes: with one element a load, knowing what divides them changes no instruction.
@gluon.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, THREAD_M: gl.constexpr,
):  # fmt: skip
    # Who am I.
    row = gl.program_id(1) * BLOCK_M  # the tile starts at C[row, col]
    col = gl.program_id(0) * BLOCK_N
    warps: gl.constexpr = gl.num_warps()
    # For the loads the block's threads lie side by side along the rows of both matrices.
    a_layout: gl.constexpr = gl.BlockedLayout([1, 1], [32 // BLOCK_K, BLOCK_K], [warps, 1], [1, 0])
    b_layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [warps * 32 // BLOCK_N, BLOCK_N // 32], [1, 0])
    layout: gl.constexpr = gl.BlockedLayout([THREAD_M, 1], [1, 32], [BLOCK_M // THREAD_M, BLOCK_N // 32], [1, 0])
    a_row, a_k, b_k, b_col, a_ptrs, b_ptrs = locate_slices(
        a_ptr, b_ptr, row, col, N, K, BLOCK_M, BLOCK_N, BLOCK_K, a_layout, b_layout
    )
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])  # rows as they are
    a_smem = gl.allocate_shared_memory(gl.float32, (BLOCK_M, BLOCK_K), shared)
    b_smem = gl.allocate_shared_memory(gl.float32, (BLOCK_K, BLOCK_N), shared)

    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    for k_start in range(0, K, BLOCK_K):
        # Load.
        a = gl.load(a_ptrs, mask=(a_row < M) & (k_start + a_k < K), other=0.0)
        b = gl.load(b_ptrs, mask=(b_col < N) & (k_start + b_k < K), other=0.0)
        a_smem.store(a)
        b_smem.store(b)
        # Multiply.
        acc = multiply(a_smem, b_smem, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(gl.int64)

    # Store.
    store_tile(c_ptr, row, col, acc, M, N)


prepare = launcher.make_prepare(_gemm_kernel)
