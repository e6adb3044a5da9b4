"""A ring of slices that cp.async fills, in shared memory that one layout swizzles."""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
barrier = getattr(gl, "barrier", None) or gl.thread_barrier


@gluon.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [gl.num_warps(), 1], [1, 0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    row = (gl.program_id(1) * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(1, layout)))[:, None].to(gl.int64)
    col = (gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, layout)))[None, :]
    a_k = gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))[None, :]
    b_k = gl.arange(0, BLOCK_K, gl.SliceLayout(1, layout))[:, None]
    a_smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK, BLOCK_K], shared)
    b_smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_K, BLOCK], shared)
    for ahead in gl.static_range(STAGES - 1):
        k = ahead * BLOCK_K
        copy_async(a_smem.index(ahead), a_ptr + row * K + k + a_k, mask=(row < M) & (k + a_k < K))
        copy_async(b_smem.index(ahead), b_ptr + (k + b_k).to(gl.int64) * N + col, mask=(k + b_k < K) & (col < N))
        async_copy.commit_group()
    acc = gl.zeros((BLOCK, BLOCK), gl.float32, layout)
    for start in range(0, K, BLOCK_K):
        stage = start // BLOCK_K % STAGES
        async_copy.wait_group(STAGES - 2)
        barrier()
        k = start + (STAGES - 1) * BLOCK_K
        fill = (start // BLOCK_K + STAGES - 1) % STAGES
        copy_async(a_smem.index(fill), a_ptr + row * K + k + a_k, mask=(row < M) & (k + a_k < K))
        copy_async(b_smem.index(fill), b_ptr + (k + b_k).to(gl.int64) * N + col, mask=(k + b_k < K) & (col < N))
        async_copy.commit_group()
        for i in gl.static_range(BLOCK_K):
            a = a_smem.index(stage).slice(i, 1, dim=1).load(layout)
            b = b_smem.index(stage).slice(i, 1, dim=0).load(layout)
            acc = gl.fma(a, b, acc)
    gl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


def gemm(a, b, c):
    (M, K), N = a.shape, b.shape[1]
    kernel[triton.cdiv(N, 32), triton.cdiv(M, 32)](a, b, c, M, N, K, BLOCK=32, BLOCK_K=8, STAGES=4, num_warps=4)
