"""s12 async copy: this is s10's kernel with one more buffer, since the pipeliner uses `cp.async` from s10 on.

Idea: `cp.async` copies the slices straight to shared memory, NUM_STAGES deep, while older ones are multiplied.
Changed from s11: NUM_STAGES, and with it `num_stages`.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, the warps, NUM_STAGES slices in shared memory, fp32 fused multiply-adds.
Left to the compiler: everything else. A is not transposed on its way, so it is copied in vectors of 16 bytes, as B is.
    The copy starts after the multiplication, behind a second barrier per slice, as in s10.
Cost: NUM_STAGES slices in shared memory, 49152 bytes at 128 x 128 x 16; bytes and flop as s11.
Requires: as s11.
"""

from triton_kernels.s10_double_buffer import prepare

__all__ = ["prepare"]
