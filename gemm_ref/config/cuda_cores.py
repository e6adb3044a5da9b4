"""The configs of the rungs on CUDA cores, s01 to s14, and of the two on tensor cores that are launched like them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemm_ref.config import Config
from gemm_ref.launch import Launch, cdiv

SLICE_LAYOUTS = ("conflicted", "transposed", "padded", "swizzled", "natural")  # of a slice in shared memory (s05)
VECTOR = 4  # floats in the 16 bytes that a thread can move at once
PAD = 8  # 16-bit elements by which a row in shared memory is longer than its data: 16 bytes
MIN_SLICES = 4  # where K is split: slices that a block must have to be worth its start
ADD_THREADS = 256  # threads in a block of the kernel that adds partial sums


@dataclass(frozen=True, kw_only=True)
class RowConfig(Config):
    """s01: threadIdx.x walks the rows of C, so neighbouring lanes are a whole row apart in memory."""

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        return Launch((cdiv(m, self.BLOCK_M), cdiv(n, self.BLOCK_N), 1), (self.BLOCK_M, self.BLOCK_N, 1))


@dataclass(frozen=True, kw_only=True)
class SliceConfig(Config):
    """s03, s04: the block walks K in slices."""

    BLOCK_K: int  # depth of one slice; on tensor cores in elements of 16 bits, and wider ones are fewer

    def slices_bytes(self) -> int:
        """NUM_STAGES slices of A (k, m; a vector of padding per row) and B in shared memory."""
        return 4 * self.NUM_STAGES * self.BLOCK_K * (self.BLOCK_M + VECTOR + self.BLOCK_N)


@dataclass(frozen=True, kw_only=True)
class LayoutConfig(SliceConfig):
    """s05: the slice is stored in one of several layouts."""

    BLOCKS_PER_SM: int  # blocks for which a multiprocessor must have registers (CUDA's launch bounds)
    LAYOUT: str  # one of SLICE_LAYOUTS


@dataclass(frozen=True, kw_only=True)
class ColumnConfig(SliceConfig):
    """s06: a thread owns a column of THREAD_M elements of C."""

    THREAD_M: int
    BLOCKS_PER_SM: int


@dataclass(frozen=True, kw_only=True)
class ThreadConfig(ColumnConfig):
    """s07 to s09: a thread owns THREAD_M x THREAD_N of C."""

    THREAD_N: int


@dataclass(frozen=True, kw_only=True)
class BufferConfig(ThreadConfig):
    """s10: shared memory holds NUM_STAGES slices of A and B."""

    NUM_STAGES: int


@dataclass(frozen=True, kw_only=True)
class WarpConfig(SliceConfig):
    """A warp owns WARP_M x WARP_N of C; threads are numbered along x alone."""

    WARP_M: int
    WARP_N: int
    NUM_STAGES: int
    BLOCKS_PER_SM: int

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.BLOCK_M // self.WARP_M * (self.BLOCK_N // self.WARP_N)

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        return Launch(self.grid(m, n), (32 * self.warps, 1, 1))


@dataclass(frozen=True, kw_only=True)
class FragmentConfig(WarpConfig):
    """s11: a thread has FRAGMENT_SETS sets of registers for its operands; with 2 the next k is read ahead."""

    THREAD_M: int
    THREAD_N: int
    FRAGMENT_SETS: int
    LOAD_AT: int  # k of a slice at which the next is loaded: 0 before all reads, else after the reads of that k


@dataclass(frozen=True, kw_only=True)
class AsyncConfig(WarpConfig):
    """s12: cp.async fills dynamic shared memory."""

    THREAD_M: int
    THREAD_N: int
    FRAGMENT_SETS: int

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        return replace(super().launch(m, n, k, sms), shared_bytes=self.slices_bytes())


@dataclass(frozen=True, kw_only=True)
class SplitKConfig(WarpConfig):
    """s13: K is split over the grid's z until there are as many blocks as the GPU has SMs."""

    THREAD_M: int
    THREAD_N: int

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        """The launch of the products, and then of the kernel that adds the splits' sums, (splits, M, N).

        A split is a whole number of slices, at least MIN_SLICES. The sizes and the number of SMs decide: two GPUs that
        have as many add in the same order, and give the same bits.
        """
        launch = replace(super().launch(m, n, k, sms), shared_bytes=self.slices_bytes())
        x, y, _ = launch.grid
        slices = max(1, cdiv(k, self.BLOCK_K))
        wanted = min(max(1, sms // max(1, x * y)), cdiv(slices, MIN_SLICES))
        splits = cdiv(slices, cdiv(slices, wanted))  # every split has a slice
        if splits == 1:
            return launch
        add = Launch((cdiv(m * n, ADD_THREADS), 1, 1), (ADD_THREADS, 1, 1))  # a thread for each element of C
        return replace(launch, grid=(x, y, splits), partials=splits * m * n, parts=splits, partly=("C",), then=add)


@dataclass(frozen=True, kw_only=True)
class StreamKConfig(WarpConfig):
    """s14: tiles are distributed over the blocks that the GPU holds at a time, and the last ones shared along K."""

    COPY_N: int  # neighbouring floats of B that a thread copies at once: 4, or 1 where rows are no vectors
    GROUP_M: int  # tiles along M that blocks walk down before they go on along N, for L2

    def tiles(self, m: int, n: int) -> int:
        """Tiles of C."""
        return cdiv(m, self.BLOCK_M) * cdiv(n, self.BLOCK_N)

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        """The schedule for as many blocks as the GPU holds, each with at least MIN_SLICES slices.

        `gemm_ref.call` has the number that takes the least time.
        """
        tiles = self.tiles(m, n)
        most = tiles * max(1, cdiv(k, self.BLOCK_K) // MIN_SLICES)
        return self.schedule(m, n, k, max(1, min(sms * self.BLOCKS_PER_SM, most)), sms)

    def schedule(self, m: int, n: int, k: int, blocks: int, sms: int) -> Launch:
        """Whole tiles in turn, then to each block an equal share of the K of those left.

        Shares go to `partials`, two tiles for each block, and a second kernel adds those of each tile in the order of
        K, a thread for each vector of a tile. With as many blocks as tiles nothing is shared (Osama et al., 'Stream-K',
        PPoPP 2023, schedules tiles so).
        """
        grid, block = (blocks, 1, 1), (32 * self.warps, 1, 1)
        launch = Launch(grid, block, self.slices_bytes())
        shared = self.tiles(m, n) % blocks
        if not shared:
            return launch
        vectors = self.BLOCK_M * self.BLOCK_N // VECTOR
        add = Launch((cdiv(vectors, ADD_THREADS), shared, 1), (ADD_THREADS, 1, 1), partly=("C",), early=True)
        partials = 2 * blocks * vectors * VECTOR
        return replace(launch, partials=partials, parts=blocks, partly=("C", "partials"), then=add)


@dataclass(frozen=True, kw_only=True)
class RegisterBankConfig(StreamKConfig):
    """s14 in CUDA and Gluon, where the kernel says which registers a thread multiplies."""

    THREAD_M: int
    THREAD_N: int
    ALIGN_B: int = 0  # 1 where B is first copied to rows that begin at lines of the L2 cache
    SPLIT_WARPS: int = 0  # warps that split the K of a strip of C, one row or one column; 0 where a block has a tile

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        return self.schedule(m, n, k, self.tiles(m, n), sms) if self.SPLIT_WARPS else super().launch(m, n, k, sms)

    def schedule(self, m: int, n: int, k: int, blocks: int, sms: int) -> Launch:
        if not self.SPLIT_WARPS:
            return super().schedule(m, n, k, blocks, sms)
        if blocks != (tiles := self.tiles(m, n)):
            raise ValueError(f"these strips of C take {tiles} blocks, one each, and not {blocks}")
        return Launch((tiles, 1, 1), (32 * self.SPLIT_WARPS, 1, 1))


@dataclass(frozen=True, kw_only=True)
class DotConfig(StreamKConfig):
    """s14 in Triton, which multiplies DOT_M x DOT_N of C in one `tl.dot` and decides what each thread owns."""

    DOT_M: int
    DOT_N: int


@dataclass(frozen=True, kw_only=True)
class WmmaConfig(WarpConfig):
    """s15: NUM_STAGES slices of A (m, k) and B (k, n) in shared memory, each row 16 bytes longer than its data."""

    def depth(self, element_bytes: int) -> int:
        return 2 * self.BLOCK_K // element_bytes

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        halves = self.BLOCK_M * (self.BLOCK_K + PAD) + self.BLOCK_K * (self.BLOCK_N + PAD)
        return replace(super().launch(m, n, k, sms), shared_bytes=2 * self.NUM_STAGES * halves)


@dataclass(frozen=True, kw_only=True)
class MmaConfig(WarpConfig):
    """s16: NUM_STAGES swizzled slices of A (m, k) and B (k, n) in shared memory, without padding."""

    GROUP_M: int

    def depth(self, element_bytes: int) -> int:
        return 2 * self.BLOCK_K // element_bytes

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        halves = self.BLOCK_K * (self.BLOCK_M + self.BLOCK_N)
        return replace(super().launch(m, n, k, sms), shared_bytes=2 * self.NUM_STAGES * halves)
