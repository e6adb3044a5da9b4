"""s16 mma.sync: a slice is multiplied in steps, whose fragments are read while those before are multiplied.

Idea: mma.sync on fragments that ldmatrix reads from swizzled slices, one set while another is multiplied.
Changed from s15: the steps; buffers apart from each other, so that one barrier per slice is left; the order of tiles.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, NUM_STAGES, GROUP_M, the swizzle, fp32 sums. Left to the
    compiler: where between the products a fragment is read. Of B there are two sets in registers, of A one, which ptxas
    reads early by itself: with two of both tf32 spills, since a step is 16 of k, the least that Triton 3.6 takes.
Cost: as in CUDA. Requires: as s15.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import block_k
from triton_kernels.gluon.ampere import copies_chunks, copy_layout, copy_slice, fragments, slice_layout, sums_layout
from triton_kernels.schedule import tile_place


# The compiler is told when N, K or an address is a multiple of 16, and may then move 16 bytes at once. The annotations
# keep a size of 1 a variable like any other.
@gluon.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: gl.int32, K: gl.int32,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, WARP_M: gl.constexpr, WARP_N: gl.constexpr,
    NUM_STAGES: gl.constexpr, GROUP_M: gl.constexpr, CHUNKS: gl.constexpr,
):  # fmt: skip
    # Who am I.
    tile = gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)
    tile_m, tile_n = tile_place(tile, gl.num_programs(1), gl.num_programs(0), GROUP_M)
    row = tile_m * BLOCK_M  # the tile starts at C[row, col]
    col = tile_n * BLOCK_N
    dtype: gl.constexpr = a_ptr.dtype.element_ty
    STEP: gl.constexpr = 16  # of k at a time, the least that Triton 3.6 takes: of tf32 two instructions
    a_layout: gl.constexpr = copy_layout(BLOCK_K, dtype, gl.num_warps())
    b_layout: gl.constexpr = copy_layout(BLOCK_N, dtype, gl.num_warps())
    layout: gl.constexpr = sums_layout(BLOCK_M // WARP_M, BLOCK_N // WARP_N)
    a_row = (row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, a_layout)))[:, None].to(gl.int64)  # (BLOCK_M, 1)
    a_k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, a_layout))[None, :]  # (1, BLOCK_K): along the columns of A
    b_k = gl.arange(0, BLOCK_K, gl.SliceLayout(1, b_layout))[:, None]  # (BLOCK_K, 1): along the rows of B
    b_col = (col + gl.arange(0, BLOCK_N, gl.SliceLayout(0, b_layout)))[None, :].to(gl.int64)  # (1, BLOCK_N)
    a_ptrs = a_ptr + a_row * K + a_k  # (BLOCK_M, BLOCK_K)
    b_ptrs = b_ptr + b_k.to(gl.int64) * N + b_col  # (BLOCK_K, BLOCK_N)
    # Each buffer is its own, and which one is meant is known when it compiles: so the compiler sees them apart.
    a_smem = ()
    b_smem = ()
    for _ in gl.static_range(NUM_STAGES):
        a_smem += (gl.allocate_shared_memory(dtype, (BLOCK_M, BLOCK_K), slice_layout(BLOCK_K, dtype, 0)),)
        b_smem += (gl.allocate_shared_memory(dtype, (BLOCK_K, BLOCK_N), slice_layout(BLOCK_N, dtype, 1)),)

    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    # Start to copy the first slices, and read the first fragments.
    for first in gl.static_range(NUM_STAGES - 1):
        copy_slice(a_smem[first], a_ptrs, (a_row < M) & (first * BLOCK_K + a_k < K), CHUNKS)
        copy_slice(b_smem[first], b_ptrs, (b_col < N) & (first * BLOCK_K + b_k < K), CHUNKS)
        async_copy.commit_group()
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(gl.int64)
    async_copy.wait_group(NUM_STAGES - 2)
    b = b_smem[0].slice(0, STEP, dim=0).load(fragments(1, layout, dtype))
    for k_start in range(0, K, NUM_STAGES * BLOCK_K):
        for stage in gl.static_range(NUM_STAGES):
            # Start to copy a slice into the buffer that everyone has read.
            k_next = k_start + (stage + NUM_STAGES - 1) * BLOCK_K
            copy_slice(a_smem[(stage - 1) % NUM_STAGES], a_ptrs, (a_row < M) & (k_next + a_k < K), CHUNKS)
            copy_slice(b_smem[(stage - 1) % NUM_STAGES], b_ptrs, (b_col < N) & (k_next + b_k < K), CHUNKS)
            async_copy.commit_group()
            a_ptrs += BLOCK_K
            b_ptrs += BLOCK_K * N.to(gl.int64)
            for k in gl.static_range(0, BLOCK_K, STEP):
                # Multiply, and read B's fragments of the step after: at the end of the next slice, which has landed
                # when only the NUM_STAGES - 2 after it are on their way.
                a = a_smem[stage].slice(k, STEP, dim=1).load(fragments(0, layout, dtype))
                if k + STEP < BLOCK_K:
                    b_next = b_smem[stage].slice(k + STEP, STEP, dim=0).load(fragments(1, layout, dtype))
                else:
                    async_copy.wait_group(NUM_STAGES - 2)
                    b_next = b_smem[(stage + 1) % NUM_STAGES].slice(0, STEP, dim=0).load(fragments(1, layout, dtype))
                acc = mma_v2(a, b, acc, input_precision="tf32")
                b = b_next

    # Store.
    c_row = (row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout)))[:, None].to(gl.int64)  # (BLOCK_M, 1)
    c_col = (col + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout)))[None, :].to(gl.int64)  # (1, BLOCK_N)
    gl.store(c_ptr + c_row * N + c_col, acc.to(c_ptr.dtype.element_ty), mask=(c_row < M) & (c_col < N))


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    return launcher.prepare(_gemm_kernel, plan, num_stages=1, BLOCK_K=block_k(plan), CHUNKS=copies_chunks(a, b))
