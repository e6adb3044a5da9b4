"""s09 conflict free: A transposed in shared memory, the thread's tile cut into quadrants: no bank conflicts.

Idea: the lanes of a warp read neighbouring vectors of A and of B.
Changed from s08: the layout of the slice of A in shared memory, the lanes that load it, and the thread's tile: four
    quadrants of 4 x 4 (a layout of 4 x 4 per thread covers 64 x 64 of C, and repeats).
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M * THREAD_N, 8 warps, the thread of each element, the layout in shared
    memory, fp32 fused multiply-adds, no pipelining. Left to the compiler: the two barriers per slice and the widths,
    which come out as the CUDA rung has them.
Cost: 16624 bytes of shared memory (a vector of padding between two k); flop per byte as s08. A warp stores 16 m of two
    k that are 4 apart: 4 * 132 words is 16 banks on, so its 32 words go to 32 banks. At one k a thread reads 2 vectors
    of A and 2 of B, and a warp two neighbours of A and 16 neighbours of B at a time.
Requires: as s08.
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
    a_smem = gl.allocate_shared_memory(gl.float32, (BLOCK_M, BLOCK_K), a_shared)
    b_smem = gl.allocate_shared_memory(gl.float32, (BLOCK_K, BLOCK_N), b_shared)

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
