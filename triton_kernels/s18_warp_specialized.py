"""s18 warp specialised: persistent programs, whose loads of the next tile overlap the stores of the last.

Idea: one warpgroup loads and two multiply, tile after tile; blocks in pairs share B; TMA stores C meanwhile.
Changed from s17: a program for each SM, and a loop over tiles that is one with the loop over slices (`flatten`), so the
    pipeline does not drain between tiles.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, the order of tiles. Left to the compiler: everything that runs at a
    time. Not here: a warpgroup that only loads (Triton's own specialisation, `warp_specialize`, was slower on an H200:
    experiments/publish/compilers.toml), and clusters (`num_ctas`), which were not tried.
Cost: as in CUDA; C is stored in pieces of 32 KiB, not 16. Requires: as s17.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.descriptors import Descriptor, block_k, describe, describe_operands
from triton_kernels.schedule import tile_place
from triton_kernels.tiles import STORE_BYTES, load_b, scaled, store_tile

WARPS = 8  # two warpgroups: none loads alone


@triton.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_desc, b_desc, c_desc,
    M, N, K, scale_a, scale_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, B_LAYOUT: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)  # a loop that may be skipped has ptxas wait after every wgmma
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N

        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(steps):
            # Load.
            k = step * BLOCK_K
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

    more = {"num_stages": config.NUM_STAGES, "num_warps": WARPS, "BLOCK_K": block_k(plan)}
    return launcher.prepare(_gemm_kernel, plan, describe=described, **more)
