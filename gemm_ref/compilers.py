"""What each compiler decided by itself, rung by rung, as the end of a sentence whose subject is the dialect.

Each is read off the TTGIR, PTX or SASS that the sentence names; tests/triton_kernels/ repeats the reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_FINDINGS: dict[str, dict[str, str]] = {
    "s01_naive": {
        "triton": (
            "cannot place lanes, so the tile is written transposed: the loads of A stay strided by K (TTGIR: 32 lanes "
            "down the rows), but the compiler gives C's store the other order and rearranges the tile in 4 KiB of "
            "shared memory (one convert_layout)."
        ),
        "gluon": (
            "follows the layout as written: the loads of A and the store of C are both strided, as written (no "
            "convert_layout, no shared memory)."
        ),
    },
    "s02_coalesced": {
        "triton": (
            "runs a warp along the columns by default: its PTX has the same instructions, in the same numbers, as the "
            "Gluon twin's. It leaves unrolling to ptxas, which makes 4 k per trip (SASS, Triton 3.6) where nvcc's "
            "loop has 16, so fewer loads are in flight."
        ),
        "gluon": (
            "follows the layout as written: lanes run along the columns in every load and store, without shared memory."
        ),
    },
    "s03_block_tile": {
        "cuda": (
            "(nvcc and ptxas) unrolls both this rung's loop and s02's to 16 k per trip (SASS), with the same two "
            "loads for each FFMA. Here the loop starts again in every slice and sets up its bounds and addresses K / "
            "32 times, which saves no byte."
        ),
        "triton": (
            "keeps no tile that the source does not ask for: 64 global loads for 32 fma per slice, the same "
            "instructions as the Gluon twin. The inner loop of fixed length is unrolled whole: 32 k per trip."
        ),
        "gluon": ("follows the source: 64 global loads for 32 fma per slice, no shared memory."),
    },
    "s04_shared_tile": {
        "triton": (
            "stages both tiles of `tl.dot` in shared memory unasked (TTGIR: two local_alloc, unswizzled, two barriers "
            "per slice) and on sm_90 reads them with 8 ld.shared.v4 and 8 ldmatrix.x4 for 32 fma, also in fp32: the "
            "same instructions as the Gluon twin."
        ),
        "gluon": (
            "takes the tiles and their layout from the kernel; the two barriers per slice and the 16-byte reads (8 "
            "ld.shared.v4 and 8 ldmatrix.x4 for 32 fma) are the compiler's."
        ),
    },
    "s05_bank_conflict": {
        "cuda": (
            "(ptxas) fuses what s04 reads of A along k, 4 words to one LDS.128; where A is stored as (k, m) nothing "
            "is left to fuse, and each FFMA reads a word of A and a word of B. So even the layouts without conflicts "
            "are slower than s04. `swizzled` computes an address for each k where `padded` has one address and "
            "offsets."
        ),
        "triton": (
            "cannot choose a layout in shared memory: A loaded as (k, m) and transposed by `tl.trans` is still stored "
            "as (m, k) (TTGIR: memdesc_trans, a change of name), B as (k, n), unswizzled, and its PTX has s04's "
            "instructions, in the same numbers. No access there has a bank conflict."
        ),
        "gluon": (
            "follows all four layouts as written. Where the slices are stored along k (`conflicted`) it reads 4 k at "
            "once (16 ld.shared.v4 for 32 fma), otherwise one word of A and four rows of B at a time (32 ld.shared, 8 "
            "ldmatrix.x4). `swizzled` needs 32 addresses of A where `padded` has one and offsets (PTX): uncapped 63 "
            "registers per thread instead of 32 (SASS, Triton 3.6), which would be one block per SM instead of two."
        ),
    },
    "s06_thread_coarsen": {
        "triton": (
            "cuts C its own way: pieces of 2 x 2, lanes along a row (TTGIR: sizePerThread = [2, 2]), so a thread has "
            "4 x 2 elements, not a column of 8, and rearranges C in 16 KiB of shared memory before the store (one "
            "convert_layout)."
        ),
        "gluon": (
            "keeps the column of 8 (TTGIR: sizePerThread = [8, 1], no convert_layout); the width of the reads is the "
            "compiler's: B by 4 ldmatrix.x4, A in 32 LDS.128 for 128 FFMA (SASS)."
        ),
    },
    "s07_thread_tile": {
        "triton": (
            "cuts C in pieces of 4 x 4 with a warp's 32 lanes along a row (TTGIR: sizePerThread = [4, 4], "
            "threadsPerWarp = [1, 32]): a thread has 16 x 4, not 8 x 8, and reads 20 words for 64 products instead of "
            "16 (SASS: 80 LDS.128 for 1024 FFMA, Gluon 64), but without bank conflicts. C is rearranged in shared "
            "memory before the store."
        ),
        "gluon": (
            "keeps the 8 x 8 tile (TTGIR: sizePerThread = [8, 8], no convert_layout) and accesses global memory one "
            "element at a time (16 ld.global.b32 per slice, 64 st.global.b32); the reads from shared memory become 64 "
            "LDS.128 for 1024 FFMA (SASS)."
        ),
    },
    "s08_vectorized": {
        "triton": (
            "vectorises what it can prove: told that N, K and the addresses are multiples of 16, the body of s07 gets "
            "4 ld.global.v4 per slice instead of 16 loads, and 16 st.global.v4 instead of 64 stores (PTX). It knows "
            "only multiples of 16: at N = 4100, which is whole vectors too, B and C are accessed one element at a "
            "time. Uncapped it takes 172 registers per thread; in the 128 at which two blocks fit an SM it spills a "
            "few (SASS, Triton 3.6)."
        ),
        "gluon": (
            "follows the 1 x 4 layouts where N and K are multiples of 16 (PTX: 4 ld.global.v4 and 4 st.shared.v4 per "
            "slice, 16 st.global.v4), and falls back to single elements where they are not, as at N = 4100. Uncapped "
            "it takes 185 registers per thread (SASS, Triton 3.6)."
        ),
    },
    "s09_conflict_free": {
        "cuda": (
            "(ptxas) fits the kernel into the 128 registers at which an SM holds two blocks, and one block then "
            "computes while the other loads: `one_block` shows what that hides."
        ),
        "triton": (
            "cannot express this rung: it stores A as (m, k) in any case (s05) and chooses the thread's tile, so this "
            "is s08's kernel (the same PTX instructions). Its lanes run along one row of C, so reads of A are a "
            "broadcast and reads of B are neighbouring vectors: there is no bank conflict to remove."
        ),
        "gluon": (
            "follows the layout as written: 64 ld.shared.v4, 8 st.shared.b32 and 2 st.shared.v4 for 1024 fma (PTX), "
            "none with a bank conflict, where s08's reads take twice the wavefronts. It takes 128 registers per "
            "thread where s08 wants 185 (SASS, Triton 3.6), so two blocks fit an SM uncapped."
        ),
    },
    "s10_double_buffer": {
        "cuda": (
            "(ptxas) needs about 150 registers with a slice under way, so an SM holds one block; in 128 registers "
            "(`two_blocks`) it spills. Against s09's `one_block` the second buffer is worth what s09's second block "
            "is: either hides the loads. Both at once win something only where the sums may lie in any register; as "
            "it is, reading registers takes `two_blocks` a tenth more clocks (SASS)."
        ),
        "triton": (
            "pipelines the loop by itself, and copies with cp.async (16 bytes) already here; of `num_stages` it keeps "
            "one buffer fewer (TTGIR: 2 x 128 x 16 at three), and it starts the copy after the multiplication, behind "
            "a second barrier per slice. In the 128 registers of `two_blocks` it spills."
        ),
        "gluon": (
            "follows the order as written: 16-byte loads before the products, stores after them; one barrier per "
            "slice, because the buffers are separate allocations. Indexed buffers, which the compiler cannot tell "
            "apart, got two."
        ),
    },
    "s11_warp_tile": {
        "triton": (
            "cannot be asked for a warp's tile: pieces of 4 x 4, 32 lanes along the columns, all warps below each "
            "other (TTGIR: threadsPerWarp = [1, 32]); its PTX has the same instructions as s10's."
        ),
        "gluon": (
            "follows a layout written bit by bit (TTGIR: #ttg.linear), which `gl.dot_fma` does not take, so the "
            "products are written out; every read is an ld.shared.v4 without bank conflicts."
        ),
    },
    "s12_async_copy": {
        "triton": (
            "used cp.async from s10 on; this is that kernel with one more buffer. A stays (m, k), so it too is copied "
            "16 bytes at a time. There are still two barriers per slice."
        ),
        "gluon": (
            "copies as written: A by 4-byte and B by 16-byte cp.async, one wait and one barrier per slice. Triton 3.6 "
            "cannot copy into a padded layout, so A is stored in another one: its reads have no conflicts, and its "
            "copies put 4 words on a bank."
        ),
    },
    "s13_split_k": {
        "gluon": ("has no kernel here: splitting K does not depend on layout. For the rest see s12."),
    },
    "s14_register_banks": {
        "triton": (
            "takes no order of products: of a `tl.dot` it writes those of one sum after those of another (PTX), and "
            "ptxas orders them anew. What can be said is how much is multiplied at a time. One `tl.dot` gives a thread "
            "32 x 4 of 128 x 256; four give it 16 x 8 (TTGIR: sizePerThread = [4, 4], threadsPerWarp = [1, 32]), and "
            "24 words to read for 128 products instead of 36. In clocks of the registers' ports for each FFMA (SASS, "
            "Triton 3.6) one takes 1.57, four 1.33, and 1.36 where the sums are not freed."
        ),
        "gluon": (
            "writes the products down in the order of the layout's registers, so column by column is a matter of the "
            "layout (PTX); back and forth is not, since a base must not move along two axes. Fragments are read a "
            "step ahead but for the first of a trip, which LLVM reads at its start. 128 x 256 takes 2221 instructions "
            "for 2048 FFMA, and the ports of the registers allow 0.86 of the peak (SASS, Triton 3.6). Buffers that a "
            "loop indexes are one to the compiler, and a slice then has two barriers or three; with two sets, in a "
            "trip of two slices, it has one. At 4096 four slices written out reached 0.92 of cuBLAS where two reached "
            "0.98, and a partition that only loads 0.86."
        ),
    },
    "s15_wmma": {
        "cuda": (
            "(nvcc) reads bf16 and tf32 fragments of its own <mma.h> through generic addresses (PTX: wmma.load "
            "without a state space; SASS: LD and MOVM where LDSM would do), so the rung has its own wmma.load.shared."
        ),
        "triton": (
            "makes wgmma of `tl.dot` on sm_90 (TTGIR: one warp_group_dot; PTX: 8 wgmma, no mma.sync), so it lacks the "
            "warps' fragments that the rung is about. Each slice goes through registers into shared memory and is "
            "waited for (`pendings = 0`); in tf32 B is transposed on the way, element by element (PTX: 32 "
            "st.shared.b32 per slice, where A takes 8 st.shared.v4)."
        ),
        "gluon": (
            "has no WMMA: its twin computes the same products with mma.sync (PTX: 128, with 32 ldmatrix, no wgmma), "
            "so it is s16 without the fragments that are read a step ahead."
        ),
    },
    "s16_mma_sync": {
        "cuda": (
            "(ptxas) keeps 128 sums and two sets of fragments in 255 registers without a spill: 64 HMMA, 16 LDSM and "
            "64 other instructions per trip of 32 k (SASS). Products ordered in a snake, so that neighbours share a "
            "fragment, are 5% faster at 8192, where power decides."
        ),
        "triton": (
            "makes wgmma of `tl.dot` here too (PTX: 4 wgmma, no mma.sync), so with slices twice as deep (`deep`) this "
            "is a Hopper kernel fed by cp.async (TTGIR: 6 async_copy), far above the CUDA rung. In tf32 it transposes "
            "each slice of B while it is copied, element by element (TTGIR: nvmma_shared, `transposed = true`; PTX: "
            "32 cp.async of 4 bytes per slice and thread, where A takes 4 of 16), at a fifth of the speed."
        ),
        "gluon": (
            "follows the source (PTX: 256 mma.sync, 68 ldmatrix, no wgmma); fragments of B are read a step ahead, and "
            "buffers that are separate allocations leave one barrier per slice. With indexed buffers, and fragments "
            "read after their slice's barrier, ptxas had 11 of 16 LDSM before the first HMMA (SASS), and the 128 x "
            "256 tile reached 0.43 of cuBLAS at 4096 in bf16."
        ),
    },
    "s17_wgmma_tma": {
        "cuda": (
            "(ptxas) leaves the loop as written: 8 HGMMA in 162 instructions for two steps (SASS). Storing C from "
            "registers, two elements per lane, cost a tenth of the speed at 4096; through shared memory and TMA the "
            "cost does not show."
        ),
        "triton": (
            "takes the whole rung from its tensor descriptors (PTX: 10 cp.async.bulk.tensor, 4 wgmma): TMA, "
            "mbarriers, four stages, B by rows as wgmma's MN-major operand. `tl.assume(K > 0)` is needed: for a loop "
            "that may be skipped ptxas waits after every wgmma (its remark C7515)."
        ),
        "gluon": (
            "follows the source (PTX: 4 wgmma, 12 cp.async.bulk.tensor), with 25 barriers in the text where CUDA has "
            "two: the compiler puts one before every mbarrier operation."
        ),
    },
    "s18_warp_specialized": {
        "cuda": (
            "(ptxas) puts MEMBAR.GPU before each mbarrier.arrive.release.cluster (SASS), which cost a quarter of the "
            "speed. Arrivals are relaxed now, since they hand over no thread's own data."
        ),
        "triton": (
            "keeps its pipeline full from tile to tile when the two loops are one (`flatten`), without a warpgroup "
            "that only loads. Its own specialisation (`warp_specialize`) compiled only for descriptors made in the "
            "kernel, and waits for every wgmma: 0.92, 0.96 and 0.99 of cuBLAS in bf16 at 2048, 4096 and 8192, so it "
            "is not here. Clusters (`num_ctas`) were not tried."
        ),
        "gluon": (
            "follows the source: a partition that loads and two that multiply (PTX: 8 wgmma, setmaxnreg, 13 "
            "cp.async.bulk.tensor). Triton 3.6 has no clusters there, so it is CUDA's `alone`. A left operand from "
            "registers is not written, so in tf32 B by rows is copied first."
        ),
    },
    "s19_any_shape": {
        "triton": (
            "multiplies C^T from a transposed view of what TMA brought. In tf32 it would carry a left operand that is "
            "not stored along k through shared memory once more (0.49 of cuBLAS over 7 shapes, a trial of "
            "2026-11-22), so B by rows is copied first. Sides are powers of 2: there is no tile of 160 or 192 columns."
        ),
        "gluon": (
            "follows the source. In tf32 B by rows is wgmma's left operand, from registers, which the source keeps "
            "until that wgmma is done: else ptxas (12.8) gives them to the next slice before (SASS). Sides "
            "are powers of 2: there is no tile of 160 or 192 columns."
        ),
    },
}

FINDINGS: Mapping[str, Mapping[str, str]] = MappingProxyType(_FINDINGS)  # stage id -> dialect -> sentence
