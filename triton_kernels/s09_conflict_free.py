"""s09 conflict free: s08's kernel to the letter, since its accesses to shared memory have no bank conflicts.

Idea: the lanes of a warp read neighbouring vectors of B and the same of A.
Changed from s08: nothing. The layout in shared memory cannot be chosen (s05 asks for a transposed A in vain), and the
    thread's tile cannot either.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 8 warps, fp32 fused multiply-adds, no pipelining. Left to the compiler: the
    whole idea. It gets there by another way: A stays (m, k), and since the 32 lanes of a warp are along one row of C,
    they read one address of A (a broadcast) and 32 neighbouring vectors of B, which fill all banks evenly.
Cost: as s08.
Requires: as s08.
"""

import torch
import triton
import triton.language as tl

from gemm_ref.call import Call
from gemm_ref.call.plan import Launcher
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
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N.to(tl.int64)

    # Store.
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


def prepare(call: Call, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """What runs the kernel on matrices like a (M, K), b (K, N) and c (M, N): `gemm_ref.call.plan.Prepare`."""
    return launcher.prepare(_gemm_kernel, call, num_stages=1)
