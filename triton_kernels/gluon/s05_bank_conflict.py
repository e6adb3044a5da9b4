"""s05 bank conflict: the same slices stored four ways in shared memory, whose 32 banks serve a word each at a time.

Idea: lanes of a warp that want different words of one bank take turns, so a slice's layout decides what it costs.
Changed from s04: the layouts of the two slices in shared memory; the threads and their work stay.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 32 warps, the thread of each element, the four layouts, fp32 fused
    multiply-adds, no pipelining. Left to the compiler: the two barriers per slice and the width of the accesses: what
    is stored along k is read 4 k at a time, and rows of B by ldmatrix, four in one.
Cost: 8 flop per byte and 8192 bytes of shared memory (padded: 128 more), as s04. What differs is how many wavefronts
    a warp's access takes:
      conflicted  A (m, k), B (n, k): 32 for each store of B, and 32 to read 4 k of B where 4 would do;
      transposed  A (k, m), B (k, n): 32 for each store of A, the reads are free of conflicts;
      padded      the same with a pitch of 33 words, so that a column crosses all banks: no conflicts;
      swizzled    the same with a pitch of 32 and m ^ k for m: no conflicts, but no two addresses of A differ by a
                  constant, and the compiler keeps all 32 in registers.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `gl.dot_fma`.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from triton_kernels import launcher


# Where element (m, k) of the slice of A is. An order names the axes of (m, k), the one that runs fastest first.
@triton.constexpr_function
def _a_shared(LAYOUT, BLOCK_M, BLOCK_K):
    if LAYOUT == "conflicted":
        return gl.SwizzledSharedLayout(1, 1, 1, [1, 0])  # m * BLOCK_K + k
    if LAYOUT == "transposed":
        return gl.SwizzledSharedLayout(1, 1, 1, [0, 1])  # k * BLOCK_M + m
    if LAYOUT == "padded":
        return gl.PaddedSharedLayout.with_identity_for([[BLOCK_M, 1]], [BLOCK_M, BLOCK_K], [0, 1])
    return gl.SwizzledSharedLayout(1, 1, BLOCK_M, [0, 1])  # swizzled: k * BLOCK_M + (m ^ k)


# Where element (k, n) of the slice of B is.
@triton.constexpr_function
def _b_shared(LAYOUT):
    return gl.SwizzledSharedLayout(1, 1, 1, [0, 1] if LAYOUT == "conflicted" else [1, 0])


# One compiled kernel for all sizes: with one element a load, knowing what divides them changes no instruction.
@gluon.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, LAYOUT: gl.constexpr,
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
    a_shared: gl.constexpr = _a_shared(LAYOUT, BLOCK_M, BLOCK_K)
    b_shared: gl.constexpr = _b_shared(LAYOUT)
    a_smem = gl.allocate_shared_memory(gl.float32, (BLOCK_M, BLOCK_K), a_shared)
    b_smem = gl.allocate_shared_memory(gl.float32, (BLOCK_K, BLOCK_N), b_shared)

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
