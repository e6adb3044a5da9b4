"""s07 thread tile: a thread computes 64 elements of C in registers.

Idea: at each k a thread multiplies a column of A with a row of B and reuses both: an outer product.
Changed from s06: the tile is 128 x 128 x 16 with 8 warps, so each thread computes 64 elements. The kernel is s04's.
Held equal: BLOCK_M, BLOCK_N, BLOCK_K, 8 warps, fp32 fused multiply-adds, no pipelining.
Left to the compiler: which 64 elements a thread computes. It cuts C into pieces of 4 x 4 and puts the lanes of a warp
    side by side along a row (TTGIR: sizePerThread = [4, 4], threadsPerWarp = [1, 32]); a thread has four pieces in a
    column, 16 x 4, not 8 x 8. It rearranges C in shared memory before the store.
Cost: a slice moves 2 * 128 * 16 * 4 bytes for 2 * 128 * 128 * 16 flop: 32 flop per byte. At each k a thread reads
    16 + 4 words for 64 products; the 16 of A are the same for the whole warp. Shared memory holds 16384 bytes.
Requires: fp32, contiguous; any M, N, K; BLOCK_K >= 16, for `tl.dot`.
"""

from triton_kernels.s04_shared_tile import prepare

__all__ = ["prepare"]
