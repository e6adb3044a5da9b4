"""s18 warp specialised

"""

import torch
import triton
import triton.language as tl
from triton.compiler import CompiledKernel

from gemm_ref.call import Call
from triton_kernels import launcher
from triton_kernels.descriptors import describe
from triton_kernels.tiles import load_b, scaled, tile_place

FLATTEN = True
WARP_SPECIALIZE = False
EPI = 4
WARPS = 8


@triton.jit(do_not_specialize=["M", "N", "K"])
def _gemm_kernel(
    a_desc, b_desc, c_desc,
    M, N, K, scale_a, scale_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, B_LAYOUT: tl.constexpr,
    FLATTEN: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, EPI: tl.constexpr,
):  # fmt: skip
    if not WARP_SPECIALIZE:
        tl.assume(K > 0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE):
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
        acc = scaled(acc, scale_a, scale_b)
        if EPI == 1:
            c_desc.store([row, col], acc.to(c_desc.dtype))
        elif EPI == 2:
            left, right = tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)).permute(0, 2, 1).split()
            c_desc.store([row, col], left.to(c_desc.dtype))
            c_desc.store([row, col + BLOCK_N // 2], right.to(c_desc.dtype))
        else:
            left, right = tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)).permute(0, 2, 1).split()
            l0, l1 = tl.reshape(left, (BLOCK_M, 2, BLOCK_N // 4)).permute(0, 2, 1).split()
            r0, r1 = tl.reshape(right, (BLOCK_M, 2, BLOCK_N // 4)).permute(0, 2, 1).split()
            c_desc.store([row, col], l0.to(c_desc.dtype))
            c_desc.store([row, col + BLOCK_N // 4], l1.to(c_desc.dtype))
            c_desc.store([row, col + BLOCK_N // 2], r0.to(c_desc.dtype))
            c_desc.store([row, col + BLOCK_N // 4 * 3], r1.to(c_desc.dtype))


def launch(call: Call, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> CompiledKernel | None:
    """C = A @ B into `c`: a (M, K), b (K, N), c (M, N), as `launcher.launch` takes them."""
    config, depth = call.implementation.config, launcher.block_k(call)
    a = describe(a, config.BLOCK_M, depth)
    b = describe(b, depth, config.BLOCK_N) if call.problem.b_layout == "kn" else describe(b.t(), config.BLOCK_N, depth)
    c = describe(c, config.BLOCK_M, config.BLOCK_N // EPI)
    return launcher.launch(_gemm_kernel, call, a, b, c, num_stages=config.NUM_STAGES, num_warps=WARPS, FLATTEN=FLATTEN, WARP_SPECIALIZE=WARP_SPECIALIZE, EPI=EPI)
