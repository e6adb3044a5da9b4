"""s16 mma.sync: the slices are copied while others are multiplied, and tiles are taken in an order that suits L2.

Idea: mma.sync on fragments that ldmatrix reads from swizzled slices, one set while another is multiplied.
Changed from s15: `num_stages`, which has loads become `cp.async`, and the order of tiles.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, the warps. Left to the compiler: as in s15; for sm_90 wgmma,
    which `deep` suits: slices of 128 bytes of k, the swizzle's rows, are four instructions in place of two.
Cost: as in CUDA; `deep` has 144 KiB of slices.
Requires: any M, N, K; contiguous A, B, C. tf32: B is transposed on its way, 4 bytes per copy (findings.py).
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import block_k
from triton_kernels.schedule import tile_place


# The compiler is told when N, K or an address is a multiple of 16, and may then move 16 bytes at once. The
# annotations keep a size of 1 a variable like any other.
@triton.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: tl.int32, K: tl.int32,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    # Who am I.
    tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tile_m, tile_n = tile_place(tile, tl.num_programs(1), tl.num_programs(0), GROUP_M)
    row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)  # (BLOCK_M, 1)
    col = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)  # (1, BLOCK_N)
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
    stages = plan.implementation.config.NUM_STAGES
    return launcher.prepare(_gemm_kernel, plan, num_stages=stages, BLOCK_K=block_k(plan))
