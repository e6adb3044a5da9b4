"""The configs of the rungs that multiply by wgmma what the TMA unit copies, s17 to s20."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd

from gemm_ref.compute import MATHS
from gemm_ref.config import Box, Config
from gemm_ref.launch import Launch, cdiv, round_up
from gemm_ref.problem import Problem

WARPGROUP, WGMMA_M = 128, 64  # threads that one wgmma takes, and rows of C that it gives
PARTS = 128, 256, 512  # sums in a part of a tile that one of several blocks adds
MIN_SUMS, MAX_EACH = 65536, 4 * PARTS[-1]  # one block is as fast where all shares have less, or each would add more
# Fewest shares of a tile that their blocks add together: s19 is then 4% faster than with an owner, with 5 shares 1%
# slower (H200). They add groups of columns, of each of which a thread has 4 sums, and up to MAX_GROUPS at once.
LEAST_SHARES, COLUMN_GROUP, MAX_GROUPS = 8, 8, 4
SWIZZLE_ROW, SWIZZLE_ATOM = 128, 1024  # bytes of a row in TMA's widest swizzle, and after which it repeats


@dataclass(frozen=True, kw_only=True)
class WgmmaConfig(Config):
    """s17: a warpgroup for each 64 rows of a tile, a block for each tile, numbered along x alone."""

    BLOCK_K_BYTES: int  # depth of one slice in bytes, the same for every compute type
    GROUP_M: int  # tiles along M that blocks walk down before they go on along N, for L2
    NUM_STAGES: int  # slices of A and B that shared memory holds at a time
    TRANSPOSE_C: int = 0  # 1 where the tile is of C^T = B^T @ A^T, and BLOCK_M and BLOCK_N are its rows and columns

    def depth(self, element_bytes: int) -> int:
        return self.BLOCK_K_BYTES // element_bytes

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        tiles = cdiv(m, self.BLOCK_M) * cdiv(n, self.BLOCK_N)
        return Launch((tiles, 1, 1), (self.BLOCK_M // WGMMA_M * WARPGROUP, 1, 1), self.shared_bytes())

    def clusters(self, rows: int, columns: int) -> int:
        """Clusters that cover so many rows and columns, with a tile for each block."""
        return cdiv(rows, self.BLOCK_M * self.CLUSTER_M) * cdiv(columns, self.BLOCK_N)

    def shared_bytes(self) -> int:
        """NUM_STAGES slices of A and B, and pieces of C for each warpgroup that multiplies.

        Two pieces, or one where three warpgroups multiply. A piece of a tile with few columns is smaller; floats are
        the largest elements.
        """
        panels = self.BLOCK_N if self.TRANSPOSE_C else round_up(self.BLOCK_N, WGMMA_M)  # of B by rows
        slices = self.NUM_STAGES * (self.BLOCK_M + panels) * self.BLOCK_K_BYTES
        warpgroups = self.BLOCK_M // WGMMA_M
        pieces = warpgroups * (1 if warpgroups > 2 else 2) * WGMMA_M * min(SWIZZLE_ROW, 4 * self.BLOCK_N)
        sums = (self.CLUSTER_K - 1) * self.BLOCK_M * self.BLOCK_N * 4
        return SWIZZLE_ATOM + slices + pieces + sums

    def is_transposed(self, math: str, b_layout: str) -> bool:
        """Whether the kernel computes C^T = B^T @ A^T: by its tile, or since wgmma reads no tf32 that is by rows."""
        return bool(self.TRANSPOSE_C) or (math == "tf32" and b_layout == "kn")

    def sides(self, problem: Problem) -> tuple[int, int]:
        """Rows and columns of C or C^T, where each of `a_phases` matrices of A has whole tiles."""
        transposed, rows = self.is_transposed(problem.math, problem.b_layout), problem.m
        if problem.a_phases > 1:
            of_tile = self.BLOCK_N if transposed else self.BLOCK_M * self.CLUSTER_M
            rows = round_up(cdiv(rows, problem.a_phases), of_tile) * problem.a_phases
        return (problem.n, rows) if transposed else (rows, problem.n)

    def boxes(self, math: str, b_layout: str) -> Mapping[str, Box]:
        """What TMA copies at once, with 128 bytes per row, as the swizzle wants.

        Of an operand that is stored along k a block's rows; of B by rows, panels; or the share of either that one block
        of a cluster loads for all. C goes out in pieces of a warpgroup's rows, or of as many columns for C^T.
        """
        mode = MATHS[math]
        operand, result = SWIZZLE_ROW // mode.part_dtype.itemsize, SWIZZLE_ROW // mode.out_dtype.itemsize
        share = self.BLOCK_N // self.CLUSTER_M
        if self.is_transposed(math, b_layout):
            b = Box(self.BLOCK_M if b_layout == "nk" else operand, operand)
            return {"A": Box(share, operand), "B": b, "C": Box(gcd(self.BLOCK_N, result), result)}
        b = Box(share if b_layout == "nk" else operand // self.CLUSTER_M, operand)
        return {"A": Box(self.BLOCK_M, operand), "B": b, "C": Box(WGMMA_M, gcd(self.BLOCK_N, result))}


@dataclass(frozen=True, kw_only=True)
class PersistentConfig(WgmmaConfig):
    """s18: a warpgroup more, that loads; blocks in clusters, which take tile after tile."""

    CLUSTER_M: int  # blocks of a cluster, one below the other, that share what they load of B
    PERSISTENT: int  # 1: as many blocks as the GPU holds take tile after tile; 0: a block for each tile
    OVERLAP: int  # 1: a tile is stored while the next is multiplied; 0: its store is waited for

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        """Tiles are of C or of C^T: there are as many blocks as the one of the two needs that has more tiles.

        A block without a tile just ends.
        """
        clusters = max(self.clusters(m, n), self.clusters(n, m))
        if self.PERSISTENT:
            clusters = min(clusters, clusters_at_once(sms, 1, self.CLUSTER_M))
        threads = (self.BLOCK_M // WGMMA_M + 1) * WARPGROUP
        grid, cluster = (clusters * self.CLUSTER_M, 1, 1), (self.CLUSTER_M, 1, 1)
        return Launch(grid, (threads, 1, 1), self.shared_bytes(), cluster=cluster, loaders=WARPGROUP)


@dataclass(frozen=True, kw_only=True)
class StreamKWgmmaConfig(WgmmaConfig):
    """s19: the tiles of a cluster are distributed over clusters, and the last ones shared along K."""

    BLOCKS_PER_SM: int = 1  # blocks for which a multiprocessor must have registers and shared memory
    CLUSTER_M: int = 1
    CLUSTER_K: int = 1  # blocks of a cluster that share the K of one tile, and add through their shared memory
    ADDS_TOGETHER = 1  # whether its blocks can add a tile together

    def launch(self, m: int, n: int, k: int, sms: int) -> Launch:
        """The schedule with a block for each tile, as many at a time as the GPU holds, and nothing shared."""
        return self.schedule(m, n, k, self.clusters(m, n) * self.CLUSTER_M * self.CLUSTER_K, sms)

    def schedule(self, m: int, n: int, k: int, blocks: int, sms: int) -> Launch:
        """Whole tiles in turn; the tiles that are left after whole rounds are shared.

        Each warpgroup has sums and a flag of its own. With as many blocks as tiles nothing is shared: those that the
        GPU holds at a time take tile after tile. Where the blocks of a cluster share the K of a tile, it has one tile:
        raises ValueError for any other number of blocks.
        """
        cluster, tiles = self.CLUSTER_M * self.CLUSTER_K, self.clusters(m, n)
        clusters, left = blocks // cluster, 0
        if self.CLUSTER_K > 1:
            if clusters != tiles:
                raise ValueError(f"this tile takes {tiles * cluster} blocks, a cluster per tile of C, and not {blocks}")
        elif clusters == tiles:
            clusters = min(tiles, clusters_at_once(sms, self.BLOCKS_PER_SM, cluster))
        else:
            left = tiles % clusters
        consumers = max(1, self.BLOCK_M // WGMMA_M)
        threads = (consumers + 1) * WARPGROUP
        grid, clustered = (clusters * cluster, 1, 1), (cluster, 1, 1)
        launch = Launch(grid, (threads, 1, 1), self.shared_bytes(), cluster=clustered, loaders=WARPGROUP)
        if not left:
            return launch
        partials, flags = clusters * cluster * self.BLOCK_M * self.BLOCK_N, clusters * cluster * consumers
        return replace(launch, partials=partials, flags=flags, shared_tiles=left, partly=("partials", "flags"))

    def columns_added(self, problem: Problem, blocks: int) -> int:
        """In CUDA, where every tile has equally many shares, and enough of them (include/together.cuh)."""
        tiles, clusters = self.clusters(*self.sides(problem)), blocks // (self.CLUSTER_M * self.CLUSTER_K)
        if not self.ADDS_TOGETHER or clusters < LEAST_SHARES * tiles or clusters % tiles:
            return 0
        shares, groups, width = clusters // tiles, self.BLOCK_N // COLUMN_GROUP, 1
        while width < min(MAX_GROUPS, groups) and width * shares < groups:
            width *= 2
        return COLUMN_GROUP * width * cdiv(cdiv(groups, width), shares)


@dataclass(frozen=True, kw_only=True)
class TwoPartConfig(StreamKWgmmaConfig):
    """s19 in Triton and Gluon, whose tensors have sides that are powers of 2: a tile has one or two products."""

    ADDS_TOGETHER = 0
    NARROW: int = 0  # columns of the second product, if any

    def parts(self, tiles: int, blocks: int, slices: int) -> tuple[int, int]:
        """Not 0 where all blocks have a share of one tile, none is empty, and parts are faster, as on an H200."""
        splits, sums = blocks // tiles, self.added_rows * self.BLOCK_N
        if blocks % tiles or not 1 < splits <= slices or splits * sums < MIN_SUMS or sums > splits * MAX_EACH:
            return 0, 0
        part = next((part for part in PARTS if splits * part >= sums), PARTS[-1])
        return part, cdiv(sums, splits * part)

    @property
    def added_rows(self) -> int:
        """Rows of a tile whose sums are added together: in Gluon those of a consumer."""
        return WGMMA_M


@dataclass(frozen=True, kw_only=True)
class DotWgmmaConfig(TwoPartConfig):
    """s19 in Triton, whose warps all load and multiply; Triton makes wgmma of tiles with at least 64 rows."""

    WARPS: int

    @property
    def added_rows(self) -> int:
        return self.BLOCK_M

    @property
    def uses_mma_sync(self) -> bool:
        """Whether Triton multiplies with mma.sync: the tile has fewer rows than wgmma, or fewer warps than it takes."""
        return self.BLOCK_M < WGMMA_M or self.WARPS % (WARPGROUP // 32) > 0

    def is_transposed(self, math: str, b_layout: str) -> bool:
        return bool(self.TRANSPOSE_C)

    def copies_b(self, math: str, b_layout: str) -> bool:
        """In tf32 wgmma reads B along k alone, and mma.sync in any order."""
        return math == "tf32" and b_layout == "kn" and not self.uses_mma_sync


@dataclass(frozen=True, kw_only=True)
class EmulatedConfig(StreamKWgmmaConfig):
    """s20: NUM_STAGES slices are of one part each."""

    ADDS_TOGETHER = 0
    PROMOTE: int  # k after which the sums of the largest parts leave the tensor core


def clusters_at_once(sms: int, blocks_per_sm: int, cluster: int) -> int:
    """How many clusters of so many blocks a GPU holds.

    The blocks of one are on multiprocessors of the same GPC. Those come in pairs, so that clusters of two find room on
    all of them. A GPC has 14 to 18: of 132, clusters of four are on 120 (cudaOccupancyMaxActiveClusters on an H200).
    """
    room = sms if cluster <= 2 else sms * 10 // 11
    return max(1, room * blocks_per_sm // cluster)
