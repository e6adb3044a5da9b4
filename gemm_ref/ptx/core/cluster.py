"""Clusters of blocks: who is in them, each other's shared memory, their barrier (PTX ISA, 9.7.13.4 and chapter 10).

A `shared::cluster` address below REMOTE is one of the executing block's own shared memory, as every `shared::cta`
address is; above, its upper bits say whose it is. `mapa` makes such addresses.
"""

from __future__ import annotations

import math

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core.coordinates import coordinates
from gemm_ref.ptx.core.decode import Control, Decoder, Execute
from gemm_ref.ptx.core.events import Synchronisation
from gemm_ref.ptx.core.memory import SHARED_WINDOW
from gemm_ref.ptx.text.dtypes import DTYPES, UNSIGNED, Value, per_lane
from gemm_ref.ptx.text.errors import AsyncFault, MemoryFault, Unsupported
from gemm_ref.ptx.text.parser import Instruction

_RANK_BITS = 24  # where a remote address has its block's rank, plus 1
REMOTE = 1 << _RANK_BITS
MAX_BLOCKS = 16  # of a cluster, the size that is not portable


def check_shape(launch: Launch) -> None:
    """Raise ValueError unless the grid is made of whole clusters of at most MAX_BLOCKS blocks."""
    if min(launch.cluster) < 1 or math.prod(launch.cluster) > MAX_BLOCKS:
        raise ValueError(f"a cluster has 1 to {MAX_BLOCKS} blocks, and {launch.cluster} is not that")
    if any(blocks % size for blocks, size in zip(launch.grid, launch.cluster, strict=True)):
        raise ValueError(f"a grid of {launch.grid} blocks does not divide into clusters of {launch.cluster}")


def block_order(launch: Launch) -> np.ndarray:
    """The linear numbers of all blocks, cluster after cluster and in the order of their ranks in each."""
    linear = np.arange(math.prod(launch.grid))
    if math.prod(launch.cluster) == 1:
        return linear
    inner, outer = _coordinates(launch, linear)
    clusters = [blocks // size for blocks, size in zip(launch.grid, launch.cluster, strict=True)]
    rank = _linear(inner, launch.cluster)
    return np.argsort(_linear(outer, clusters) * math.prod(launch.cluster) + rank)


def special(launch: Launch, block_of_lane: np.ndarray, register: str, axis: str) -> np.ndarray | int:
    """The value of a special register about clusters, without its percent sign."""
    if register == "is_explicit_cluster":
        return np.full(block_of_lane.size, math.prod(launch.cluster) > 1)
    if register == "cluster_nctarank":
        return math.prod(launch.cluster)
    inner, outer = _coordinates(launch, block_of_lane)
    if register == "cluster_ctarank":
        return _linear(inner, launch.cluster)
    which = "xyz".index(axis)
    return {
        "cluster_ctaid": inner[which],
        "cluster_nctaid": launch.cluster[which],
        "clusterid": outer[which],
        "nclusterid": launch.grid[which] // launch.cluster[which],
    }[register]


def _coordinates(launch: Launch, linear: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """x, y, z of each block in its cluster, and of its cluster in the grid."""
    places = coordinates(linear, launch.grid)
    inner = [place % size for place, size in zip(places, launch.cluster, strict=True)]
    return inner, [place // size for place, size in zip(places, launch.cluster, strict=True)]


def _linear(places: list[np.ndarray], extent) -> np.ndarray:
    return places[0] + extent[0] * (places[1] + extent[1] * places[2])


# --- addresses -----------------------------------------------------------------------------------------------


def locate(
    machine, instruction: Instruction, lanes: np.ndarray, addresses: Value, size: int, align: int
) -> tuple[np.ndarray, np.ndarray]:
    """(block of the machine, byte in its shared memory) for lane numbers that access `size` bytes at these addresses.

    Addresses: of all lanes, or one for all; shared, shared::cluster or generic. Raises MemoryFault for one that is
    out of bounds or misaligned, and AsyncFault for one in a block whose threads have all left.
    """
    own = machine.block_index[lanes]
    chosen = per_lane(addresses.view(UNSIGNED[addresses.dtype.itemsize]).astype(np.int64), machine.lanes)[lanes]
    offsets = np.where(chosen >= SHARED_WINDOW, chosen - SHARED_WINDOW, chosen)
    rank, offsets = (offsets >> _RANK_BITS) - 1, offsets & REMOTE - 1
    blocks_of = math.prod(machine.launch.cluster)
    wrong = (rank >= blocks_of) | (offsets + size > machine.shared.size) | (offsets % align != 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise MemoryFault(
            f"{instruction.origin}: {machine.describe_lane(int(lanes[at]))} accesses {size} bytes at byte "
            f"{int(offsets[at])} of shared memory ({machine.shared.size} bytes; address {int(chosen[at]):#x}), which "
            f"is {'not at a multiple of ' + str(align) if offsets[at] % align else 'out of bounds'}"
        )
    blocks = np.where(rank < 0, own, own // blocks_of * blocks_of + rank)
    if (remote := blocks != own).any():
        require_running(machine, instruction, blocks[remote])
    return blocks, offsets


def require_running(machine, instruction: Instruction, blocks: np.ndarray) -> None:
    """Raise AsyncFault if all threads of one of these blocks of the machine have left: its shared memory is gone."""
    running = np.zeros(int(machine.block_index[-1]) + 1, bool)
    running[machine.block_index[machine.living()]] = True
    if not running[blocks].all():
        block = int(blocks[np.argmin(running[blocks])])
        lane = int(np.argmax(machine.block_index == block))
        raise AsyncFault(
            f"{instruction.origin}: shared memory of {machine.describe_lane(lane).split(' thread')[0]} is accessed by "
            "another block of its cluster after all of its threads have left: let the cluster meet at a barrier "
            "(barrier.cluster) before its blocks leave"
        )


def map_address(decoder: Decoder, instruction: Instruction) -> Execute:
    """`mapa`: the address of the same place in the shared memory of the block of a given rank."""
    parts = instruction.parts
    if instruction.name not in {f"mapa{space}.{kind}" for space in ("", ".shared::cluster") for kind in ("u32", "u64")}:
        raise Unsupported(f"{instruction.origin}: the reference GPU has no {instruction.name}")
    dtype = DTYPES[parts[-1]]
    window = 0 if "shared::cluster" in parts else SHARED_WINDOW
    if window and dtype.itemsize < 8:
        raise Unsupported(f"{instruction.origin}: generic addresses have 64 bits here: use mapa.u64")
    write = decoder.destination(instruction.operands[0])
    address, rank = (
        decoder.source(instruction.operands[1], dtype),
        decoder.source(instruction.operands[2], DTYPES["u32"]),
    )

    def execute(machine, mask: np.ndarray | None) -> None:
        offset, to = address(machine).astype(np.int64) - window, rank(machine).astype(np.int64)
        offset = np.where(offset >= REMOTE, offset & REMOTE - 1, offset)
        lanes = machine.access_mask(mask)
        chosen = per_lane(to, machine.lanes)
        if (chosen if lanes is None else chosen[lanes]).max(initial=0) >= math.prod(machine.launch.cluster):
            raise MemoryFault(f"{instruction.origin}: the cluster {machine.launch.cluster} has no block of that rank")
        write(machine, np.asarray(window + (offset | to + 1 << _RANK_BITS)).astype(dtype), mask)

    return execute


def rank_of_address(decoder: Decoder, instruction: Instruction) -> Execute:
    """`getctarank`: the rank of the block in whose shared memory an address is."""
    window = 0 if "shared::cluster" in instruction.parts else SHARED_WINDOW
    dtype = DTYPES["u64"] if window else DTYPES[instruction.parts[-1]]
    write, read = decoder.destination(instruction.operands[0]), decoder.source(instruction.operands[1], dtype)

    def execute(machine, mask: np.ndarray | None) -> None:
        offset = read(machine).astype(np.int64) - window
        own = machine.special("%cluster_ctarank").astype(np.int64)
        write(machine, np.where(offset < REMOTE, own, (offset >> _RANK_BITS) - 1).astype(np.uint32), mask)

    return execute


# --- the barrier ---------------------------------------------------------------------------------------------

KEY = ("cluster",)


class ClusterBarrier:
    """The barrier of each cluster of a machine: a phase ends when each thread that has not left has arrived in it."""

    def __init__(self, machine) -> None:
        self._machine = machine
        self._cluster = machine.block_index // math.prod(machine.launch.cluster)  # of each lane
        self._arrivals = np.zeros(machine.lanes, np.int64)
        self._waits = np.zeros(machine.lanes, np.int64)
        self._open = np.zeros(int(self._cluster[-1]) + 1, np.int64)  # phases that have ended

    def arrive(self, instruction: Instruction, lanes: np.ndarray) -> None:
        if (twice := lanes & (self._arrivals > self._waits)).any():
            raise AsyncFault(
                f"{instruction.origin}: {self._machine.describe_lane(int(np.argmax(twice)))} arrives again at the "
                "cluster's barrier before it has waited for it"
            )
        self._arrivals[lanes] += 1
        self.look()

    def look(self) -> None:
        """End the phases that every thread still running has arrived in, and wake those who wait for it."""
        machine, alive = self._machine, self._machine.living()
        arrived = np.full(self._open.size, np.iinfo(np.int64).max)
        np.minimum.at(arrived, self._cluster[alive], self._arrivals[alive])
        arrived = np.where(arrived == np.iinfo(np.int64).max, self._open, arrived)
        if (ended := arrived > self._open).any():
            self._open = np.maximum(arrived, self._open)
            for observer in machine.observers:
                observer.on_phase([(*KEY, int(number)) for number in np.flatnonzero(ended)], machine)
            if (waiting := machine.waiting_at(KEY)) is not None:
                self._tell(None, waiting & ended[self._cluster], opens=True)
                machine.wake(KEY, waiting & ended[self._cluster])

    def wait(self, instruction: Instruction, lanes: np.ndarray) -> np.ndarray:
        """Who of these lanes must wait."""
        if (unmet := lanes & (self._arrivals == self._waits)).any():
            raise AsyncFault(
                f"{instruction.origin}: {self._machine.describe_lane(int(np.argmax(unmet)))} waits at the cluster's "
                "barrier without having arrived there (barrier.cluster.arrive)"
            )
        self._waits[lanes] += 1
        late = lanes & (self._open[self._cluster] < self._arrivals)
        self._tell(None, lanes & ~late, opens=True)
        return late

    def tell_arrival(self, instruction: Instruction, lanes: np.ndarray) -> None:
        self._tell(instruction, lanes, opens=False)

    def _tell(self, instruction: Instruction | None, lanes: np.ndarray, opens: bool) -> None:
        if not self._machine.observers:
            return
        for number in np.unique(self._cluster[lanes]).tolist():
            some = lanes & (self._cluster == number)
            event = Synchronisation(instruction, (*KEY, number), None, None, opens, some, self._machine)
            for observer in self._machine.observers:
                observer.on_synchronisation(event)


def cluster_barrier(decoder: Decoder, instruction: Instruction) -> Control:
    """`barrier.cluster.arrive` and `.wait`: the threads of all blocks of a cluster meet."""
    parts = set(instruction.parts[2:])
    arrives = "arrive" in parts
    if parts - {"arrive", "wait", "release", "relaxed", "acquire", "aligned"} or not parts & {"arrive", "wait"}:
        raise Unsupported(f"{instruction.origin}: the reference GPU has no {instruction.name}")

    def control(machine, mask: np.ndarray | None, place: int) -> int:
        lanes = machine.lanes_of(mask)
        if arrives:
            machine.cluster_barrier.tell_arrival(instruction, lanes)
            machine.cluster_barrier.arrive(instruction, lanes)
            return place + 1
        late = machine.cluster_barrier.wait(instruction, lanes)
        return machine.park(KEY, late, place + 1) if late.any() else place + 1

    return control


CLUSTER = {"mapa": map_address, "getctarank": rank_of_address}
