"""s06 thread coarsen: a block's tile has more elements than threads, so each thread reuses what it reads.

Idea: a thread computes several elements of C, and reads fewer than two words of shared memory for each product.
Changed from s05: the tile is 64 x 64 x 16 with 16 warps, so each thread computes 8 elements. The kernel is s04's.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 16 warps, fp32 fused multiply-adds, no pipelining.
Left to the compiler: which 8 elements a thread computes. It cuts C into pieces of 2 x 2 and puts the lanes of a warp
    side by side along a row (TTGIR: sizePerThread = [2, 2]); a thread has two pieces, 4 x 2, not a column of 8. Before
    it stores C along its rows it rearranges the tile in shared memory (one convert_layout).
Cost: a slice moves 2 * 64 * 16 * 4 bytes for 2 * 64 * 64 * 16 flop: 16 flop per byte, twice s04's. At each k a thread
    reads 4 + 2 words for 8 products. Shared memory holds 8192 bytes of slices, and 16384 while C is rearranged.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `tl.dot`.
"""

from triton_kernels.s04_shared_tile import prepare

__all__ = ["prepare"]
