"""s15 WMMA: `tl.dot` of narrow types, or of fp32 cut to tf32, runs on tensor cores by itself.

Idea: tensor cores through the WMMA API: a warp multiplies fragments of 16 x 16 x 16 with one call.
Changed from s12: the types, `input_precision`, and one slice at a time: a single stage, as nothing else is the idea.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, the warps. Left to the compiler: which instruction. For sm_90 it takes wgmma from
    shared memory, s17's; for sm_80 mma.sync with ldmatrix, s16's.
Cost: as in CUDA, but with one stage nothing is copied while something is multiplied.
Requires: any M, N, K; contiguous A, B, C. tf32: every slice of B is transposed through registers (findings.py).
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import block_k


# The compiler is told when N, K or an address is a multiple of 16, and may then move 16 bytes at once. The
# annotations keep a size of 1 a variable like any other.
@triton.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: tl.int32, K: tl.int32,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Who am I.
    row = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)  # (BLOCK_M, 1)
    col = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)  # (1, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + row * K + k[None, :]  # (BLOCK_M, BLOCK_K)
    b_ptrs = b_ptr + k[:, None].to(tl.int64) * N + col  # (BLOCK_K, BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k_start in range(0, K, BLOCK_K):
        # Load.
        in_k = k_start + k < K
        a = tl.load(a_ptrs, mask=(row < M) & in_k[None, :], other=0.0)  # (BLOCK_M, BLOCK_K)
        b = tl.load(b_ptrs, mask=(col < N) & in_k[:, None], other=0.0)  # (BLOCK_K, BLOCK_N)
        # Multiply.
        acc = tl.dot(a, b, acc, input_precision="tf32")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(tl.int64)

    # Store.
    tl.store(c_ptr + row * N + col, acc.to(c_ptr.dtype.element_ty), mask=(row < M) & (col < N))


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    return launcher.prepare(_gemm_kernel, plan, num_stages=1, BLOCK_K=block_k(plan))
