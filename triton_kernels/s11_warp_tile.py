"""s11 warp tile: this is s10's kernel, since a warp's tile cannot be chosen.

Idea: a warp owns a compact sub-tile, so that its lanes share more of what they read from shared memory.
Changed from s10: nothing.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, the warps, NUM_STAGES slices in shared memory, fp32 fused multiply-adds.
Left to the compiler: the whole idea. It gives a thread pieces of 4 x 4 and fills the columns with lanes first: 32 of
    them where BLOCK_N is 128, so a warp owns whole rows of the tile, pieces of 4 x 128 that are 4 * warps rows apart.
Cost: as s10. At each k, a warp of 8 on 128 x 128 reads 16 floats of A and all 128 of B.
Requires: as s10.
"""

from triton_kernels.s10_double_buffer import prepare

__all__ = ["prepare"]
