"""What work costs on one kind of GPU: the table by GPU, rung and dialect, and the time of a `Work`."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from gemm_ref.choice.work import Wave, Work, evicted_share, smooth_max
from gemm_ref.launch import REFERENCE_SMS
from gemm_ref.registry import STAGES

# What the blocks of a tile take to add it together, and a multiprocessor's rate of storing and reading sums: fitted to
# times of s19 in CUDA, in bf16 and fp8, at 94 problems on an H200 (docs/trials.md).
TOGETHER_NS, TOGETHER_BYTES_PER_NS = 1800, 60
WAVE_SHARPNESS = 4  # of `smooth_max` within a wave
SHARES, CACHE = "shares", "cache"  # lines of the table that are not tiles
# Rung, dialect and compute type with their own costs, because the kernel reads its operands otherwise: in tf32 a
# B that is stored by rows goes through registers, or is multiplied by mma.sync.
_OWN_COSTS = {("s19_any_shape", dialect, "tf32") for dialect in ("cuda", "triton", "gluon")}
# CUdevice_attribute of multiprocessors, their clock and that of device memory in kHz, the width of its bus in bits, and
# bytes of the L2 cache.
_ATTRIBUTES = (16, 13, 36, 37, 38)
# Fused multiply-adds per clock of a multiprocessor, with fewer by compute capability: CUDA C++ Programming Guide,
# 'Throughput of Native Arithmetic Instructions'.
FP32_LANES, FEW_FP32_LANES = 128, {(7, 0): 64, (7, 5): 64, (8, 0): 64}
TABLE = Path(__file__).with_name("costs.toml")


@dataclass(frozen=True)
class Costs:
    """The costs of a tile on one kind of GPU, in nanoseconds."""

    slice_ns: float  # per slice of a block, on a full multiprocessor
    alone_ns: float  # per slice of a block that has the multiprocessor to itself
    start_ns: float  # until the first slice of a tile has arrived and its last sum is stored; other blocks continue
    store_ns: float  # of the multiprocessor, per tile that a block stores


@dataclass(frozen=True)
class SplitCosts:
    """The costs of adding up the partial sums of split tiles."""

    fixed_ns: float  # however many there are
    split_ns: float  # per block that shares a tile
    bytes_per_ns: float  # at which the partial sums of one tile are read
    slowdown: float  # share by which all else takes longer, since blocks are at different slices


@dataclass(frozen=True)
class Cache:
    """How a rung's tiles read the L2 cache in one dialect; all but the first are factors of bytes."""

    bytes_per_ns: float
    two_lines: float  # of rows of boxes that are in two lines
    five_sectors: float  # of rows of boxes that begin within a sector of 32 bytes
    unsynced: float  # in addition, of slices that no other block reads at the same time
    reread: float  # of the reused bytes, reread from device memory as far as L2 has evicted them
    scattered: float  # of `Work.scattered_bytes` from device memory; 1 where that was measured
    narrow: float  # in addition, where several rows of boxes are in one line, which is requested for each
    neighbours: float  # of `Work.neighbour_bytes`, which the cache is not asked for while blocks are at the same slice


@dataclass(frozen=True)
class Family:
    """The tiles of a rung in one dialect, by name."""

    splitting: SplitCosts
    cache: Cache
    tiles: Mapping[str, Costs]
    fitted: bool = True  # to times of this rung on this GPU; else borrowed


@dataclass(frozen=True)
class Device:
    """One kind of GPU: what every launch costs there, and each rung's tiles by dialect."""

    start_ns: float  # an empty kernel
    copy_ns: float  # a copy of B in front of the kernel, without its bytes
    bytes_per_ns: float  # of device memory
    # Facts, not fitted: the size of the L2 cache, and what the driver states of device memory and of multiprocessors.
    l2_bytes: float
    peak_bytes_per_ns: float
    sm_mhz: float
    rungs: Mapping[str, Mapping[str, Family]] = field(default_factory=dict)  # by rung and `family_name`

    def family(self, stage: str, dialect: str, math: str) -> Family:
        """The tiles of a rung in one dialect and compute type."""
        return self.rungs[stage][family_name(stage, dialect, math)]


def family_name(stage: str, dialect: str, math: str) -> str:
    """The name of a rung's tiles in the table: the dialect, followed by the compute type if that has its own costs."""
    return f"{dialect}_{math}" if (stage, dialect, math) in _OWN_COSTS else dialect


@functools.cache
def load_devices() -> dict[str, Device]:
    """The measured kinds of GPU, by the name that `torch.cuda.get_device_name` gives.

    What was not fitted on one of them has the costs of the first in the table on which it was.
    """
    sections = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    fitted = {
        gpu: {rung: _families(of) for rung, of in section.items() if isinstance(of, dict)}
        for gpu, section in sections.items()
    }
    devices = {}
    for gpu, section in sections.items():
        rungs = {rung: dict(families) for rung, families in fitted[gpu].items()}
        for rung, families in ((rung, families) for of in fitted.values() for rung, families in of.items()):
            for name, family in families.items():
                rungs.setdefault(rung, {}).setdefault(name, replace(family, fitted=False))
        facts = {key: value for key, value in section.items() if not isinstance(value, dict)}
        devices[gpu] = Device(**facts, rungs=rungs)
    return devices


def _families(of: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Family]:
    """The families of one rung, by name."""
    return {
        name: Family(
            SplitCosts(*lines[SHARES]),
            Cache(*lines[CACHE]),
            {tile: Costs(*costs) for tile, costs in lines.items() if tile not in (SHARES, CACHE)},
        )
        for name, lines in of.items()
    }


def borrow_costs(gpu: Device) -> Device:
    """A device with the same costs, none of them fitted, for another GPU."""
    rungs = {
        rung: {name: replace(family, fitted=False) for name, family in families.items()}
        for rung, families in gpu.rungs.items()
    }
    return replace(gpu, rungs=rungs)


def find_device(name: str = "") -> Device:
    """The kind of GPU called `name`, as torch names it; without a name the first in the table.

    A GPU that is not in the table has the first one's costs, scaled by what is known of it (`read_facts`), if anything.
    """
    devices = load_devices()
    first = next(iter(devices.values()))
    facts = None if not name or name in devices else read_facts(name)
    return scale_costs(first, facts) if facts else devices.get(name, first)


@dataclass(frozen=True)
class Facts:
    """What costs are scaled by from one kind of GPU to another."""

    peak_bytes_per_ns: float  # of device memory
    sm_mhz: float  # the highest clock of a multiprocessor
    l2_bytes: float
    multiprocessors: int
    fp32_lanes: int = FP32_LANES  # fused multiply-adds per clock of a multiprocessor


@functools.cache
def read_facts(name: str) -> Facts | None:
    """What the driver states of a GPU that is here, or else gpus.toml; None where neither has all of it.

    gpus.toml has what device memory reached, which is set in relation to what the first GPU's memory reached.
    """
    import torch

    from gemm_ref.call.driver import device_attributes
    from gemm_ref.clock.gpu import cards

    for index in range(torch.cuda.device_count()):
        if torch.cuda.get_device_name(index) == name:
            sms, sm_khz, memory_khz, bus_bits, l2_bytes = stated = device_attributes(index, *_ATTRIBUTES)
            if not all(stated):  # 0 is what a driver states of a clock or a memory that it does not know
                break
            lanes = FEW_FP32_LANES.get(torch.cuda.get_device_capability(index), FP32_LANES)
            return Facts(2 * memory_khz * bus_bits / 8e6, sm_khz / 1e3, l2_bytes, sms, lanes)  # two bits per clock
    by_name = {card["name"]: card for card in cards().values()}
    first, device = next(iter(load_devices().items()))
    if name not in by_name or first not in by_name:
        return None
    peak, of_first = (dict(by_name[each]["roofs"]["value"])["dram_read"] for each in (name, first))
    values = (by_name[name][key]["value"] for key in ("max_sm_clock_mhz", "l2_bytes", "multiprocessors"))
    return Facts(device.peak_bytes_per_ns * peak / of_first, *values)


def scale_costs(device: Device, gpu: Facts) -> Device:
    """The costs of `device`, which has REFERENCE_SMS multiprocessors, for another GPU; none of them is fitted.

    Device memory reaches the same share of its peak. The L2 cache is as fast as there are multiprocessors and clocks, a
    tile as its multiprocessor's clock allows and, on CUDA cores, its lanes. What a launch takes stays the same.
    """
    clocks = device.sm_mhz / gpu.sm_mhz
    l2_speed = gpu.multiprocessors / REFERENCE_SMS / clocks
    rungs: dict[str, dict[str, Family]] = {}
    for rung, families in device.rungs.items():
        slower = clocks if STAGES[rung].tma else clocks * FP32_LANES / gpu.fp32_lanes
        rungs[rung] = {
            name: replace(
                family,
                fitted=False,
                cache=replace(family.cache, bytes_per_ns=family.cache.bytes_per_ns * l2_speed),
                tiles={tile: Costs(*(cost * slower for cost in astuple(of))) for tile, of in family.tiles.items()},
            )
            for name, family in families.items()
        }
    memory_speed = device.bytes_per_ns * gpu.peak_bytes_per_ns / device.peak_bytes_per_ns
    facts = {"peak_bytes_per_ns": gpu.peak_bytes_per_ns, "sm_mhz": gpu.sm_mhz, "l2_bytes": gpu.l2_bytes}
    return replace(device, bytes_per_ns=memory_speed, **facts, rungs=rungs)


def time_ns(work: Work, costs: Costs, splitting: SplitCosts, cache: Cache, gpu: Device) -> float:
    """Nanoseconds of a candidate; of many candidates if the arguments hold arrays.

    A multiprocessor runs its blocks one wave after another, while device memory and the L2 cache transfer their bytes:
    more of them while the blocks are at different slices. Then partial sums are added up.
    """
    compute = work.full_waves * _wave_ns(work.wave, costs) + _wave_ns(work.last_wave, costs)
    l2_bytes = work.l2_bytes + (cache.two_lines - 1) * work.two_line_bytes
    l2_bytes = l2_bytes + (cache.five_sectors - 1) * work.five_sector_bytes
    l2_bytes = l2_bytes + cache.narrow * work.narrow_bytes
    memory_bytes = work.memory_bytes + cache.reread * work.reused_bytes * evicted_share(
        work.operand_bytes, gpu.l2_bytes
    )
    time = gpu.start_ns + (gpu.copy_ns + work.copied_bytes / gpu.bytes_per_ns) * (work.copied_bytes > 0)
    synced = 1 - work.unsynced, l2_bytes - cache.neighbours * work.neighbour_bytes, memory_bytes
    unsynced = work.unsynced, l2_bytes * (1 + cache.unsynced), memory_bytes + cache.scattered * work.scattered_bytes
    for share, requested, transferred in (synced, unsynced):
        memory, l2 = share * transferred / gpu.bytes_per_ns, share * requested / cache.bytes_per_ns
        time += smooth_max(work.sharpness, share * compute, memory, l2)
    split_ns = splitting.split_ns + work.partial_bytes / splitting.bytes_per_ns
    time = time * (1 + splitting.slowdown * work.is_split) + work.is_split * splitting.fixed_ns
    time = time + work.splits * split_ns + work.partials_bytes / cache.bytes_per_ns
    return time + (TOGETHER_NS + work.together_bytes / TOGETHER_BYTES_PER_NS) * (work.together_bytes > 0)


def _wave_ns(wave: Wave, costs: Costs) -> float:
    """A block takes its slices one after another; a multiprocessor takes those of all its blocks."""
    alone = wave.slices * costs.alone_ns + wave.starts * costs.start_ns
    return smooth_max(WAVE_SHARPNESS, alone, wave.scheduler_slices * costs.slice_ns + wave.stores * costs.store_ns)
