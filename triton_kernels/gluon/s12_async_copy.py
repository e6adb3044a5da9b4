"""s12 async copy: `cp.async` brings the slices straight to shared memory, NUM_STAGES deep.

Idea: `cp.async` copies the slices straight to shared memory, NUM_STAGES deep, while older ones are multiplied.
Changed from s11: no slice passes through registers, and more than one can be on its way. The copy is started before the
    multiplication; a number of slices that NUM_STAGES does not divide is filled up with zeros.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, THREAD_M, THREAD_N, the thread of each element, NUM_STAGES, fp32
    fused multiply-adds. A is transposed on its way, float by float; but Triton 3.6 has no `cp.async` into a padded
    layout, so 16 m of one k are beside those of the next instead. Left to the compiler: where the barrier goes (at the
    wait), and the widths.
Cost: 4 * NUM_STAGES * BLOCK_K * (BLOCK_M + BLOCK_N) bytes of shared memory, 49152 for 3 stages of 128 x 128 x 16. Reads
    have no bank conflicts; a warp's copy of A, 4 m of 8 k, puts 4 words on each of 8 banks. Bytes and flop as s11.
Requires: as s11; compute capability 8.0.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from triton_kernels import launcher
from triton_kernels.gluon.layouts import steps, warp_layout
from triton_kernels.gluon.tile_io import allocate_slices, locate_slices, multiply_by_k, store_tile

# Triton 3.9 calls it `async_load`.
copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared


# The slice of A, transposed: where each bit of an element's place leads in (m, k).
@triton.constexpr_function
def _a_shared(BLOCK_M, BLOCK_K):
    return gl.SharedLinearLayout([*steps(0, 1, 16), [0, 1], *steps(0, 16, BLOCK_M), *steps(1, 2, BLOCK_K)])


# The compiler is told when N, K or an address is a multiple of 16, and may then move 4 neighbours at once. The
# annotations keep a size of 1 a variable like any other.
@gluon.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: gl.int32, K: gl.int32,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, WARP_M: gl.constexpr,
    WARP_N: gl.constexpr, THREAD_M: gl.constexpr, THREAD_N: gl.constexpr, NUM_STAGES: gl.constexpr,
):  # fmt: skip
    # Who am I.
    row = gl.program_id(1) * BLOCK_M  # the tile starts at C[row, col]
    col = gl.program_id(0) * BLOCK_N
    warps: gl.constexpr = gl.num_warps()
    # For the loads the block's threads lie side by side, eight on 8 neighbours of a row of A, a warp on a row of B.
    a_layout: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [warps, 1], [1, 0])
    b_layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [warps * 128 // BLOCK_N, BLOCK_N // 128], [1, 0])
    layout: gl.constexpr = warp_layout(BLOCK_M, BLOCK_N, WARP_M, WARP_N, THREAD_M, THREAD_N)
    a_row, a_k, b_k, b_col, a_ptrs, b_ptrs = locate_slices(
        a_ptr, b_ptr, row, col, N, K, BLOCK_M, BLOCK_N, BLOCK_K, a_layout, b_layout
    )
    a_shared: gl.constexpr = _a_shared(BLOCK_M, BLOCK_K)
    b_shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    a_smem, b_smem = allocate_slices(BLOCK_M, BLOCK_N, BLOCK_K, a_shared, b_shared, NUM_STAGES)

    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    # Start to copy the first slices.
    for stage in gl.static_range(NUM_STAGES - 1):
        copy_async(a_smem[stage], a_ptrs, mask=(a_row < M) & (stage * BLOCK_K + a_k < K))
        copy_async(b_smem[stage], b_ptrs, mask=(b_col < N) & (stage * BLOCK_K + b_k < K))
        async_copy.commit_group()
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(gl.int64)
    for k_start in range(0, K, NUM_STAGES * BLOCK_K):
        for stage in gl.static_range(NUM_STAGES):
            # Load: this slice has landed when only the NUM_STAGES - 2 after it are on their way.
            async_copy.wait_group(NUM_STAGES - 2)
            # Start to copy another into the buffer that everyone has read.
            k_next = k_start + (stage + NUM_STAGES - 1) * BLOCK_K
            copy_async(a_smem[(stage - 1) % NUM_STAGES], a_ptrs, mask=(a_row < M) & (k_next + a_k < K))
            copy_async(b_smem[(stage - 1) % NUM_STAGES], b_ptrs, mask=(b_col < N) & (k_next + b_k < K))
            async_copy.commit_group()
            a_ptrs += BLOCK_K
            b_ptrs += BLOCK_K * N.to(gl.int64)
            # Multiply.
            acc = multiply_by_k(a_smem[stage], b_smem[stage], acc)

    # Store.
    store_tile(c_ptr, row, col, acc, M, N)


prepare = launcher.make_prepare(_gemm_kernel)
