"""s08 vectorized: global memory is accessed 16 bytes at a time.

Idea: one instruction moves 4 neighbours: a quarter of the loads, stores and address arithmetic.
Changed from s07: the compiler may know whether N, K and the addresses are multiples of 16. The kernel's body is s04's.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 8 warps, fp32 fused multiply-adds, no pipelining.
Left to the compiler: the width of an access. It emits 16-byte loads and stores where it can prove that 4 neighbours are
    aligned and under one mask, and compiles another kernel for each combination of divisible arguments. The thread's
    tile is s07's.
Cost: s07's flop per byte and shared memory. A thread makes 4 global loads per slice instead of 16, and 16 stores of C
    instead of 64.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `tl.dot`. A matrix whose rows are not a multiple of 16
    elements (K for A, N for B and C), or that does not start at a multiple of 16 bytes, is accessed by the element.
"""

import triton

from triton_kernels import launcher
from triton_kernels.s04_shared_tile import _gemm_kernel as _unspecialised

# s04's body, specialised: Triton compiles another kernel where N, K or an address is a multiple of 16.
_gemm_kernel = triton.jit(_unspecialised.fn, do_not_specialize=["M"])


prepare = launcher.make_prepare(_gemm_kernel)
