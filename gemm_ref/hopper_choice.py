"""Which of s19's tiles, and how many blocks, for which shape: the model of time behind `gemm_ref.choice` on Hopper.

What a kernel takes is what its busiest multiprocessor takes for its slices, tiles and shares, or what device memory or
the L2 cache take for their bytes, whichever is more. A slice has as many bytes in every math mode, and takes as long.
The figures are in hopper_choice.toml, by kind of GPU.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from gemm_ref.grids import is_turned
from gemm_ref.launch import cdiv
from gemm_ref.operands import LINE_BYTES, TMA_BYTES
from gemm_ref.problem import MATHS, Problem
from gemm_ref.stage import Config, Stage

SUM = 4  # bytes of a sum, in every math mode
L2 = 40e6  # bytes, of 50 MB, that operands may take of it
LEAST = 2  # slices that a share of a tile must have to be worth its start
SHARPNESS = 3  # of `_longest`
TABLE = Path(__file__).with_name("hopper_choice.toml")


@dataclass(frozen=True)
class Costs:
    """What a tile takes on one kind of GPU, in nanoseconds."""

    slice_ns: float  # of a multiprocessor, for a slice of a block
    begin_ns: float  # until the first slice is there, and from the last sum until C is stored, once
    store_ns: float  # to store a tile, as far as the next one's slices do not hide it


@dataclass(frozen=True)
class Device:
    """One kind of GPU: what every launch takes there, and each tile, by rung, dialect and name."""

    start_ns: float  # a kernel that does nothing
    bytes_per_ns: float  # of device memory
    cached_per_ns: float  # of the L2 cache
    apart: float  # times as many more, where blocks with shares are at different k at a time
    split_lines: float  # times as many bytes of it, where boxes of 128 bytes lie in two of its lines
    share_ns: float  # to hand over a share of a tile, and to wait for it
    share_bytes_per_ns: float  # at which one multiprocessor writes and reads shares
    cluster_ns: float  # the same through the shared memory of a cluster
    tiles: dict[str, dict[str, dict[str, Costs]]]


@functools.cache
def devices() -> dict[str, Device]:
    """The measured kinds of GPU by name, as `torch.cuda.get_device_name` has it."""
    found = {}
    for name, about in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        shared = {key: about.pop(key) for key in list(about) if not isinstance(about[key], dict)}
        tiles = {
            stage: {dialect: {tile: Costs(*costs) for tile, costs in each.items()} for dialect, each in of.items()}
            for stage, of in about.items()
        }
        found[name] = Device(**shared, tiles=tiles)
    return found


def device(name: str = "") -> Device:
    """The kind of GPU called `name`, or else the first that was measured."""
    known = devices()
    return known.get(name) or next(iter(known.values()))


def _cluster(config: Config) -> int:
    return (config.CLUSTER_M or 1) * (config.CLUSTER_K or 1)


def tiles_of(config: Config, problem: Problem) -> tuple[int, int, int]:
    """Tiles of a cluster down and to the right in what the kernel computes, C or C^T, and slices along K."""
    rows, columns = problem.m, problem.n
    if is_turned(config, problem.math, problem.b_layout):
        rows, columns = columns, rows
    depth = config.BLOCK_K_BYTES // MATHS[problem.math].dtype.itemsize
    down, right = cdiv(rows, config.BLOCK_M * (config.CLUSTER_M or 1)), cdiv(columns, config.BLOCK_N)
    return down, right, max(1, cdiv(problem.k, depth))


def blocks_for(config: Config, problem: Problem, sms: int) -> list[int]:
    """How many blocks are worth considering: one per tile, where nothing is shared, and as many as the GPU holds."""
    down, right, slices = tiles_of(config, problem)
    tiles, cluster = down * right, _cluster(config)
    if (config.CLUSTER_K or 1) > 1:  # a cluster has one tile
        return [tiles * cluster]
    most = max(1, sms * config.BLOCKS_PER_SM // cluster)
    some = {most, max(1, sms // cluster)} | {tiles * parts for parts in range(2, most // tiles + 1)}
    fits = {x for x in some if x * LEAST <= tiles * slices and (tiles % x) * slices < 2**31}
    return sorted(x * cluster for x in {tiles} | fits)


def predict(config: Config, costs: Costs, gpu: Device, problem: Problem, sms: int, blocks: int) -> float:
    """Nanoseconds that a product takes on `sms` multiprocessors with its tiles dealt to `blocks` blocks."""
    down, right, slices = tiles_of(config, problem)
    tiles, cluster, split = down * right, _cluster(config), config.CLUSTER_K or 1
    slots = max(1, sms * config.BLOCKS_PER_SM // cluster)
    clusters, added, share = blocks // cluster, 0.0, 0
    shared = clusters != tiles and tiles % clusters > 0
    if clusters == tiles:
        rounds = cdiv(tiles, slots)
        clusters = min(clusters, slots)
        steps, added = rounds * cdiv(slices, split), gpu.cluster_ns if split > 1 else 0.0
    else:
        rounds, left = divmod(tiles, clusters)
        share = cdiv(left * slices, clusters)
        steps = rounds * slices + share
        if shared:
            tile_bytes = SUM * config.BLOCK_M * config.BLOCK_N
            added = gpu.share_ns + (1 + slices / share) * tile_bytes / gpu.share_bytes_per_ns
    resident = cdiv(clusters * cluster, sms)  # blocks of a multiprocessor
    busy = steps * resident * costs.slice_ns + costs.begin_ns + max(rounds - 1, 0) * costs.store_ns + added
    element, element_c = (dtype.itemsize for dtype in (MATHS[problem.math].dtype, MATHS[problem.math].out_dtype))
    turned = is_turned(config, problem.math, problem.b_layout)
    rows, columns = (problem.n, problem.m) if turned else (problem.m, problem.n)
    once = element * problem.k * (rows + columns)
    a_lines, b_lines = _lines(problem, gpu)
    left_lines, right_lines = (b_lines, a_lines) if turned else (a_lines, b_lines)
    by_tiles = element * problem.k * (rows * right * left_lines + columns * down * right_lines)
    # Where tiles are at different k at a time, operands that L2 cannot hold come again for each row of tiles
    in_step = not shared or rounds or clusters % tiles == 0
    read = ((once if in_step or once < L2 else by_tiles) + element_c * rows * columns) / gpu.bytes_per_ns
    apart = 0.0 if not shared or clusters % tiles == 0 else share / (rounds * slices + share)
    read_by_tiles = by_tiles * (1 + gpu.apart * apart) / gpu.cached_per_ns
    return gpu.start_ns + _longest(busy, read, read_by_tiles)


def _lines(problem: Problem, gpu: Device) -> tuple[float, float]:
    """How many bytes the L2 cache reads for one of A and of B: as many, or more where rows begin within a line.

    Rows that are copied begin at one.
    """
    element = MATHS[problem.math].dtype.itemsize
    rows_of_b = problem.n if problem.b_layout == "kn" else problem.k
    a_lines, b_lines = (
        gpu.split_lines if (x * element) % LINE_BYTES and not (x * element) % TMA_BYTES else 1.0
        for x in (problem.k, rows_of_b)
    )
    return a_lines, b_lines


def _longest(*times: float) -> float:
    """The longest of times that overlap; a bit more, where they are about as long: none is hidden wholly then."""
    return sum(time**SHARPNESS for time in times) ** (1 / SHARPNESS)


def predictions(
    stage: Stage, dialect: str, problem: Problem, sms: int, gpu: str = "", tile: str = ""
) -> dict[tuple[str, int], float]:
    """Nanoseconds of every candidate, a tile and a number of blocks; the arguments are those of `choice.choose`."""
    kind = device(gpu)
    costs = kind.tiles[stage.id][dialect]
    return {
        (name, blocks): predict(config, costs[name], kind, problem, sms, blocks)
        for name, config in stage.tiles[dialect].items()
        if name == tile or not tile
        for blocks in blocks_for(config, problem, sms)
    }
