"""How many blocks and threads each kind of kernel is launched with: the one place where grids are computed.

Each function takes a rung's config, the sizes of the problem, and how many multiprocessors (`sms`) the GPU has.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from gemm_ref.launch import Launch, cdiv
from gemm_ref.problem import MATHS, Problem
from gemm_ref.rung import Box, Config

VECTOR = 4  # floats in the 16 bytes that a thread can move at once
PAD = 8  # elements of 16 bits in 16 bytes: what a padded row is longer
MIN_SLICES = 4  # where K is split: slices that a block must have to be worth its start
WARPGROUP, WGMMA_M = 128, 64  # threads that one wgmma takes, and rows of C that it gives
SWIZZLE_ROW, SWIZZLE_ATOM = 128, 1024  # bytes of a row in TMA's widest swizzle, and after which it repeats
ADD_THREADS = 256  # split-K: threads in a block of the kernel that adds the partial sums


def rows_on_x(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """threadIdx.x walks the rows of C: neighbouring lanes are a whole row apart in memory."""
    grid = (cdiv(m, config.BLOCK_M), cdiv(n, config.BLOCK_N), 1)
    return Launch(grid, (config.BLOCK_M, config.BLOCK_N, 1))


def _grid(config: Config, m: int, n: int) -> tuple[int, int, int]:
    """A block for each tile of C; neighbouring blocks along x own neighbouring tiles of a row."""
    return cdiv(n, config.BLOCK_N), cdiv(m, config.BLOCK_M), 1


def columns_on_x(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """threadIdx.x walks the columns of C, a thread for each THREAD_M x THREAD_N elements of the tile."""
    block = config.BLOCK_N // (config.THREAD_N or 1), config.BLOCK_M // (config.THREAD_M or 1), 1
    return Launch(_grid(config, m, n), block)


def warps_on_tile(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """A warp for each WARP_M x WARP_N elements of the tile; threads are numbered along x alone."""
    warps = config.BLOCK_M // config.WARP_M * (config.BLOCK_N // config.WARP_N)
    return Launch(_grid(config, m, n), (32 * warps, 1, 1))


def async_stages(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """As `warps_on_tile`, with NUM_STAGES slices of A (k, m; a vector of padding per row) and B in shared memory."""
    floats = config.BLOCK_K * (config.BLOCK_M + VECTOR + config.BLOCK_N)
    return replace(warps_on_tile(config, m, n, k, sms), shared_bytes=4 * config.NUM_STAGES * floats)


def padded_halves(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """As `warps_on_tile`, with NUM_STAGES slices in shared memory, each row of A (m, k) and B (k, n) a chunk longer.

    BLOCK_K counts elements of 16 bits; wider ones are fewer in the same bytes. A pad is 16 bytes: of each row of A, and
    of a row of B, of which there are BLOCK_K at most.
    """
    halves = config.BLOCK_M * (config.BLOCK_K + PAD) + config.BLOCK_K * (config.BLOCK_N + PAD)
    return replace(warps_on_tile(config, m, n, k, sms), shared_bytes=2 * config.NUM_STAGES * halves)


def swizzled_halves(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """As `warps_on_tile`, with NUM_STAGES slices of A (m, k) and B (k, n) in shared memory, without padding.

    BLOCK_K counts elements of 16 bits; wider ones are fewer in the same bytes.
    """
    halves = config.BLOCK_K * (config.BLOCK_M + config.BLOCK_N)
    return replace(warps_on_tile(config, m, n, k, sms), shared_bytes=2 * config.NUM_STAGES * halves)


def split_k(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """As `async_stages`, with K split over the grid's z until there are as many blocks as the GPU has SMs.

    A split is a whole number of slices, at least MIN_SLICES. The splits' sums go to `partials`, (splits, M, N), which
    a second kernel adds, a thread for each element of C. The sizes and the number of SMs decide: two GPUs that have
    as many add in the same order, and give the same bits.
    """
    launch = async_stages(config, m, n, k, sms)
    x, y, _ = launch.grid
    slices = max(1, cdiv(k, config.BLOCK_K))
    wanted = min(max(1, sms // max(1, x * y)), cdiv(slices, MIN_SLICES))
    splits = cdiv(slices, cdiv(slices, wanted))  # none is left without a slice
    if splits == 1:
        return launch
    add = Launch((cdiv(m * n, ADD_THREADS), 1, 1), (ADD_THREADS, 1, 1))
    return replace(launch, grid=(x, y, splits), partials=splits * m * n, parts=splits, partly=("C",), then=add)


def dealt_tiles(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """Tiles dealt to the blocks that the GPU holds at a time, each with MIN_SLICES at least.

    `gemm_ref.call.settle` has the number that takes the least time.
    """
    tiles = cdiv(m, config.BLOCK_M) * cdiv(n, config.BLOCK_N)
    most = tiles * max(1, cdiv(k, config.BLOCK_K) // MIN_SLICES)
    if config.WARPS:
        return deal(config, m, n, k, tiles)
    return deal(config, m, n, k, max(1, min(sms * config.BLOCKS_PER_SM, most)))


def deal(config: Config, m: int, n: int, k: int, blocks: int, sms: int = 0) -> Launch:
    """The tiles dealt to `blocks` blocks: whole ones in turn, then to each an equal share of the K of those left.

    Shares go to `partials`, two tiles for each block, and a second kernel adds those of each tile in the order of K, a
    thread for each vector of a tile. With as many blocks as tiles nothing is shared (Osama et al., 'Stream-K', PPoPP
    2023, has tiles dealt so).
    """
    tiles = cdiv(m, config.BLOCK_M) * cdiv(n, config.BLOCK_N)
    if config.WARPS:
        if blocks != tiles:
            raise ValueError(f"these strips of C take {tiles} blocks, one each, and not {blocks}")
        return Launch((tiles, 1, 1), (32 * config.WARPS, 1, 1))
    launch = replace(async_stages(config, m, n, k, 0), grid=(blocks, 1, 1))
    left = tiles % blocks
    if not left:
        return launch
    vectors = config.BLOCK_M * config.BLOCK_N // VECTOR
    add = Launch((cdiv(vectors, ADD_THREADS), left, 1), (ADD_THREADS, 1, 1), partly=("C",), early=True)
    room = 2 * blocks * vectors * VECTOR
    return replace(launch, partials=room, parts=blocks, partly=("C", "partials"), then=add)


def wgmma_tiles(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """A warpgroup for each 64 rows of a tile, a block for each tile, numbered along x alone."""
    tiles = cdiv(m, config.BLOCK_M) * cdiv(n, config.BLOCK_N)
    return Launch((tiles, 1, 1), (config.BLOCK_M // WGMMA_M * WARPGROUP, 1, 1), _hopper_bytes(config))


def persistent_clusters(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """As many blocks as the GPU holds, in clusters, or fewer where there are fewer tiles; a warpgroup more, that loads.

    Where it is not PERSISTENT, a block for each tile.

    Tiles are of C or, where the kernel turns the product round (`is_turned`), of its transpose; there are as many
    blocks as the one of the two that has more tiles needs, since a block without a tile just ends.
    """
    across = max(_clusters(config, m, n), _clusters(config, n, m))
    clusters = (
        min(across, clusters_at_once(sms, config.BLOCKS_PER_SM or 1, config.CLUSTER_M)) if config.PERSISTENT else across
    )
    threads = (config.BLOCK_M // WGMMA_M + 1) * WARPGROUP
    grid, cluster = (clusters * config.CLUSTER_M, 1, 1), (config.CLUSTER_M, 1, 1)
    return Launch(grid, (threads, 1, 1), _hopper_bytes(config), cluster=cluster, loaders=WARPGROUP)


def dealt_wgmma_tiles(config: Config, m: int, n: int, k: int, sms: int) -> Launch:
    """A block for each tile, as many at a time as the GPU holds: `deal_wgmma`, with nothing shared."""
    return deal_wgmma(config, m, n, k, _clusters(config, m, n) * config.CLUSTER_M * config.CLUSTER_K, sms)


def deal_wgmma(config: Config, m: int, n: int, k: int, blocks: int, sms: int) -> Launch:
    """As `deal`, for a rung that loads with a warpgroup of its own: the tiles of a cluster dealt to clusters.

    With as many blocks as tiles nothing is shared: those that the GPU holds at a time take tile after tile. Else the
    tiles that are left after whole rounds are shared, and each warpgroup has sums and a flag of its own. Where the
    blocks of a cluster share the K of a tile, it has one tile: raises ValueError for any other number of blocks.
    """
    cluster, tiles = config.CLUSTER_M * config.CLUSTER_K, _clusters(config, m, n)
    clusters, left = blocks // cluster, 0
    if config.CLUSTER_K > 1:
        if clusters != tiles:
            raise ValueError(f"this tile takes {tiles * cluster} blocks, a cluster per tile of C, and not {blocks}")
    elif clusters == tiles:
        clusters = min(tiles, clusters_at_once(sms, config.BLOCKS_PER_SM, cluster))
    else:
        left = tiles % clusters
    consumers = config.BLOCK_M // WGMMA_M
    threads = (consumers + 1) * WARPGROUP
    grid, clustered = (clusters * cluster, 1, 1), (cluster, 1, 1)
    launch = Launch(grid, (threads, 1, 1), _hopper_bytes(config), cluster=clustered, loaders=WARPGROUP)
    if not left:
        return launch
    room, flags = clusters * cluster * config.BLOCK_M * config.BLOCK_N, clusters * cluster * consumers
    return replace(launch, partials=room, flags=flags, shared_tiles=left, partly=("partials", "flags"))


def clusters_at_once(sms: int, blocks_per_sm: int, cluster: int) -> int:
    """How many clusters of so many blocks a GPU holds.

    The blocks of one are on multiprocessors of the same GPC. Those come in pairs, so that clusters of two find room on
    all of them. A GPC has 14 to 18: of 132, clusters of four are on 120 (cudaOccupancyMaxActiveClusters on an H200).
    """
    room = sms if cluster <= 2 else sms * 10 // 11
    return max(1, room * blocks_per_sm // cluster)


def _clusters(config: Config, rows: int, columns: int) -> int:
    return cdiv(rows, config.BLOCK_M * config.CLUSTER_M) * cdiv(columns, config.BLOCK_N)


def _hopper_bytes(config: Config) -> int:
    """Of shared memory: NUM_STAGES slices of A and B, and pieces of C for each warpgroup that multiplies.

    Two, or one where three multiply. A piece of a tile with few columns is smaller; floats are the largest elements.
    """
    panels = config.BLOCK_N if config.SWAPPED else cdiv(config.BLOCK_N, WGMMA_M) * WGMMA_M  # of B by rows
    slices = config.NUM_STAGES * (config.BLOCK_M + panels) * config.BLOCK_K_BYTES
    warpgroups = config.BLOCK_M // WGMMA_M
    pieces = warpgroups * (1 if warpgroups > 2 else 2) * WGMMA_M * min(SWIZZLE_ROW, 4 * config.BLOCK_N)
    sums = ((config.CLUSTER_K or 1) - 1) * config.BLOCK_M * config.BLOCK_N * 4
    return SWIZZLE_ATOM + slices + pieces + sums


def is_turned(config: Config, math: str, b_layout: str) -> bool:
    """Whether a kernel computes C^T = B^T @ A^T: in a swapped tile, and where tf32's B is not stored along k."""
    return bool(config.SWAPPED) or (math == "tf32" and b_layout == "kn")


def sides(config: Config, problem: Problem) -> tuple[int, int]:
    """Rows and columns of what a kernel computes, C or C^T, where each of `a_phases` matrices of A has whole tiles."""
    turned, rows = is_turned(config, problem.math, problem.b_layout), problem.m
    if problem.a_phases > 1:
        of_tile = config.BLOCK_N if turned else config.BLOCK_M * (config.CLUSTER_M or 1)
        rows = cdiv(cdiv(rows, problem.a_phases), of_tile) * of_tile * problem.a_phases
    return (problem.n, rows) if turned else (rows, problem.n)


def wgmma_boxes(config: Config, math: str, b_layout: str) -> dict[str, Box]:
    """What TMA copies at once, with 128 bytes per row, as the swizzle wants.

    Of an operand that is stored along k a block's rows; of B by rows, panels; or the share of either that one block of
    a cluster loads for all. C goes out in pieces of a warpgroup's rows, or of as many columns where it is turned.
    """
    operand, result = (SWIZZLE_ROW // dtype.itemsize for dtype in (MATHS[math].part_dtype, MATHS[math].out_dtype))
    sharers = config.CLUSTER_M or 1
    share = config.BLOCK_N // sharers
    if is_turned(config, math, b_layout):
        b = Box(config.BLOCK_M if b_layout == "nk" else operand, operand)
        return {"A": Box(share, operand), "B": b, "C": Box(gcd(config.BLOCK_N, result), result)}
    b = Box(share if b_layout == "nk" else operand // sharers, operand)
    return {"A": Box(config.BLOCK_M, operand), "B": b, "C": Box(WGMMA_M, gcd(config.BLOCK_N, result))}
