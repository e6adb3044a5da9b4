"""What work costs on one kind of GPU: the table, by kind, rung and dialect, and the time that it makes of a `Work`."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gemm_ref.choice.work import Wave, Work, dropped, longest
from gemm_ref.tiles import EMULATED

IN_A_WAVE = 4  # sharpness of `longest`
SHARES, CACHE = "shares", "cache"  # in the table, the lines that are of no tile
# A rung that was not fitted on a GPU has the figures of the tiles of these names: the slices are the same, and `work`
# counts each once for every product of parts.
_AS = {"s20_emulated": ("s19_any_shape", EMULATED)}
# Rung, dialect and math mode whose slices take another time, since the kernel reads them otherwise: in CUDA's tf32 a B
# by rows goes through registers. Their tiles have costs of their own.
_APART = {("s19_any_shape", "cuda", "tf32")}
TABLE = Path(__file__).with_name("costs.toml")


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
    slower: float  # share of the time that all else takes longer, since blocks are at other slices


@dataclass(frozen=True)
class Cache:
    """How a rung's tiles read the L2 cache in one dialect."""

    bytes_per_ns: float
    in_two: float  # times as many bytes, where rows of boxes are in two of its lines
    in_five: float  # times as many bytes, where they begin within one of its sectors of 32 bytes
    apart: float  # times as many bytes more, of slices that no other block reads at the same time
    again: float  # share of what several tiles read that device memory brings once more, of what L2 does not hold
    scattered: float  # share of `Work.scattered` that it brings once more; all of it, where that was measured
    narrow: float  # times as many bytes more, where several rows of boxes are in one line, which is asked for again


@dataclass(frozen=True)
class Family:
    """The tiles of a rung in one dialect, by name."""

    shares: Shares
    cache: Cache
    tiles: dict[str, Costs]
    fitted: bool = True  # whether they are its own, and not those of another rung or of another GPU


@dataclass(frozen=True)
class Device:
    """One kind of GPU: what every launch takes there, and each rung's tiles by dialect."""

    start_ns: float  # a kernel that does nothing
    copy_ns: float  # a copy of B in front of it, but for its bytes
    bytes_per_ns: float  # of device memory
    l2_bytes: float  # that the L2 cache holds; a fact, not fitted
    rungs: dict[str, dict[str, Family]] = field(default_factory=dict)  # by rung, and by `family_name`

    def family(self, stage: str, dialect: str, math: str) -> Family:
        """The tiles of a rung in one dialect and math mode."""
        return self.rungs[stage][family_name(stage, dialect, math)]


def family_name(stage: str, dialect: str, math: str) -> str:
    """What the tiles of a rung are called in the table: as the dialect, and after the mode where that has its own."""
    return f"{dialect}_{math}" if (stage, dialect, math) in _APART else dialect


@functools.cache
def devices() -> dict[str, Device]:
    """The measured kinds of GPU by name, as `torch.cuda.get_device_name` has it.

    What was not fitted on one of them has the costs of the first.
    """
    found: dict[str, Device] = {}
    for name, about in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        shared = {key: about.pop(key) for key in list(about) if not isinstance(about[key], dict)}
        rungs = {rung: {dialect: _family(of) for dialect, of in each.items()} for rung, each in about.items()}
        first = borrowed(next(iter(found.values()))).rungs if found else {}
        for rung in first.keys() - _AS.keys():
            rungs[rung] = first[rung] | rungs.get(rung, {})
        for rung, dialect, math in _APART:
            rungs[rung].setdefault(family_name(rung, dialect, math), replace(rungs[rung][dialect], fitted=False))
        for rung, (like, tiles) in _AS.items():
            rungs.setdefault(rung, {name: _some(rungs[like][name], tiles[name]) for name in tiles})
        found[name] = Device(**shared, rungs=rungs)
    return found


def borrowed(gpu: Device) -> Device:
    """Its costs, for another GPU on which none of them was fitted."""
    rungs = {
        rung: {dialect: replace(family, fitted=False) for dialect, family in families.items()}
        for rung, families in gpu.rungs.items()
    }
    return replace(gpu, rungs=rungs)


def _some(family: Family, tiles: Iterable[str]) -> Family:
    return replace(family, tiles={name: family.tiles[name] for name in tiles}, fitted=False)


def _family(of: dict[str, list[float]]) -> Family:
    tiles = {tile: Costs(*costs) for tile, costs in of.items() if tile not in (SHARES, CACHE)}
    return Family(Shares(*of[SHARES]), Cache(*of[CACHE]), tiles)


def device(name: str = "") -> Device:
    """The kind of GPU called `name`, or else the first that was measured."""
    known = devices()
    return known.get(name) or next(iter(known.values()))


def took(work: Work, costs: Costs, shares: Shares, cache: Cache, gpu: Device) -> float:
    """Nanoseconds of a candidate; or of many, where what is given holds arrays.

    A multiprocessor is busy for its blocks, one wave after another; device memory and the L2 cache have their bytes to
    bring meanwhile, and more of them while blocks are at different slices. Then shares are added up.
    """
    busy = work.full * _wave(work.wave, costs) + _wave(work.last, costs)
    cached = work.cached + (cache.in_two - 1) * work.in_two + (cache.in_five - 1) * work.in_five
    cached = cached + cache.narrow * work.narrow
    read = work.read + cache.again * work.again * dropped(work.operands, gpu.l2_bytes)
    time = gpu.start_ns + (gpu.copy_ns + work.copied / gpu.bytes_per_ns) * (work.copied > 0)
    apart = work.apart, cached * (1 + cache.apart), read + cache.scattered * work.scattered
    for part, asked, brought in ((1 - work.apart, cached, read), apart):
        memory, l2 = part * brought / gpu.bytes_per_ns, part * asked / cache.bytes_per_ns
        time += longest(work.sharpness, part * busy, memory, l2)
    of_each = shares.next_ns + work.part_bytes / shares.bytes_per_ns
    time = time * (1 + shares.slower * work.shared) + work.shared * shares.add_ns
    return time + work.parts * of_each + work.left_bytes / cache.bytes_per_ns


def _wave(wave: Wave, costs: Costs) -> float:
    """A block takes its slices one after another; a multiprocessor, those of all its blocks."""
    alone = wave.slices * costs.alone_ns + wave.begins * costs.begin_ns
    return longest(IN_A_WAVE, alone, wave.busiest * costs.slice_ns + wave.stores * costs.store_ns)
