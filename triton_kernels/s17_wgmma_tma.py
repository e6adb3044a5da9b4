"""s17 wgmma and TMA: operands come by tensor descriptors, and C goes by one; `tl.dot` was wgmma already.

Idea: Hopper's units: one thread asks for whole boxes (TMA), warpgroups multiply from shared memory (wgmma).
Changed from s16: descriptors in place of pointers and masks.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, a program for each tile, two warpgroups. Left to the
    compiler: when a box is copied and waited for, the swizzle, the size of a wgmma, and C's way through shared memory.
Cost: as in CUDA; C is stored in pieces of 32 KiB, not 16.
Requires: sm_90a. Rows that start at multiples of 16 bytes; tf32 and fp8: B as (N, K). `gemm_ref.run` copies what
    is stored otherwise.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import Descriptor, block_k, describe, describe_operands
from triton_kernels.schedule import tile_place
from triton_kernels.tiles import STORE_BYTES, load_b, scaled, store_tile


@triton.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_desc, b_desc, c_desc,
    M, N, K, scale_a, scale_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, B_LAYOUT: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)  # a loop that may be skipped has ptxas wait after every wgmma
    # Who am I.
    tile_m, tile_n = tile_place(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    row = tile_m * BLOCK_M
    col = tile_n * BLOCK_N

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        # Load.
        a = a_desc.load([row, k])  # (BLOCK_M, BLOCK_K)
        b = load_b(b_desc, k, col, B_LAYOUT)  # (BLOCK_K, BLOCK_N)
        # Multiply.
        acc = tl.dot(a, b, acc, input_precision="tf32")

    # Store.
    store_tile(c_desc, row, col, scaled(acc, scale_a, scale_b))


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    config = plan.implementation.config

    def described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[Descriptor, ...]:
        return *describe_operands(plan, a, b), describe(c, config.BLOCK_M, STORE_BYTES // config.BLOCK_M // c.itemsize)

    return launcher.prepare(_gemm_kernel, plan, num_stages=config.NUM_STAGES, BLOCK_K=block_k(plan), describe=described)
