"""s15 WMMA: `mma_v2` on fragments that are read from shared memory, NUM_STAGES slices deep.

Idea: tensor cores through the WMMA API: a warp multiplies fragments of 16 x 16 x 16 with one call.
Changed from s12: the types, and `mma_v2` in place of `gl.fma`. Gluon has no WMMA: this is mma.sync, whose fragments
    have layouts with names.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, NUM_STAGES, fp32 sums. Left to the compiler: the instructions
    that read fragments (ldmatrix), and when.
Cost: as in CUDA; slices are swizzled, not padded, which is less shared memory.
Requires: any M, N, K; contiguous A, B, C. Rows that are not whole chunks of 16 bytes go through registers.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import block_k
from triton_kernels.gluon.ampere import copies_chunks, copy_layout, copy_slice, fragments, slice_layout, sums_layout


# The compiler is told when N, K or an address is a multiple of 16, and may then move 16 bytes at once. The annotations
# keep a size of 1 a variable like any other.
@gluon.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: gl.int32, K: gl.int32,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, WARP_M: gl.constexpr, WARP_N: gl.constexpr,
    NUM_STAGES: gl.constexpr, CHUNKS: gl.constexpr,
):  # fmt: skip
    # Who am I.
    row = gl.program_id(1) * BLOCK_M  # the tile starts at C[row, col]
    col = gl.program_id(0) * BLOCK_N
    dtype: gl.constexpr = a_ptr.dtype.element_ty
    a_layout: gl.constexpr = copy_layout(BLOCK_K, dtype, gl.num_warps())
    b_layout: gl.constexpr = copy_layout(BLOCK_N, dtype, gl.num_warps())
    layout: gl.constexpr = sums_layout(BLOCK_M // WARP_M, BLOCK_N // WARP_N)
    a_row = (row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, a_layout)))[:, None].to(gl.int64)  # (BLOCK_M, 1)
    a_k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, a_layout))[None, :]  # (1, BLOCK_K): along the columns of A
    b_k = gl.arange(0, BLOCK_K, gl.SliceLayout(1, b_layout))[:, None]  # (BLOCK_K, 1): along the rows of B
    b_col = (col + gl.arange(0, BLOCK_N, gl.SliceLayout(0, b_layout)))[None, :].to(gl.int64)  # (1, BLOCK_N)
    a_ptrs = a_ptr + a_row * K + a_k  # (BLOCK_M, BLOCK_K)
    b_ptrs = b_ptr + b_k.to(gl.int64) * N + b_col  # (BLOCK_K, BLOCK_N)
    a_smem = gl.allocate_shared_memory(dtype, (NUM_STAGES, BLOCK_M, BLOCK_K), slice_layout(BLOCK_K, dtype, 0))
    b_smem = gl.allocate_shared_memory(dtype, (NUM_STAGES, BLOCK_K, BLOCK_N), slice_layout(BLOCK_N, dtype, 1))

    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    # Start to copy the first slices.
    for first in gl.static_range(NUM_STAGES - 1):
        copy_slice(a_smem.index(first), a_ptrs, (a_row < M) & (first * BLOCK_K + a_k < K), CHUNKS)
        copy_slice(b_smem.index(first), b_ptrs, (b_col < N) & (first * BLOCK_K + b_k < K), CHUNKS)
        async_copy.commit_group()
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(gl.int64)
    stage = 0
    for k_start in range(0, K, BLOCK_K):
        # Load: this slice has landed when only the NUM_STAGES - 2 after it are on their way.
        async_copy.wait_group(NUM_STAGES - 2)
        # Start to copy another into the place that everyone has read.
        free = (stage + NUM_STAGES - 1) % NUM_STAGES
        k_next = k_start + (NUM_STAGES - 1) * BLOCK_K
        copy_slice(a_smem.index(free), a_ptrs, (a_row < M) & (k_next + a_k < K), CHUNKS)
        copy_slice(b_smem.index(free), b_ptrs, (b_col < N) & (k_next + b_k < K), CHUNKS)
        async_copy.commit_group()
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(gl.int64)
        # Multiply.
        a = a_smem.index(stage).load(fragments(0, layout, dtype))
        b = b_smem.index(stage).load(fragments(1, layout, dtype))
        acc = mma_v2(a, b, acc, input_precision="tf32")
        stage = (stage + 1) % NUM_STAGES

    # Store.
    c_row = (row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, layout)))[:, None].to(gl.int64)  # (BLOCK_M, 1)
    c_col = (col + gl.arange(0, BLOCK_N, gl.SliceLayout(0, layout)))[None, :].to(gl.int64)  # (1, BLOCK_N)
    gl.store(c_ptr + c_row * N + c_col, acc.to(c_ptr.dtype.element_ty), mask=(c_row < M) & (c_col < N))


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    return launcher.prepare(_gemm_kernel, plan, num_stages=1, BLOCK_K=block_k(plan), CHUNKS=copies_chunks(a, b))
