"""Counts what a candidate, a tile and a number of blocks, asks of a GPU; `costs` makes a time of the counts.

On CUDA cores a multiprocessor holds several blocks, each with a tile; the next block starts where one ends. On Hopper's
tensor cores one or two blocks fill it: they are persistent, and load the next tile's slices while one is stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from gemm_ref.compute import MATHS
from gemm_ref.config import Config
from gemm_ref.config.cuda_cores import WarpConfig
from gemm_ref.config.hopper import clusters_at_once
from gemm_ref.launch import cdiv
from gemm_ref.operands import LINE_BYTES, SECTOR_BYTES, TMA_BYTES
from gemm_ref.problem import Problem

SCHEDULERS = 4  # of a multiprocessor; warp w of it belongs to scheduler w % 4
LOCKSTEP_WARPS = 8  # up to so many warps per multiprocessor, 2 per scheduler, all blocks run in lockstep
SUM_BYTES = 4  # of a partial sum, in every compute type
SPLITS_STEP = 16  # one in so many counts of blocks per tile is left out of the candidates
SHARPNESS = {False: 4.0, True: 3.0}  # of `smooth_max`, on CUDA cores and on tensor cores; 2 to 8 were tried
EVICTION_SHARPNESS = 4  # how abruptly the L2 cache evicts data, as more than its size is read between two reads
MIN_NS = 1e-9  # keeps the slope of `smooth_max` finite where all times are 0, for the fit
L2_HALVES = 2  # each half of the L2 cache has its own copy of what the multiprocessors next to it read
NEIGHBOUR_BLOCKS = 4  # distance of two blocks at which 1 / e of what both request reaches the L2 cache once
MIN_SPLIT_SLICES = 2  # slices that a block must have of a split tile to be worth its start


@dataclass(frozen=True)
class Wave:
    """Equal blocks that a multiprocessor runs at a time. Numbers, or arrays with an element per candidate."""

    slices: float  # of one block, one after another; operands in parts count once per product of parts
    starts: float  # tiles of one block whose first slices it waits for
    scheduler_slices: float  # of the multiprocessor, as if every scheduler had as many as the busiest
    stores: float  # tiles of the multiprocessor


@dataclass(frozen=True)
class Work:
    """What a candidate asks of a GPU. Numbers, or arrays with an element per candidate."""

    full_waves: float  # times `wave`, which a multiprocessor runs before `last_wave`
    wave: Wave
    last_wave: Wave
    copied_bytes: float  # read and written to copy B first; 0 if B is read as it is stored
    memory_bytes: float  # of device memory, each byte once
    operand_bytes: float  # of those, A and B
    reused_bytes: float  # of those, read by more than one tile: nearly all of an operand that many tiles read
    scattered_bytes: float  # reread from device memory if all blocks are at different slices throughout
    l2_bytes: float  # that tiles read from the L2 cache
    neighbour_bytes: float  # of those, requested by a block nearby as well, at the same time
    two_line_bytes: float  # of those, in boxes whose rows begin within a line, at a sector
    five_sector_bytes: float  # of those, in boxes whose rows begin within a sector, so that each is in five of them
    narrow_bytes: float  # of those, in rows that begin in the same line as the row before
    unsynced: float  # share of a block's slices that no other block reads at the same time
    is_split: float  # 1 if tiles are split along K and `together_bytes` is 0, else 0
    splits: float  # blocks per split tile, in that case
    partial_bytes: float  # partial sums of one block
    together_bytes: float  # partial sums that a multiprocessor stores and adds, if the blocks of a tile add it together
    partials_bytes: float  # all partial sums, written and read
    sharpness: float  # of `smooth_max` for computing, device memory and the L2 cache


NO_WAVE = Wave(0, 0, 0, 0)


def uses_tma(config: Config) -> bool:
    """Whether the TMA unit loads the slices, of the same number of bytes in every compute type."""
    return bool(config.BLOCK_K_BYTES)


def cluster_size(config: Config) -> int:
    """Blocks per cluster; 1 without clusters."""
    return config.CLUSTER_M * config.CLUSTER_K


def count_tiles(config: Config, problem: Problem) -> tuple[int, int, int]:
    """Tiles of a cluster along the rows and the columns of C, or of C^T if the kernel computes that; slices along K."""
    rows, columns = config.sides(problem)
    mode = MATHS[problem.math]
    down, right = cdiv(rows, config.BLOCK_M * config.CLUSTER_M), cdiv(columns, config.BLOCK_N)
    offset = (TMA_BYTES - TMA_BYTES // problem.a_phases) // mode.dtype.itemsize  # elements in front of a phase's rows
    return down, right, max(1, cdiv(problem.k + offset, config.depth(mode.part_dtype.itemsize)))


def unshared_blocks(config: Config, problem: Problem) -> int:
    """The number of blocks with which every tile has one block, or one cluster, for all of K."""
    down, right, _ = count_tiles(config, problem)
    return down * right * cluster_size(config)


def candidate_blocks(config: Config, problem: Problem, sms: int) -> list[int]:
    """Numbers of blocks worth considering: one per tile, and fewer, which split the tiles left after full rounds."""
    down, right, slices = count_tiles(config, problem)
    tiles, cluster = down * right, cluster_size(config)
    if config.splits_tile:  # a tile of a cluster, and a strip, is never split further
        return [tiles * cluster]
    resident = clusters_at_once(sms, config.BLOCKS_PER_SM, cluster)
    # As many as are resident, one per multiprocessor and, if there are few tiles, the same number for each tile
    counts, splits = {resident, clusters_at_once(sms, 1, cluster)}, resident // tiles
    while splits > 1:
        counts.add(tiles * splits)
        splits -= 1 + splits // SPLITS_STEP
    split_slices = {count: tiles % count * slices for count in counts}
    valid = {
        n for n, split in split_slices.items() if not split or (cdiv(split, n) >= MIN_SPLIT_SLICES and split < 2**31)
    }
    return sorted(count * cluster for count in {tiles} | valid)


def count_work(config: Config, problem: Problem, sms: int, blocks: int, l2_size: float) -> Work:
    """The work of a product on `sms` multiprocessors and an L2 cache of `l2_size` bytes, with so many blocks."""
    mode = MATHS[problem.math]
    down, right, slices = count_tiles(config, problem)
    tiles, cluster = down * right, cluster_size(config)
    slices, clusters = cdiv(slices, config.CLUSTER_K), blocks // cluster
    rounds, left = divmod(tiles, clusters)
    share = cdiv(left * slices, clusters)  # slices of each block in the tiles that are split
    full_waves, wave = 0, NO_WAVE
    if clusters != tiles:  # all are resident: each has complete tiles, and a share of one or two tiles
        # s14 rounds shares up, so they end with a tile only where they divide it
        aligned = left and (clusters % left if uses_tma(config) else slices % share) == 0
        parts = rounds + (0 if not left else 1 if aligned else 2)
        last_wave = _wave(config, cdiv(blocks, sms), mode.products * (rounds * slices + share), parts)
    elif uses_tma(config):
        resident = min(tiles, clusters_at_once(sms, config.BLOCKS_PER_SM, cluster))
        rounds = cdiv(tiles, resident)
        last_wave = _wave(config, cdiv(resident * cluster, sms), mode.products * rounds * slices, rounds)
    else:  # a block per tile, in waves
        resident = config.BLOCKS_PER_SM
        full_waves, rest = divmod(cdiv(tiles, sms), resident)
        if tiles > sms * resident and resident * _warps(config) <= LOCKSTEP_WARPS:
            full_waves, rest = divmod(tiles, sms * resident)
            rest = min(rest, resident)  # the multiprocessor that is free first takes all blocks it has room for
        wave, last_wave = (_wave(config, count, slices, 1) for count in (resident, rest))
    partial_bytes = SUM_BYTES * config.BLOCK_M * config.BLOCK_N
    copies_b = config.copies_b(problem.math, problem.b_layout)
    copied_bytes = 2.0 * mode.dtype.itemsize * problem.k * problem.n if copies_b else 0.0
    synced = not left or clusters % tiles == 0  # all blocks are at the same slice at a time
    # A block that adds parts of a tile reads about as many partial sums as a tile has, in one latency for each part.
    splits = config.parts(tiles, clusters, slices)[1] or (slices / share if left else 0)
    columns = config.columns_added(problem, blocks)
    together_bytes = cdiv(blocks, sms) * partial_bytes * (1 + splits * columns / config.BLOCK_N) if columns else 0.0
    has_owner = left > 0 and not columns
    return Work(
        full_waves, wave, last_wave,
        copied_bytes=copied_bytes,
        **_transfers(config, problem),
        neighbour_bytes=_neighbour_bytes(config, problem, clusters),
        scattered_bytes=0.0 if synced else _scattered_bytes(config, problem, clusters, left, share, l2_size),
        unsynced=0.0 if synced else share / (rounds * slices + share),
        is_split=1 if has_owner else 0, splits=splits if has_owner else 0, partial_bytes=partial_bytes,
        together_bytes=together_bytes,
        partials_bytes=2 * blocks * partial_bytes if left else 0,
        sharpness=SHARPNESS[uses_tma(config)],
    )  # fmt: skip


def _warps(config: Config) -> int:
    """Warps of a block; with warpgroups, which have a warp on every scheduler, those of a single one."""
    return config.SPLIT_WARPS or (config.warps if isinstance(config, WarpConfig) else SCHEDULERS)


def _wave(config: Config, resident: int, slices: int, tiles: int) -> Wave:
    """`resident` blocks per multiprocessor, each with `slices` slices of `tiles` tiles."""
    if not resident:
        return NO_WAVE
    warps = _warps(config)
    busiest = cdiv(resident * warps, SCHEDULERS) * SCHEDULERS / warps
    return Wave(slices, 1 if uses_tma(config) else tiles, slices * busiest, resident * tiles)


@dataclass(frozen=True)
class _Operand:
    """The left or the right operand of the product that the kernel computes."""

    size: int  # bytes of all parts, without padding
    request: float  # bytes of one part as they are requested from the L2 cache
    pitch: int  # bytes from one row to the next; 0 as if rows began at lines


def _operands(config: Config, problem: Problem) -> tuple[_Operand, _Operand]:
    """The left and the right operand: A and B, or B^T and A^T.

    The TMA unit requests complete lines. Rows that it cannot read in phases are copied first, to rows that begin at
    lines; rows that threads copy vector by vector count like those.
    """
    mode = MATHS[problem.math]
    operands = []
    stored_b = (problem.k, problem.n) if problem.b_layout == "kn" else (problem.n, problem.k)
    for rows, columns, phases in ((problem.m, problem.k, problem.a_phases), (*stored_b, 1)):
        element, tma = mode.part_dtype.itemsize, uses_tma(config)
        row_bytes = columns * element
        requested = cdiv(row_bytes, LINE_BYTES) * LINE_BYTES if tma else row_bytes
        as_stored = tma and row_bytes * phases % TMA_BYTES == 0
        size = mode.parts * element * rows * columns
        operands.append(_Operand(size, float(rows * requested), row_bytes if as_stored else 0))
    a, b = operands
    return (b, a) if config.is_transposed(problem.math, problem.b_layout) else (a, b)


def _transfers(config: Config, problem: Problem) -> dict[str, float]:
    """The bytes of a `Work`, by name, without partial sums."""
    down, right, _ = count_tiles(config, problem)
    size = reused = l2 = two_line = five_sector = narrow = 0.0
    for operand, reads in zip(_operands(config, problem), (right, down), strict=True):
        size += operand.size
        reused += operand.size * (1 - 1 / reads)
        requested = MATHS[problem.math].parts * operand.request * reads
        l2 += requested
        if 0 < operand.pitch < LINE_BYTES:
            narrow += requested * (LINE_BYTES / operand.pitch - 1)
        if operand.pitch % SECTOR_BYTES:
            five_sector += requested
        elif operand.pitch % LINE_BYTES:
            two_line += requested
    return {
        "memory_bytes": size + problem.c_bytes, "operand_bytes": size, "reused_bytes": reused,
        "l2_bytes": l2, "two_line_bytes": two_line, "five_sector_bytes": five_sector, "narrow_bytes": narrow,
    }  # fmt: skip


def _neighbour_bytes(config: Config, problem: Problem, clusters: int) -> float:
    """Bytes that a tile requests from the L2 cache while a block nearby requests the same.

    Such requests reach the cache as one, the more of them the closer the blocks are: in the same columns the next tile,
    in the same rows the one GROUP_M further, and each by as many blocks as a tile has.
    """
    down, right, _ = count_tiles(config, problem)
    left, other = (MATHS[problem.math].parts * operand.request for operand in _operands(config, problem))
    group, tiles = min(config.GROUP_M, down), down * right
    blocks = cluster_size(config) * (clusters // tiles if clusters % tiles == 0 else 1)
    in_row, in_column = (math.exp(-distance * blocks / NEIGHBOUR_BLOCKS) for distance in (group, 1))
    return left * (right - 1) * in_row + other * down * (1 - 1 / group) * in_column


def _scattered_bytes(config: Config, problem: Problem, clusters: int, left: int, share: int, l2_size: float) -> float:
    """Bytes that a tile reads after another tile has read them, and after the L2 cache has evicted them.

    Each block begins at the slice where the block before it ends, so each of the `left` split tiles is at a different
    slice: the next tile, in the same columns, is further by a tile's slices modulo a share, and the next one in the
    same rows by GROUP_M times as many. Between two reads of a slice all blocks read other slices. One of the steps
    around a share does not count, because it ends at the first read. On CUDA cores it is all of A and B, as fitted.
    """
    down, right, slices = count_tiles(config, problem)
    left_size, right_size = (operand.size for operand in _operands(config, problem))
    if not uses_tma(config):
        return ((right - 1) * left_size + (down - 1) * right_size) * evicted_share(left_size + right_size, l2_size)
    slice_bytes = (config.BLOCK_M * config.CLUSTER_M + config.BLOCK_N) * config.BLOCK_K_BYTES  # of a cluster
    step_bytes = MATHS[problem.math].parts * clusters * slice_bytes
    in_row, in_column = min(right, left // config.GROUP_M), min(down, left, config.GROUP_M)
    scattered = 0.0
    for size, reads, tiles, distance in (
        (left_size, right, in_row, config.GROUP_M),
        (right_size, down, in_column, 1),
    ):
        evicted = 1.0
        if tiles > 1:
            starts = sorted(tile * distance * slices % share for tile in range(tiles))
            steps = [after - before for before, after in pairwise([*starts, starts[0] + share])]
            shares = ((1 - step / share) * evicted_share(L2_HALVES * step_bytes * step, l2_size) for step in steps)
            evicted = sum(shares) / (tiles - 1)
        scattered += size * (reads - 1) * evicted
    return scattered


def evicted_share(between_bytes: float, l2_size: float) -> float:
    """The share of reread data that the L2 cache has evicted, if so many bytes are read between the two reads."""
    return 1 - 1 / smooth_max(EVICTION_SHARPNESS, 1.0, between_bytes / l2_size)


def smooth_max(sharpness: float, *times: float) -> float:
    """Smooth maximum of overlapping times: when two are similar, neither is hidden completely."""
    return (sum(time**sharpness for time in times) + MIN_NS) ** (1 / sharpness)
