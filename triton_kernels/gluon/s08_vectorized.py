"""s08 vectorized: global memory and the stores to shared memory are accessed 16 bytes at a time.

Idea: one instruction moves 4 neighbours: a quarter of the loads, stores and address arithmetic.
Changed from s07: a thread loads 1 x 4 of a slice, not 1 x 1, and the compiler may know whether N, K and addresses are
    multiples of 16.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, THREAD_N, 8 warps, the thread of each element, fp32 fused
    multiply-adds, no pipelining. Left to the compiler: the width. It makes 16-byte accesses of the 4 neighbours where
    it can prove that they are aligned and under one mask, and compiles another kernel for each combination of what
    divides.
Cost: flop per byte and shared memory as s07, and the same conflicts in the reads of B. A thread makes 4 global loads
    per slice instead of 16, and 16 stores of C instead of 64.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `gl.dot_fma`. A matrix whose rows are not a multiple of 16
    elements (K for A, N for B and C) or that does not start at a multiple of 16 bytes is accessed element by element.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels import launcher
from triton_kernels.gluon.tile_io import locate_slices, multiply, store_tile


# The compiler is told when N, K or an address is a multiple of 16, and may then move 4 neighbours at once. The
# annotations keep a size of 1 a variable like any other.
@gluon.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: gl.int32, K: gl.int32,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, THREAD_M: gl.constexpr,
    THREAD_N: gl.constexpr,
):  # fmt: skip
    # Who am I.
    row = gl.program_id(1) * BLOCK_M  # the tile starts at C[row, col]
    col = gl.program_id(0) * BLOCK_N
    warps: gl.constexpr = gl.num_warps()
    # For the loads the block's threads lie side by side along the rows of both matrices, each on 4 floats, 16 bytes.
    a_layout: gl.constexpr = gl.BlockedLayout([1, 4], [128 // BLOCK_K, BLOCK_K // 4], [warps, 1], [1, 0])
    b_layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [warps * 128 // BLOCK_N, BLOCK_N // 128], [1, 0])
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
