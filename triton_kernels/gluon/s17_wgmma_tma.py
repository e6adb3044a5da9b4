"""s17 wgmma and TMA: boxes, mbarriers and wgmma, each by name.

Idea: Hopper's units: one thread asks for whole boxes (TMA), warpgroups multiply from shared memory (wgmma).
Changed from s16: no thread computes the address of what it copies, and no operand passes through registers.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, a program for each tile, two warpgroups, 64 x 256 per wgmma,
    the 128-byte swizzle, C in two pieces of 16 KiB. Left to the compiler: barriers between threads. One slice fewer is
    on its way than there are stages: the next is asked for when the one before has been multiplied.
Cost: as in CUDA.
Requires: sm_90a. Rows that start at multiples of 16 bytes; tf32 and fp8: B as (N, K). `gemm_ref.run` copies what
    is stored otherwise.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import Descriptor, block_k, describe, describe_operands
from triton_kernels.gluon.hopper import PIECES, SWIZZLE, as_kn, load_slice, scaled, store_tile, sums_layout, swizzled
from triton_kernels.schedule import tile_place


@gluon.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_desc, b_desc, c_desc,
    M, N, K, scale_a, scale_b,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, NUM_STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, B_LAYOUT: gl.constexpr,
):  # fmt: skip
    # Who am I.
    tile_m, tile_n = tile_place(gl.program_id(0), gl.cdiv(M, BLOCK_M), gl.cdiv(N, BLOCK_N), GROUP_M)
    row = tile_m * BLOCK_M
    col = tile_n * BLOCK_N
    layout: gl.constexpr = sums_layout(gl.num_warps(), BLOCK_N, a_desc.dtype)
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [NUM_STAGES] + a_desc.block_shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [NUM_STAGES] + b_desc.block_shape, b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, [PIECES] + c_desc.block_shape, c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUM_STAGES):
        mbarrier.init(full.index(i), count=1)

    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    steps = gl.cdiv(K, BLOCK_K)
    gl.assume(steps > 0)  # a loop that may be skipped has ptxas wait after every wgmma
    # Have the first slices copied.
    for first in gl.static_range(NUM_STAGES - 1):
        load_slice(a_desc, b_desc, row, col, first * BLOCK_K, first < steps,
                   a_smem.index(first), b_smem.index(first), full.index(first), B_LAYOUT)  # fmt: skip
    for step in range(steps):
        stage = step % NUM_STAGES
        mbarrier.wait(full.index(stage), step // NUM_STAGES & 1)
        # Multiply.
        b = as_kn(b_smem.index(stage), B_LAYOUT)
        acc = warpgroup_mma(a_smem.index(stage), b, acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        # Load: the step before is done, and another slice may take the place of its own.
        ahead = step + NUM_STAGES - 1
        to = ahead % NUM_STAGES
        load_slice(a_desc, b_desc, row, col, ahead * BLOCK_K, ahead < steps,
                   a_smem.index(to), b_smem.index(to), full.index(to), B_LAYOUT)  # fmt: skip
    acc = warpgroup_mma_wait(0, deps=(acc,))

    # Store.
    store_tile(c_desc, row, col, scaled(acc, scale_a, scale_b), c_smem, 0)
    tma.store_wait(0)  # shared memory lives as long as its block


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    rows = plan.implementation.config.BLOCK_M

    def described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[Descriptor, ...]:
        return *describe_operands(plan, a, b, swizzled), describe(c, rows, SWIZZLE // c.itemsize, swizzled(c.dtype))

    return launcher.prepare(_gemm_kernel, plan, num_stages=1, BLOCK_K=block_k(plan), describe=described)
