"""s18 warp specialised: one partition loads and two multiply, tile after tile; TMA stores C meanwhile.

Idea: one warpgroup loads and two multiply, tile after tile; blocks in pairs share B; TMA stores C meanwhile.
Changed from s17: partitions with registers of their own, a second mbarrier per stage by which they free it, and
    programs that go on to another tile while the last is stored.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, the order of tiles, 64 x 256 of C per consumer, registers, pieces of
    C. Left to the compiler: barriers within a partition. Not here: clusters (Gluon's Hopper loads have no multicast in
    Triton 3.6). The partition that loads is one warp; the other three of its warpgroup idle.
Cost: as in CUDA without clusters. Requires: as s17.
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

WARPGROUP, WGMMA_M = 4, 64  # warps that one wgmma takes, and rows of C that it gives
PRODUCER_REGISTERS: gl.constexpr = gl.constexpr(40)  # and two times 232: of the 504 that three warpgroups share
CONSUMER_REGISTERS: gl.constexpr = gl.constexpr(232)


@gluon.jit
def _produce(
    a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, NUM_STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, B_LAYOUT: gl.constexpr,
):  # fmt: skip
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    steps = gl.cdiv(K, BLOCK_K)
    loaded = 0  # slices so far
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        for step in range(steps):
            stage = loaded % NUM_STAGES
            mbarrier.wait(empty.index(stage), loaded // NUM_STAGES & 1 ^ 1)  # at first nobody has anything to free
            load_slice(a_desc, b_desc, tile_m * BLOCK_M, tile_n * BLOCK_N, step * BLOCK_K, True,
                       a_smem.index(stage), b_smem.index(stage), full.index(stage), B_LAYOUT)  # fmt: skip
            loaded += 1


@gluon.jit
def _consume(
    which: gl.constexpr, c_desc, a_smem, b_smem, c_smem, full, empty, M, N, K, scale_a, scale_b,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, NUM_STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, B_LAYOUT: gl.constexpr,
):  # fmt: skip
    ROWS: gl.constexpr = c_desc.block_shape[0]
    layout: gl.constexpr = sums_layout(gl.num_warps(), BLOCK_N, a_smem.dtype)
    tiles_m = gl.cdiv(M, BLOCK_M)
    tiles_n = gl.cdiv(N, BLOCK_N)
    steps = gl.cdiv(K, BLOCK_K)
    gl.assume(steps > 0)  # a loop that may be skipped has ptxas wait after every wgmma
    used = 0  # slices so far
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        acc = gl.zeros((ROWS, BLOCK_N), gl.float32, layout)
        for step in range(steps):
            stage = used % NUM_STAGES
            mbarrier.wait(full.index(stage), used // NUM_STAGES & 1)
            a = a_smem.index(stage).slice(which * ROWS, ROWS)
            acc = warpgroup_mma(a, as_kn(b_smem.index(stage), B_LAYOUT), acc, use_acc=step > 0, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(acc,))  # the step before is done
            mbarrier.arrive(empty.index((used + NUM_STAGES - 1) % NUM_STAGES), count=1, pred=step > 0)
            used += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((used + NUM_STAGES - 1) % NUM_STAGES), count=1)

        # Store, while the other consumer still multiplies and the producer runs ahead.
        row = tile_m * BLOCK_M + which * ROWS
        store_tile(c_desc, row, tile_n * BLOCK_N, scaled(acc, scale_a, scale_b), c_smem, which * PIECES)
    tma.store_wait(0)  # shared memory lives as long as its block


@gluon.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_desc, b_desc, c_desc,
    M, N, K, scale_a, scale_b,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, NUM_STAGES: gl.constexpr,
    GROUP_M: gl.constexpr, B_LAYOUT: gl.constexpr,
):  # fmt: skip
    CONSUMERS: gl.constexpr = 2
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [NUM_STAGES] + a_desc.block_shape, a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [NUM_STAGES] + b_desc.block_shape, b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, [CONSUMERS * PIECES] + c_desc.block_shape, c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [NUM_STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUM_STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    gl.warp_specialize([
        (_consume, (gl.constexpr(0), c_desc, a_smem, b_smem, c_smem, full, empty, M, N, K, scale_a, scale_b,
                    BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, B_LAYOUT)),
        (_consume, (gl.constexpr(1), c_desc, a_smem, b_smem, c_smem, full, empty, M, N, K, scale_a, scale_b,
                    BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, B_LAYOUT)),
        (_produce, (a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K,
                    BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, GROUP_M, B_LAYOUT)),
    ], [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS])  # fmt: skip


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""

    def described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[Descriptor, ...]:
        return *describe_operands(plan, a, b, swizzled), describe(c, WGMMA_M, SWIZZLE // c.itemsize, swizzled(c.dtype))

    more = {"num_stages": 1, "num_warps": WARPGROUP, "BLOCK_K": block_k(plan)}
    return launcher.prepare(_gemm_kernel, plan, describe=described, **more)
