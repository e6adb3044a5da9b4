"""s07 thread tile: a thread computes a THREAD_M x THREAD_N tile of C in registers.

Idea: at each k a thread multiplies a column of A with a row of B, and both are reused: an outer product.
Changed from s06: a thread's column of C becomes a tile, and the block's tile grows with it.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, THREAD_N, 8 warps, the thread of each element, fp32 fused
    multiply-adds, no pipelining. Left to the compiler: the two barriers per slice and the width of accesses to shared
    memory: it reads A several k at a time and B in vectors along its row.
Cost: a slice moves 2 * 128 * 16 * 4 bytes for 2 * 128 * 128 * 16 flop: 32 flop per byte. At one k a thread reads 8 + 8
    words for 64 products. Neighbouring lanes are 8 columns apart: the vectors of B that 8 of them read are in half of
    the banks, two in each, and a store of C touches 32 sectors. Shared memory: 16384 bytes.
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
    THREAD_N: gl.constexpr,
):  # fmt: skip
    # Who am I.
    row = gl.program_id(1) * BLOCK_M  # the tile starts at C[row, col]
    col = gl.program_id(0) * BLOCK_N
    warps: gl.constexpr = gl.num_warps()
    # For the loads the block's threads lie side by side along the rows of both matrices.
    a_layout: gl.constexpr = gl.BlockedLayout([1, 1], [32 // BLOCK_K, BLOCK_K], [warps, 1], [1, 0])
    b_layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [warps * 32 // BLOCK_N, BLOCK_N // 32], [1, 0])
    lanes_n: gl.constexpr = BLOCK_N // THREAD_N
    layout: gl.constexpr = gl.BlockedLayout([THREAD_M, THREAD_N], [32 // lanes_n, lanes_n], [warps, 1], [1, 0])
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
