"""How many blocks and threads each kind of kernel is launched with: the one place where grids are computed."""

from __future__ import annotations

from dataclasses import replace

from gemm_ref.stage import Config, Launch, cdiv

VECTOR = 4  # floats in the 16 bytes that a thread can move at once
PAD = 8  # elements of 16 bits in 16 bytes: what a padded row is longer
SPLIT_BLOCKS = 132  # split-K: blocks wanted in all, one for each SM of an H200
MIN_SLICES = 4  # split-K: slices that a block must have to be worth its start
ADD_THREADS = 256  # split-K: threads in a block of the kernel that adds the partial sums


def rows_on_x(config: Config, m: int, n: int, k: int) -> Launch:
    """threadIdx.x walks the rows of C: neighbouring lanes are a whole row apart in memory."""
    grid = (cdiv(m, config.BLOCK_M), cdiv(n, config.BLOCK_N), 1)
    return Launch(grid, (config.BLOCK_M, config.BLOCK_N, 1))


def _grid(config: Config, m: int, n: int) -> tuple[int, int, int]:
    """A block for each tile of C; neighbouring blocks along x own neighbouring tiles of a row."""
    return cdiv(n, config.BLOCK_N), cdiv(m, config.BLOCK_M), 1


def columns_on_x(config: Config, m: int, n: int, k: int) -> Launch:
    """threadIdx.x walks the columns of C, a thread for each THREAD_M x THREAD_N elements of the tile."""
    block = config.BLOCK_N // (config.THREAD_N or 1), config.BLOCK_M // (config.THREAD_M or 1), 1
    return Launch(_grid(config, m, n), block)


def warps_on_tile(config: Config, m: int, n: int, k: int) -> Launch:
    """A warp for each WARP_M x WARP_N elements of the tile; threads are numbered along x alone."""
    warps = config.BLOCK_M // config.WARP_M * (config.BLOCK_N // config.WARP_N)
    return Launch(_grid(config, m, n), (32 * warps, 1, 1))


def async_stages(config: Config, m: int, n: int, k: int) -> Launch:
    """As `warps_on_tile`, with NUM_STAGES slices of A (k, m; a vector of padding a row) and B in shared memory."""
    floats = config.BLOCK_K * (config.BLOCK_M + VECTOR + config.BLOCK_N)
    return replace(warps_on_tile(config, m, n, k), shared_bytes=4 * config.NUM_STAGES * floats)


def padded_halves(config: Config, m: int, n: int, k: int) -> Launch:
    """As `warps_on_tile`, with NUM_STAGES slices in shared memory, each row of A (m, k) and B (k, n) a chunk longer.

    BLOCK_K counts elements of 16 bits; wider ones are fewer in the same bytes. A pad is 16 bytes: of each row of A, and
    of a row of B, of which there are BLOCK_K at most.
    """
    halves = config.BLOCK_M * (config.BLOCK_K + PAD) + config.BLOCK_K * (config.BLOCK_N + PAD)
    return replace(warps_on_tile(config, m, n, k), shared_bytes=2 * config.NUM_STAGES * halves)


def swizzled_halves(config: Config, m: int, n: int, k: int) -> Launch:
    """As `warps_on_tile`, with NUM_STAGES slices of A (m, k) and B (k, n) in shared memory, without padding.

    BLOCK_K counts elements of 16 bits; wider ones are fewer in the same bytes.
    """
    halves = config.BLOCK_K * (config.BLOCK_M + config.BLOCK_N)
    return replace(warps_on_tile(config, m, n, k), shared_bytes=2 * config.NUM_STAGES * halves)


def split_k(config: Config, m: int, n: int, k: int) -> Launch:
    """As `async_stages`, with K split over the grid's z until there are as many blocks as an H200 has SMs.

    A split is a whole number of slices, at least MIN_SLICES. The splits' sums go to `partials`, (splits, M, N), which
    a second kernel adds, a thread an element of C. Sizes alone decide, so any GPU adds in the same order.
    """
    launch = async_stages(config, m, n, k)
    x, y, _ = launch.grid
    slices = max(1, cdiv(k, config.BLOCK_K))
    wanted = min(max(1, SPLIT_BLOCKS // max(1, x * y)), cdiv(slices, MIN_SLICES))
    splits = cdiv(slices, cdiv(slices, wanted))  # none is left without a slice
    if splits == 1:
        return launch
    add = Launch((cdiv(m * n, ADD_THREADS), 1, 1), (ADD_THREADS, 1, 1))
    return replace(launch, grid=(x, y, splits), partials=splits * m * n, then=add)
