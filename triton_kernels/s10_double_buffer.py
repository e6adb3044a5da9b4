"""s10 double buffer: shared memory has room for two slices, and one is copied while the other is multiplied.

Idea: the next slice is on its way from global memory while this one is multiplied.
Changed from s09: only `num_stages`, for which the compiler's pipeliner rewrites the loop. It allocates one buffer fewer
    than `num_stages`, so NUM_STAGES buffers take one more.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, the warps, NUM_STAGES slices in shared memory, fp32 fused multiply-adds.
Left to the compiler: everything else. The slices do not pass through registers but come by `cp.async`, s12's idea. The
    copy starts after the multiplication, not before it, behind a second barrier per slice: the buffers are indexed, and
    the compiler cannot tell them apart.
Cost: NUM_STAGES slices in shared memory, 32768 bytes at 128 x 128 x 16; bytes and flop as s09.
Requires: as s09.
"""

import torch

from gemm_ref.call import Launcher, Plan
from triton_kernels import launcher
from triton_kernels.s08_vectorized import _gemm_kernel


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """Returns what runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.Prepare`."""
    num_stages = plan.implementation.config.NUM_STAGES + 1  # the pipeliner allocates one buffer fewer
    return launcher.prepare(_gemm_kernel, plan, num_stages=num_stages)
