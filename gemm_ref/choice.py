"""Which tile, and how many blocks, for which shape: what the default variant of a rung with a family of tiles runs.

A model of time, not a search. A multiprocessor is busy for as long as its blocks' chains of slices last, or for as long
as all its work takes, whichever is more; memory has its bytes to bring; shares of a tile are added up. What a slice of
each tile takes was measured once per kind of GPU (`choice.toml`; `python -m experiments fit` makes the table of
another); a GPU that is not in it has the figures of the first one there. `experiments run choice` says how much is lost
against trying everything.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from gemm_ref import hopper_choice
from gemm_ref.hopper_choice import L2, SUM
from gemm_ref.launch import cdiv
from gemm_ref.problem import MATHS, Problem
from gemm_ref.stage import Config, Stage

SCHEDULERS = 4  # of a multiprocessor; warp w of it belongs to scheduler w % 4
IN_STEP = 8  # warps of a multiprocessor: of so few, 2 for each scheduler, all blocks run in step
SHARPNESS = 4  # of `_longest`
FLOATS = "_floats"  # ends the name of a tile's twin that copies B float by float
SHARES = "shares"  # in the table, the line that is of no tile
TABLE = Path(__file__).with_name("choice.toml")


@dataclass(frozen=True)
class Costs:
    """What a tile takes on one kind of GPU, in nanoseconds."""

    slice_ns: float  # of a multiprocessor that is full, for each slice of a block
    alone_ns: float  # a slice of a block that has the multiprocessor to itself
    begin_ns: float  # until the first slice of a tile is there and its last sum stored; other blocks go on meanwhile
    store_ns: float  # of the multiprocessor, for each tile that a block stores


@dataclass(frozen=True)
class Shares:
    """What it takes to add up the shares of a tile."""

    add_ns: float  # however many they are
    next_ns: float  # each of them
    bytes_per_ns: float  # at which one tile's are read


@dataclass(frozen=True)
class Family:
    """The tiles of a rung in one dialect, by name."""

    shares: Shares
    tiles: dict[str, Costs]


@dataclass(frozen=True)
class Device:
    """One kind of GPU: what every launch takes there, and each rung's tiles by dialect."""

    start_ns: float  # a kernel that does nothing
    bytes_per_ns: float  # of device memory
    cached_per_ns: float  # of the L2 cache
    rungs: dict[str, dict[str, Family]]


@functools.cache
def devices() -> dict[str, Device]:
    """The measured kinds of GPU by name, as `torch.cuda.get_device_name` has it."""
    found = {}
    for name, about in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        shared = {key: about.pop(key) for key in list(about) if not isinstance(about[key], dict)}
        rungs = {rung: {dialect: _family(of) for dialect, of in each.items()} for rung, each in about.items()}
        found[name] = Device(**shared, rungs=rungs)
    return found


def _family(of: dict[str, list[float]]) -> Family:
    return Family(Shares(*of[SHARES]), {tile: Costs(*costs) for tile, costs in of.items() if tile != SHARES})


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


def predict(config: Config, tile: str, family: Family, gpu: Device, problem: Problem, sms: int, blocks: int) -> float:
    """Nanoseconds that a product takes on `sms` multiprocessors with its tiles dealt to `blocks` blocks."""
    tiles_m, tiles_n, slices = tiles_of(config, problem)
    tiles, costs = tiles_m * tiles_n, family.tiles[tile]
    rounds, left = divmod(tiles, blocks)
    share = cdiv(left * slices, blocks)
    if blocks != tiles:  # no more blocks than there is room for: each has whole tiles, and a share of one or two
        parts = rounds + (0 if not left else 1 if slices % share == 0 else 2)
        busy = _wave(config, costs, cdiv(blocks, sms), rounds * slices + share, parts)
    else:  # a tile for each block, so many blocks at a time
        most = config.BLOCKS_PER_SM
        full, rest = divmod(cdiv(tiles, sms), most)
        if tiles > sms * most and most * _warps(config) <= IN_STEP:
            full, rest = divmod(tiles, sms * most)
            rest = min(rest, most)  # of the last ones a multiprocessor whose places are free first takes all it can
        busy = full * _wave(config, costs, most, slices, 1) + (_wave(config, costs, rest, slices, 1) if rest else 0.0)
    time = gpu.start_ns + _longest(busy, *_transfers(config, gpu, problem, whole=rounds > 0))
    return time + _added(config, family.shares, gpu, problem, blocks, slices / share) if left else time


def _longest(*times: float) -> float:
    """The longest of times that overlap; a bit more, where they are about as long: none is hidden wholly then."""
    return sum(time**SHARPNESS for time in times) ** (1 / SHARPNESS)


def _warps(config: Config) -> int:
    """Warps of a block; of warpgroups, which have one on each scheduler, as of a single one."""
    return config.BLOCK_M // config.WARP_M * (config.BLOCK_N // config.WARP_N) if config.WARP_M else SCHEDULERS


def _wave(config: Config, costs: Costs, resident: int, slices: int, parts: int) -> float:
    """What a multiprocessor takes for so many blocks, each with `slices` slices of `parts` tiles.

    Its busiest scheduler decides.
    """
    warps = _warps(config)
    busiest = cdiv(resident * warps, SCHEDULERS) * SCHEDULERS / warps
    alone = slices * costs.alone_ns + parts * costs.begin_ns
    return _longest(alone, slices * busiest * costs.slice_ns + resident * parts * costs.store_ns)


def _transfers(config: Config, gpu: Device, problem: Problem, whole: bool) -> tuple[float, float]:
    """What device memory takes for its bytes, and the L2 cache for what it gives to tiles.

    Blocks without a whole tile are at different k: an operand that L2 cannot hold comes once for each row of tiles.
    """
    m, n, k = problem.m, problem.n, problem.k
    element, element_c = (dtype.itemsize for dtype in (MATHS[problem.math].dtype, MATHS[problem.math].out_dtype))
    tiles_m, tiles_n, _ = tiles_of(config, problem)
    a_times, b_times = (1 if whole or element * k * x < L2 else often for x, often in ((m, tiles_n), (n, tiles_m)))
    read = element * k * (m * a_times + n * b_times) + element_c * m * n
    return read / gpu.bytes_per_ns, element * k * (tiles_n * m + tiles_m * n) / gpu.cached_per_ns


def _added(config: Config, shares: Shares, gpu: Device, problem: Problem, blocks: int, parts: float) -> float:
    """What it takes to write the shares of all blocks, and to add up those of a tile."""
    tile_bytes = SUM * min(config.BLOCK_M, problem.m) * min(config.BLOCK_N, problem.n)
    of_each = shares.next_ns + tile_bytes / shares.bytes_per_ns
    return shares.add_ns + parts * of_each + 2 * blocks * tile_bytes / gpu.cached_per_ns


def predictions(
    stage: Stage, dialect: str, problem: Problem, sms: int, vectors: bool, gpu: str = "", tile: str = ""
) -> dict[Candidate, float]:
    """Nanoseconds of every candidate; the arguments are those of `choose`."""
    if stage.tma:
        found = hopper_choice.predictions(stage, dialect, problem, sms, gpu, tile)
        return {Candidate(*candidate): took for candidate, took in found.items()}
    kind = device(gpu)
    family = kind.rungs[stage.id][dialect]
    return {
        Candidate(name, blocks): predict(config, name, family, kind, problem, sms, blocks)
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
    return {name: c for name, c in tiles.items() if (not name.endswith(FLOATS) if vectors else (c.COPY_N or 1) == 1)}
