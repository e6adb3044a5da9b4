"""Which tile, and how many blocks, for which shape: what the default variant of a rung with a family of tiles runs.

A model of time, not a search: the busiest multiprocessor's slices, what starting, storing and adding up cost beside
them, and the bytes that memory has to bring. What a slice of each tile takes was measured once per kind of GPU
(`choice.toml`; `python -m experiments fit` makes the table of another); a GPU that is not in it has the figures of the
first one there. `experiments run choice` says how much is lost against trying everything.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from gemm_ref.launch import cdiv
from gemm_ref.problem import MATHS, Problem
from gemm_ref.stage import Config, Stage

SUM = 4  # bytes of a sum, in every math mode
L2 = 40e6  # bytes, of 50 MB, that an operand may take of it
SCHEDULERS = 4  # of a multiprocessor; warp w of it belongs to scheduler w % 4
FLOATS = "_floats"  # ends the name of a tile's twin that copies B float by float
TABLE = Path(__file__).with_name("choice.toml")


@dataclass(frozen=True)
class Costs:
    """What a tile takes on one kind of GPU, in nanoseconds."""

    slice_ns: float  # of a multiprocessor that is full, for each slice of a block
    alone_ns: float  # a slice of a block that has the multiprocessor to itself
    part_ns: float  # to begin a tile, or a share of one, and to store it


@dataclass(frozen=True)
class Device:
    """One kind of GPU: what every launch takes there, and each tile."""

    start_ns: float  # a kernel that does nothing
    add_ns: float  # the second kernel, beside its bytes
    next_ns: float  # each share of a tile after the first, in the second kernel
    bytes_per_ns: float  # of device memory
    cached_per_ns: float  # of the L2 cache
    tiles: dict[str, dict[str, dict[str, Costs]]]  # by rung, dialect and tile


@functools.cache
def devices() -> dict[str, Device]:
    """The measured kinds of GPU by name, as `torch.cuda.get_device_name` has it."""
    found = {}
    for name, about in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        shared = {field.name: about.pop(field.name) for field in fields(Device) if field.name != "tiles"}
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


@dataclass(frozen=True)
class Candidate:
    """A tile, by name, and the blocks that the tiles of C are dealt to."""

    tile: str
    blocks: int


def tiles_of(config: Config, problem: Problem) -> tuple[int, int, int]:
    """How many tiles C has along M and along N, and each of them slices along K."""
    depth = config.BLOCK_K or config.BLOCK_K_BYTES // MATHS[problem.math].dtype.itemsize
    return cdiv(problem.m, config.BLOCK_M), cdiv(problem.n, config.BLOCK_N), max(1, cdiv(problem.k, depth))


def blocks_for(config: Config, problem: Problem, sms: int) -> list[int]:
    """How many blocks are worth considering: one per tile, and fewer that share what whole rounds leave over."""
    tiles_m, tiles_n, slices = tiles_of(config, problem)
    tiles = tiles_m * tiles_n
    most = sms * config.BLOCKS_PER_SM
    # all slots of the multiprocessors, one on each, and as many for each tile, where those are few
    some = {most, sms} | {tiles * parts for parts in range(2, most // tiles + 1)}
    fits = {x for x in some if x <= tiles * slices and (tiles % x) * slices < 2**31}
    return sorted({tiles} | fits)


def predict(config: Config, costs: Costs, gpu: Device, problem: Problem, sms: int, blocks: int) -> float:
    """Nanoseconds that a product takes on `sms` multiprocessors with its tiles dealt to `blocks` blocks."""
    m, n, k = problem.m, problem.n, problem.k
    tiles_m, tiles_n, slices = tiles_of(config, problem)
    element, element_c = (dtype.itemsize for dtype in (MATHS[problem.math].dtype, MATHS[problem.math].out_dtype))
    tiles = tiles_m * tiles_n
    rounds, left = divmod(tiles, blocks)

    warps = config.BLOCK_M // config.WARP_M * (config.BLOCK_N // config.WARP_N)

    def slice_ns(resident: int) -> float:
        """A slice of each of so many blocks of one multiprocessor; its busiest scheduler decides."""
        busiest = cdiv(resident * warps, SCHEDULERS) * SCHEDULERS / warps
        return max(costs.alone_ns, busiest * costs.slice_ns)

    after = 0.0
    if left:  # the busiest multiprocessor has its blocks all at once
        share = cdiv(left * slices, blocks)
        busy = (rounds * slices + share) * slice_ns(cdiv(blocks, sms)) + (rounds + 2) * costs.part_ns
        tile_bytes = SUM * min(config.BLOCK_M, m) * min(config.BLOCK_N, n)
        after = gpu.add_ns + blocks / left * gpu.next_ns + 2 * (blocks + left) * tile_bytes / gpu.cached_per_ns
    else:  # or a tile for each, so many at a time
        full, rest = divmod(cdiv(tiles, sms), config.BLOCKS_PER_SM)
        busy = full * (slices * slice_ns(config.BLOCKS_PER_SM) + costs.part_ns)
        busy += slices * slice_ns(rest) + costs.part_ns if rest else 0.0
    # Blocks that share tiles are at different k, so an operand that L2 cannot hold comes once for each row of tiles
    a_times, b_times = (
        1 if rounds or element * k * size < L2 else count for size, count in ((m, tiles_n), (n, tiles_m))
    )
    read = (element * k * (m * a_times + n * b_times) + element_c * m * n) / gpu.bytes_per_ns
    read_by_tiles = element * k * (tiles_n * m + tiles_m * n) / gpu.cached_per_ns
    return gpu.start_ns + max(busy, read, read_by_tiles) + after


def predictions(
    stage: Stage, dialect: str, problem: Problem, sms: int, vectors: bool, gpu: str = "", tile: str = ""
) -> dict[Candidate, float]:
    """Nanoseconds of every candidate; the arguments are those of `choose`."""
    kind = device(gpu)
    costs = kind.tiles[stage.id][dialect]
    return {
        Candidate(name, blocks): predict(config, costs[name], kind, problem, sms, blocks)
        for name, config in tiles_for(stage, dialect, vectors).items()
        if name.removesuffix(FLOATS) == tile or not tile
        for blocks in blocks_for(config, problem, sms)
    }


@functools.lru_cache(maxsize=4096)
def choose(
    stage: Stage, dialect: str, problem: Problem, sms: int, vectors: bool, gpu: str = "", tile: str = ""
) -> Candidate:
    """What a rung's default variant runs for a problem, on a GPU with `sms` multiprocessors.

    vectors: whether rows of B are whole vectors of 16 bytes. gpu: its kind, as torch names it. tile: the name of one
    that is asked for; else any.
    """
    found = predictions(stage, dialect, problem, sms, vectors, gpu, tile)
    return min(found, key=lambda each: (found[each], each.blocks, each.tile))


def tiles_for(stage: Stage, dialect: str, vectors: bool) -> dict[str, Config]:
    """The tiles of a rung that read a B whose rows are whole vectors, or are not."""
    tiles = stage.tiles[dialect]
    told = any(config.COPY_N for config in tiles.values())  # else its compiler sees to it
    return {name: c for name, c in tiles.items() if not told or (c.COPY_N > 1) == vectors}
