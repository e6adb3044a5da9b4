"""s13 split K: K is split over programs where C has too few tiles, and a second kernel adds what they sum.

Idea: a small C with a deep K gives a grid of few programs; the splits of K are work for the rest of the GPU.
Changed from s12: a program multiplies a part of K, and stores its sums beside those of the other splits.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, 8 warps, how K is split, fp32 fused multiply-adds, and the order in
    which the splits are added. Left to the compiler: as in s12.
Cost: 4 * splits * M * N bytes written and read again, and a second launch: 8.4 MB for 128 splits of 128 x 128. The
    order is fixed: the same bits in every run, on GPUs of as many SMs; atomics would not.
Requires: as s12.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Launcher, Plan
from gemm_ref.epilogue import Extras
from triton_kernels import launcher


# The compiler is told when N, K or an address is a multiple of 16, and may then move 4 neighbours at once. The
# annotations keep a size of 1 a variable like any other.
@triton.jit(do_not_specialize=["M"])
def _gemm_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N: tl.int32, K: tl.int32,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Who am I.
    slices_each = tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(2))
    k_begin = tl.program_id(2) * slices_each * BLOCK_K
    k_end = min(K - k_begin, slices_each * BLOCK_K) + k_begin
    row = (tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)  # (BLOCK_M, 1)
    col = (tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)  # (1, BLOCK_N)
    k = k_begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + row * K + k[None, :]  # (BLOCK_M, BLOCK_K)
    b_ptrs = b_ptr + k[:, None].to(tl.int64) * N + col  # (BLOCK_K, BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k_start in range(k_begin, k_end, BLOCK_K):
        # Load.
        in_k = k_start + tl.arange(0, BLOCK_K) < k_end
        a = tl.load(a_ptrs, mask=(row < M) & in_k[None, :], other=0.0)  # (BLOCK_M, BLOCK_K)
        b = tl.load(b_ptrs, mask=(col < N) & in_k[:, None], other=0.0)  # (BLOCK_K, BLOCK_N)
        # Multiply.
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(tl.int64)

    # Store.
    c_ptr += tl.program_id(2).to(tl.int64) * M * N
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


# The sum of the splits' matrices, (splits, M, N), in their order.
@triton.jit(do_not_specialize=["elements", "splits"])
def _add_kernel(partials_ptr, c_ptr, elements: tl.int64, splits, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in range(splits):
        total += tl.load(partials_ptr + split * elements + i, mask=i < elements, other=0.0)
    tl.store(c_ptr + i, total, mask=i < elements)


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    problem, shape = plan.problem, plan.launch
    num_stages = plan.implementation.config.NUM_STAGES + 1  # the pipeliner keeps one buffer fewer
    multiply = launcher.prepare(_gemm_kernel, plan, num_stages=num_stages)
    if shape.then is None:
        return multiply
    room, block = (shape.grid[2], problem.m, problem.n), shape.then.block[0]
    sizes = problem.m * problem.n, shape.grid[2]
    add = launcher.Prepared(_add_kernel, shape.then, ("partials", "C"), sizes, BLOCK=block)

    def launch_both(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras) -> object:
        partials = c.new_empty(room)
        compiled = multiply(a, b, partials, extras)
        add(partials, c)
        return compiled

    return launch_both
