"""s10 double buffer: two slices in shared memory, and one barrier per slice.

Idea: the next slice is on its way from global memory while this one is multiplied.
Changed from s09: two buffers, NUM_STAGES; a slice is loaded into registers before the multiplication and stored after
    it, into the buffer that is not read. The loop is written out for both buffers: where an index that is known only at
    run time chose between them, the compiler could not tell them apart, and added a second barrier. An odd number of
    slices is filled up with one of zeros.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M * THREAD_N, the warps, the thread of each element, the layout in shared
    memory, NUM_STAGES, fp32 fused multiply-adds. Left to the compiler: where the one barrier per slice goes, and the
    widths.
Cost: twice s09's shared memory, 33248 bytes, and 16 registers per thread for the slice on its way; bytes, flop as s09.
Requires: as s09.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels import launcher
from triton_kernels.gluon.tile_io import allocate_slices, locate_slices, multiply, store_tile


# The compiler is told when N, K or an address is a multiple of 16, and may then move 4 neighbours at once. The
# annotations keep a size of 1 a variable like any other.
@gluon.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: gl.int32, K: gl.int32,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, THREAD_M: gl.constexpr,
    THREAD_N: gl.constexpr, NUM_STAGES: gl.constexpr,
):  # fmt: skip
    # Who am I.
    row = gl.program_id(1) * BLOCK_M  # the tile starts at C[row, col]
    col = gl.program_id(0) * BLOCK_N
    warps: gl.constexpr = gl.num_warps()
    # For the loads the block's threads lie side by side, two on 8 neighbours of a row of A, a warp on a row of B.
    a_layout: gl.constexpr = gl.BlockedLayout([1, 4], [16, 2], [warps, 1], [1, 0])
    b_layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [warps * 128 // BLOCK_N, BLOCK_N // 128], [1, 0])
    lanes_n: gl.constexpr = BLOCK_N // THREAD_N
    gl.static_assert(THREAD_M % 4 == 0 and THREAD_N % 4 == 0, "THREAD_M, THREAD_N: a multiple of a vector's 4 floats")
    layout: gl.constexpr = gl.BlockedLayout([4, 4], [32 // lanes_n, lanes_n], [warps, 1], [1, 0])  # a quadrant
    a_row, a_k, b_k, b_col, a_ptrs, b_ptrs = locate_slices(
        a_ptr, b_ptr, row, col, N, K, BLOCK_M, BLOCK_N, BLOCK_K, a_layout, b_layout
    )
    # A lies transposed, (k, m), with a vector of padding after each k; B's rows are as they are.
    a_shared: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[BLOCK_M, 4]], [BLOCK_M, BLOCK_K], [0, 1])
    b_shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    a_smem, b_smem = allocate_slices(BLOCK_M, BLOCK_N, BLOCK_K, a_shared, b_shared, NUM_STAGES)

    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    # Load the first slice.
    a_smem[0].store(gl.load(a_ptrs, mask=(a_row < M) & (a_k < K), other=0.0))
    b_smem[0].store(gl.load(b_ptrs, mask=(b_col < N) & (b_k < K), other=0.0))
    for k_start in range(0, K, NUM_STAGES * BLOCK_K):
        for stage in gl.static_range(NUM_STAGES):
            # Load the next slice into registers; nothing waits for it yet.
            a_ptrs += BLOCK_K
            b_ptrs += BLOCK_K * N.to(gl.int64)
            k_next = k_start + (stage + 1) * BLOCK_K
            a_next = gl.load(a_ptrs, mask=(a_row < M) & (k_next + a_k < K), other=0.0)
            b_next = gl.load(b_ptrs, mask=(b_col < N) & (k_next + b_k < K), other=0.0)
            # Multiply.
            acc = multiply(a_smem[stage], b_smem[stage], acc)
            # Hand the next slice over, in the buffer that nobody reads.
            a_smem[(stage + 1) % NUM_STAGES].store(a_next)
            b_smem[(stage + 1) % NUM_STAGES].store(b_next)

    # Store.
    store_tile(c_ptr, row, col, acc, M, N)


prepare = launcher.make_prepare(_gemm_kernel)
