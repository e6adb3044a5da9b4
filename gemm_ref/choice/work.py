"""What a candidate, a tile and a number of blocks, asks of a GPU: counts, from which `costs` makes a time.

On CUDA cores a multiprocessor holds several blocks, each with a tile; the next block starts where one ends. On Hopper's
tensor cores one or two fill it: they go on from tile to tile, and load the next one's slices while a tile is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from gemm_ref.compute import MATHS
from gemm_ref.config import Config
from gemm_ref.config.cuda_cores import WarpConfig
from gemm_ref.config.hopper import clusters_at_once
from gemm_ref.launch import cdiv
from gemm_ref.operands import LINE_BYTES, SECTOR_BYTES, TMA_BYTES
from gemm_ref.problem import Problem

SCHEDULERS = 4  # of a multiprocessor; warp w of it belongs to scheduler w % 4
IN_STEP = 8  # warps of a multiprocessor: of so few, 2 for each scheduler, all blocks run in step
SUM = 4  # bytes of a sum, in every math mode
STEP = 16  # of so many shares of a tile one count in so many is left out, of those worth considering
SHARPNESS = {False: 4.0, True: 3.0}  # on CUDA cores and on tensor cores, of 2 to 8 that were tried
ABRUPT = 4  # how suddenly the L2 cache drops what is read, as more than it holds is read in between
LEAST_NS = 1e-9  # so that `longest` has a slope where all times are 0, and a fit can follow it
HALVES = 2  # of the L2 cache, each of which keeps what the multiprocessors beside it read
LEAST = 2  # slices that a share of a tile must have to be worth its start


@dataclass(frozen=True)
class Wave:
    """Blocks that a multiprocessor runs at a time, all alike. Numbers, or arrays of as many candidates."""

    slices: float  # of a block, one after another; those of operands in parts once for each product of parts
    begins: float  # tiles of it whose first slices it waits for
    busiest: float  # slices of the multiprocessor, where they are those of its busiest scheduler
    stores: float  # tiles of the multiprocessor


@dataclass(frozen=True)
class Work:
    """What a candidate asks of a GPU. Numbers, or arrays of as many candidates."""

    full: float  # times `wave`, that a multiprocessor runs before `last`
    wave: Wave
    last: Wave
    copied: float  # bytes that are read and written to copy B first; 0 where it is not
    read: float  # bytes of device memory, each once
    operands: float  # of those, the bytes of A and B
    again: float  # of those, what more than one tile reads: nearly all of an operand that many do
    scattered: float  # bytes that device memory brings again, if all blocks are at different slices throughout
    cached: float  # bytes that tiles read of the L2 cache
    in_two: float  # bytes of those in rows of boxes that begin within a line, and at a sector
    in_five: float  # bytes of those in rows of boxes that begin within a sector, and so are in five of them
    narrow: float  # bytes of those in rows that begin in the same line, once for each but the first
    apart: float  # share of a block's slices that no other block reads at the same time
    shared: float  # 1 where tiles are shared
    parts: float  # shares of a tile
    part_bytes: float  # of a share
    left_bytes: float  # of all shares, written and read
    sharpness: float  # how much of the shorter times the longest hides: of computing, device memory and the cache


NOTHING = Wave(0, 0, 0, 0)


def uses_tma(config: Config) -> bool:
    """Whether its slices have so many bytes, in every math mode, and the TMA unit brings them, tile after tile."""
    return bool(config.BLOCK_K_BYTES)


def cluster_of(config: Config) -> int:
    """Blocks of a cluster; 1 without."""
    return config.CLUSTER_M * config.CLUSTER_K


def tiles_of(config: Config, problem: Problem) -> tuple[int, int, int]:
    """Tiles of a cluster down and to the right in what the kernel computes, C or C^T, and slices along K."""
    rows, columns = config.sides(problem)
    depth = config.depth(MATHS[problem.math].part_dtype.itemsize)
    down, right = cdiv(rows, config.BLOCK_M * config.CLUSTER_M), cdiv(columns, config.BLOCK_N)
    before = (TMA_BYTES - TMA_BYTES // problem.a_phases) // MATHS[problem.math].dtype.itemsize  # the rows of a phase
    return down, right, max(1, cdiv(problem.k + before, depth))


def blocks_for(config: Config, problem: Problem, sms: int) -> list[int]:
    """How many blocks are worth considering: one per tile, and fewer that share what whole rounds leave over."""
    down, right, slices = tiles_of(config, problem)
    tiles, cluster = down * right, cluster_of(config)
    if config.CLUSTER_K > 1:  # a cluster has one tile
        return [tiles * cluster]
    if config.SPLIT_WARPS:  # a strip is never shared
        return [tiles]
    most = clusters_at_once(sms, config.BLOCKS_PER_SM, cluster)
    # all places of the multiprocessors, one on each, and as many for each tile, where those are few
    some, parts = {most, clusters_at_once(sms, 1, cluster)}, most // tiles
    while parts > 1:
        some.add(tiles * parts)
        parts -= 1 + parts // STEP
    shared = {x: tiles % x * slices for x in some}
    fits = {x for x, left in shared.items() if not left or (cdiv(left, x) >= LEAST and left < 2**31)}
    return sorted(x * cluster for x in {tiles} | fits)


def work_of(config: Config, problem: Problem, sms: int, blocks: int, l2_bytes: float) -> Work:
    """What a product asks of `sms` multiprocessors and such an L2 cache, with its tiles dealt to `blocks` blocks."""
    down, right, slices = tiles_of(config, problem)
    tiles, cluster = down * right, cluster_of(config)
    slices, clusters = cdiv(slices, config.CLUSTER_K), blocks // cluster
    rounds, left = divmod(tiles, clusters)
    share = cdiv(left * slices, clusters)
    full, wave, products = 0, NOTHING, MATHS[problem.math].products
    if clusters != tiles:  # no more than there is room for: each has whole tiles, and a share of one or two
        # s14 rounds shares up, so that they end with a tile only where they divide it
        ends = left and (clusters % left if uses_tma(config) else slices % share) == 0
        parts = rounds + (0 if not left else 1 if ends else 2)
        last = _wave(config, cdiv(blocks, sms), products * (rounds * slices + share), parts)
    elif uses_tma(config):
        at_once = min(tiles, clusters_at_once(sms, config.BLOCKS_PER_SM, cluster))
        rounds = cdiv(tiles, at_once)
        last = _wave(config, cdiv(at_once * cluster, sms), products * rounds * slices, rounds)
    else:  # a tile for each block, so many blocks at a time
        most = config.BLOCKS_PER_SM
        full, rest = divmod(cdiv(tiles, sms), most)
        if tiles > sms * most and most * _warps(config) <= IN_STEP:
            full, rest = divmod(tiles, sms * most)
            rest = min(rest, most)  # of the last ones a multiprocessor whose places are free first takes all it can
        wave, last = (_wave(config, resident, slices, 1) for resident in (most, rest))
    part = SUM * config.BLOCK_M * config.BLOCK_N
    in_step = not left or clusters % tiles == 0  # blocks that are at the same slice at a time
    copied = 2.0 * MATHS[problem.math].dtype.itemsize * problem.k * problem.n if config.ALIGN_B else 0.0
    scattered = 0.0 if in_step else _scattered(config, problem, clusters, left, share, l2_bytes)
    return Work(
        full, wave, last, copied, **_transfers(config, problem),
        scattered=scattered, apart=0.0 if in_step else share / (rounds * slices + share),
        shared=1 if left else 0, parts=slices / share if left else 0, part_bytes=part,
        left_bytes=2 * blocks * part if left else 0,
        sharpness=SHARPNESS[uses_tma(config)],
    )  # fmt: skip


def _warps(config: Config) -> int:
    """Warps of a block; of warpgroups, which have one on each scheduler, as of a single one."""
    return config.SPLIT_WARPS or (config.warps if isinstance(config, WarpConfig) else SCHEDULERS)


def _wave(config: Config, resident: int, slices: int, parts: int) -> Wave:
    """So many blocks of a multiprocessor, each with `slices` slices of `parts` tiles."""
    if not resident:
        return NOTHING
    warps = _warps(config)
    busiest = cdiv(resident * warps, SCHEDULERS) * SCHEDULERS / warps
    return Wave(slices, 1 if uses_tma(config) else parts, slices * busiest, resident * parts)


def _transfers(config: Config, problem: Problem) -> dict[str, float]:
    """The bytes of a `Work`, by name; those that shares take are not among them."""
    mode = MATHS[problem.math]
    down, right, _ = tiles_of(config, problem)
    operands = again = cached = in_two = in_five = narrow = 0.0
    lines = _lines(config, problem, mode.part_dtype.itemsize)
    for once, times, (asked, row_bytes) in zip(_operands(config, problem), (right, down), lines, strict=True):
        operands += once
        again += once * (1 - 1 / times)
        of_side = mode.parts * asked * times
        cached += of_side
        if 0 < row_bytes < LINE_BYTES:
            narrow += of_side * (LINE_BYTES / row_bytes - 1)
        if row_bytes % SECTOR_BYTES:
            in_five += of_side
        elif row_bytes % LINE_BYTES:
            in_two += of_side
    return {
        "read": operands + problem.c_bytes, "operands": operands, "again": again,
        "cached": cached, "in_two": in_two, "in_five": in_five, "narrow": narrow,
    }  # fmt: skip


def _operands(config: Config, problem: Problem) -> tuple[float, float]:
    """The bytes of the left operand and of the right one; none of a tile that is past the edge."""
    mode, both = MATHS[problem.math], config.sides(replace(problem, a_phases=1))
    left, right = (mode.parts * mode.part_dtype.itemsize * problem.k * side for side in both)
    return left, right


def _scattered(config: Config, problem: Problem, clusters: int, left: int, share: int, l2_bytes: float) -> float:
    """Bytes that tiles read after another has, and that the L2 cache does not have any more.

    A block begins where the one before it ends, so each of the `left` tiles that are shared is at a slice of its own:
    the tile after it, which has the same columns, is so many slices further as a tile has, modulo a share; the next one
    with the same rows GROUP_M times as far. Between two that read the same, all blocks read others. Of the steps around
    a share one is none: there the slice is read for the first time. On CUDA cores it is all of A and B, as was fitted.
    """
    down, right, depth = tiles_of(config, problem)
    of_left, of_right = _operands(config, problem)
    if not uses_tma(config):
        return ((right - 1) * of_left + (down - 1) * of_right) * dropped(of_left + of_right, l2_bytes)
    of_cluster = (config.BLOCK_M * config.CLUSTER_M + config.BLOCK_N) * config.BLOCK_K_BYTES
    at_once = MATHS[problem.math].parts * clusters * of_cluster
    in_row, in_column = min(right, left // config.GROUP_M), min(down, left, config.GROUP_M)
    found = 0.0
    for once, times, count, apart in ((of_left, right, in_row, config.GROUP_M), (of_right, down, in_column, 1)):
        lost = 1.0
        if count > 1:
            places = sorted(number * apart * depth % share for number in range(count))
            steps = [after - before for before, after in pairwise([*places, places[0] + share])]
            lost = sum((1 - step / share) * dropped(HALVES * at_once * step, l2_bytes) for step in steps) / (count - 1)
        found += once * (times - 1) * lost
    return found


def dropped(gap: float, l2_bytes: float) -> float:
    """The share of what is read again that the L2 cache has dropped, where so many bytes are read in between."""
    return 1 - 1 / longest(ABRUPT, 1.0, gap / l2_bytes)


def longest(sharpness: float, *times: float) -> float:
    """The longest of times that overlap; a bit more, where they are about as long: none is hidden wholly then."""
    return (sum(time**sharpness for time in times) + LEAST_NS) ** (1 / sharpness)


def _lines(config: Config, problem: Problem, element: int) -> tuple[tuple[float, int], tuple[float, int]]:
    """Of the left operand and of the right one: bytes that are asked of L2, and those from one row to the next.

    The TMA unit asks for whole lines. Rows that it cannot take are copied first, if it does not read them in phases,
    and count as 0 bytes apart, as if they began at lines; so do those that threads copy vector by vector.
    """
    by_rows = problem.b_layout == "kn"
    found = []
    stored_b = (problem.k, problem.n) if by_rows else (problem.n, problem.k)
    for rows, columns, phases in ((problem.m, problem.k, problem.a_phases), (*stored_b, 1)):
        row_bytes, tma = columns * element, uses_tma(config)
        asked = cdiv(row_bytes, LINE_BYTES) * LINE_BYTES if tma else row_bytes
        as_stored = tma and row_bytes * phases % TMA_BYTES == 0
        found.append((float(rows * asked), row_bytes if as_stored else 0))
    a, b = found
    return (b, a) if config.is_transposed(problem.math, problem.b_layout) else (a, b)
