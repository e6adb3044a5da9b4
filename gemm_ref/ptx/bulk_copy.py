"""Bulk copies between global and shared memory (PTX ISA, 9.7.9.25 to 9.7.9.27): `cp.async.bulk` and its `.tensor` form.

Copies happen as late as they may. A load reads global memory and lands when a thread waits for its mbarrier and nothing
but bytes is missing there, so what reads the tile earlier reads what was there before. A store reads shared memory when
its thread waits for its group (`.read` or not), so a tile that is overwritten earlier is stored overwritten; it writes
at a wait without `.read`, or when the blocks that run together are done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gemm_ref.ptx import cluster
from gemm_ref.ptx.decode import Decoder, Execute, Read
from gemm_ref.ptx.errors import AsyncFault, MemoryFault, ParseError, Unsupported
from gemm_ref.ptx.memory import PARAMETER_SPACING, PARAMETER_WINDOW
from gemm_ref.ptx.observe import BulkAccess
from gemm_ref.ptx.parser import Address, Instruction, TensorAddress
from gemm_ref.ptx.tile import Line, Tile
from gemm_ref.ptx.types import DTYPES


@dataclass(frozen=True)
class Copies:
    """Copies that one instruction has started, an entry each."""

    instruction: Instruction
    tile: Tile | Line
    lanes: np.ndarray  # numbers of the lanes that started them
    where: np.ndarray  # (entries, rank) coordinates or (entries, 1) addresses in global memory
    blocks: np.ndarray  # of the machine, in whose shared memory the other side is
    offsets: np.ndarray  # bytes there
    barriers: np.ndarray | None = None  # of loads
    groups: np.ndarray | None = None  # of stores: the number of the lane's group
    data: np.ndarray | None = None  # of stores that have read shared memory

    def only(self, chosen: np.ndarray) -> Copies:
        """Some of the entries."""
        names = ("lanes", "where", "blocks", "offsets", "barriers", "groups", "data")
        fields = {name: getattr(self, name) for name in names}
        return replace(self, **{name: field[chosen] for name, field in fields.items() if field is not None})


class BulkCopies:
    """The bulk copies of one machine that have not happened yet."""

    def __init__(self, machine) -> None:
        self._machine = machine
        self._loads: list[Copies] = []
        self._stores: list[Copies] = []
        self._groups = np.zeros(machine.lanes, np.int64)  # that each lane has committed

    # --- loads -----------------------------------------------------------------------------------------------

    def load(self, copies: Copies) -> None:
        self._tell(copies, "async store", started=True)
        self._loads.append(copies)

    def land(self, barriers: np.ndarray) -> None:
        """Loads that signal these barriers land, in the order in which they were started, until a phase ends."""
        machine, still = self._machine, []
        for copies in self._loads:
            chosen = np.isin(copies.barriers, barriers) if barriers.size else np.zeros(copies.lanes.size, bool)
            if chosen.any():
                self._land(copies.only(chosen))
                words = machine.mbarriers.words(copies.instruction, barriers)
                barriers = barriers[(words.pending == 0) & (words.bytes != 0)]
            if not chosen.all():
                still.append(copies.only(~chosen) if chosen.any() else copies)
        self._loads = still

    def _land(self, copies: Copies) -> None:
        machine, tile = self._machine, copies.tile
        if machine.launch.cluster != (1, 1, 1):
            cluster.require_running(machine, copies.instruction, copies.blocks)
        self._tell(copies, "load")
        data = tile.read(machine.memory, copies.where)
        chunks = tile.chunks(copies.offsets) + (copies.blocks * machine.shared.stride // 16)[:, None]
        _sixteens(machine)[chunks] = data
        self._tell(copies, "async store")
        machine.mbarriers.complete(copies.instruction, copies.barriers, np.full(copies.lanes.size, tile.bytes))

    def describe(self, barrier: int) -> str:
        """What is still on its way to a barrier, as the end of a sentence."""
        bytes_ = sum(copies.tile.bytes * int((copies.barriers == barrier).sum()) for copies in self._loads)
        return f" ({bytes_} bytes are on their way)" if bytes_ else ""

    # --- stores ----------------------------------------------------------------------------------------------

    def store(self, copies: Copies) -> None:
        self._tell(copies, "async load", started=True)
        self._stores.append(replace(copies, groups=self._groups[copies.lanes]))

    def commit(self, lanes: np.ndarray) -> None:
        self._groups += lanes

    def wait(self, lanes: np.ndarray, keep: int, reads_only: bool) -> None:
        """These lanes wait for all but their latest `keep` groups, or for their reading of shared memory alone."""
        still = []
        for copies in self._stores:
            done = lanes[copies.lanes] & (copies.groups < self._groups[copies.lanes] - keep)
            if not done.all():
                still.append(copies.only(~done))
            if done.any():
                ready = self._read(copies.only(done))
                if reads_only:
                    still.append(ready)
                else:
                    self._write(ready)
        self._stores = still

    def leave(self, instruction: Instruction, lanes: np.ndarray) -> None:
        """Raise AsyncFault if one of these lanes has started a store that may not have read shared memory yet."""
        for copies in self._stores:
            if copies.data is None and lanes[copies.lanes].any():
                lane = int(copies.lanes[np.argmax(lanes[copies.lanes])])
                raise AsyncFault(
                    f"{copies.instruction.origin}: {self._machine.describe_lane(lane)} leaves at {instruction.place} "
                    "while this store may still be reading shared memory: commit it (cp.async.bulk.commit_group) and "
                    "wait for it (cp.async.bulk.wait_group.read 0)"
                )

    def finish(self) -> None:
        """All threads have left: the stores that have read their tiles write them."""
        for copies in self._stores:
            self._write(copies)
        self._stores = []

    def _read(self, copies: Copies) -> Copies:
        if copies.data is not None:
            return copies
        machine = self._machine
        self._tell(copies, "async load")
        chunks = copies.tile.chunks(copies.offsets) + (copies.blocks * machine.shared.stride // 16)[:, None]
        return replace(copies, data=_sixteens(machine)[chunks])

    def _write(self, copies: Copies) -> None:
        self._tell(copies, "store")
        copies.tile.write(self._machine.memory, copies.where, copies.data)

    def _tell(self, copies: Copies, kind: str, started: bool = False) -> None:
        """Observers hear of each copy by itself, once for each side; of loads into shared memory also at the start."""
        machine, tile = self._machine, copies.tile
        if not machine.observers:
            return
        for entry in range(copies.lanes.size):
            block = int(copies.blocks[entry])
            if kind.startswith("async"):
                space, size, addresses = "shared", 16, tile.chunks(copies.offsets[entry : entry + 1])[0] * 16
            else:
                space, size = "global", tile.element_size
                addresses = tile.addresses(machine.memory, copies.where[entry : entry + 1])
            lane, barrier = int(copies.lanes[entry]), None if copies.barriers is None else int(copies.barriers[entry])
            access = BulkAccess(
                copies.instruction, kind, space, size, addresses, lane, block, started, machine, barrier
            )
            for observer in machine.observers:
                observer.on_bulk(access)


def _sixteens(machine) -> np.ndarray:
    """All shared memory of the machine in pieces of 16 bytes."""
    return machine.shared.data.view(np.uint64).reshape(-1, 2)


# --- the instructions ----------------------------------------------------------------------------------------

_KNOWN = {"cp", "async", "bulk", "tensor", "tile", "shared::cluster", "shared::cta", "global", "bulk_group"}
_KNOWN |= {
    "mbarrier::complete_tx::bytes",
    "multicast::cluster",
    "L2::cache_hint",
    *(f"{rank}d" for rank in range(1, 6)),
}


def bulk_copy(decoder: Decoder, instruction: Instruction) -> Execute:
    """All of `cp.async.bulk`."""
    parts = instruction.parts
    if "prefetch" in parts:
        return lambda machine, mask: None  # into the L2 cache
    if "commit_group" in parts:
        return lambda machine, mask: machine.bulk.commit(machine.lanes_of(mask))
    if "wait_group" in parts:
        keep, reads_only = instruction.operands[0].value, "read" in parts
        return lambda machine, mask: machine.bulk.wait(machine.lanes_of(mask), keep, reads_only)
    spaces = [part for part in parts if part in ("global", "shared::cluster", "shared::cta")]
    loads = spaces[:1] != ["global"]
    if (
        set(parts) - _KNOWN
        or len(spaces) != 2
        or "global" not in spaces
        or loads != ("mbarrier::complete_tx::bytes" in parts)
    ):
        raise Unsupported(f"{instruction.origin}: the reference GPU has no {instruction.name}")
    return _load(decoder, instruction) if loads else _store(decoder, instruction)


def _load(decoder: Decoder, instruction: Instruction) -> Execute:
    """From global to shared memory, completing bytes at an mbarrier: `[to], [from], (size,) [mbarrier], (mask)`."""
    operands = list(instruction.operands)
    to, source = operands[:2]
    global_side = _global_side(decoder, instruction, source, operands[2])
    barrier = operands[2 if isinstance(source, TensorAddress) else 3]
    to_base, barrier_base = decoder.address(to), decoder.address(barrier)
    multicast = "multicast::cluster" in instruction.parts
    following = operands.index(barrier) + 1
    block_mask = decoder.source(operands[following], DTYPES["u16"]) if multicast else None
    align = 128 if isinstance(source, TensorAddress) else 16

    def execute(machine, mask: np.ndarray | None) -> None:
        lanes = np.flatnonzero(machine.lanes_of(mask))
        if not lanes.size:
            return
        tile, where = global_side(machine, lanes)
        place = _plus(to_base(machine), to.offset)
        blocks, offsets = cluster.locate(machine, instruction, lanes, place, tile.shared_bytes, align)
        barriers = machine.mbarriers.numbers(instruction, lanes, _plus(barrier_base(machine), barrier.offset))
        per_block = max(machine.shared.stride // 8, 1)
        if (barriers // per_block != blocks).any():
            raise AsyncFault(
                f"{instruction.origin}: the mbarrier is not in the block whose shared memory the copy goes to"
            )
        if multicast:
            entries, blocks = _receivers(machine, instruction, lanes, block_mask(machine))
            barriers = barriers[entries] % per_block + blocks * per_block
            lanes, where, offsets = lanes[entries], where[entries], offsets[entries]
        machine.bulk.load(Copies(instruction, tile, lanes, where, blocks, offsets, barriers=barriers))

    return execute


def _receivers(machine, instruction: Instruction, lanes: np.ndarray, mask) -> tuple[np.ndarray, np.ndarray]:
    """For each bit that is set in the lanes' masks: which of the lanes, and the block of the machine."""
    size = int(np.prod(machine.launch.cluster))
    bits = np.broadcast_to(mask, machine.lanes)[lanes].astype(np.int64)
    if (bits >> size).any() or (bits == 0).any():
        raise AsyncFault(
            f"{instruction.origin}: a multicast to the blocks {int(bits.max()):#x} (a bit each) of a cluster of {size}"
        )
    entries, ranks = np.nonzero(bits[:, None] >> np.arange(size) & 1)
    return entries, machine.block_index[lanes[entries]] // size * size + ranks


def _store(decoder: Decoder, instruction: Instruction) -> Execute:
    """From shared to global memory, in the thread's bulk group: `[to], [from], (size)`."""
    operands = list(instruction.operands)
    to, source = operands[:2]
    global_side = _global_side(decoder, instruction, to, operands[2] if len(operands) > 2 else None)
    base = decoder.address(source)
    align = 128 if isinstance(to, TensorAddress) else 16

    def execute(machine, mask: np.ndarray | None) -> None:
        lanes = np.flatnonzero(machine.lanes_of(mask))
        if not lanes.size:
            return
        tile, where = global_side(machine, lanes)
        place = _plus(base(machine), source.offset)
        blocks, offsets = cluster.locate(machine, instruction, lanes, place, tile.shared_bytes, align)
        machine.bulk.store(Copies(instruction, tile, lanes, where, blocks, offsets))

    return execute


def _global_side(decoder: Decoder, instruction: Instruction, operand, size):
    """What gives, for lane numbers, the tile that they copy and where it is in global memory."""
    if isinstance(operand, Address):
        return _line(decoder, instruction, operand, decoder.source(size, DTYPES["u32"]))
    rank = next((int(part[0]) for part in instruction.parts if part in {f"{n}d" for n in range(1, 6)}), 0)
    if len(operand.coordinates) != rank:
        raise ParseError(f"{instruction.origin}: {rank} coordinates are wanted")
    base = decoder.address(operand.map)
    reads = [decoder.source(coordinate, DTYPES["s32"]) for coordinate in operand.coordinates]

    def tensor(machine, lanes: np.ndarray) -> tuple[Tile, np.ndarray]:
        addresses = np.unique(np.broadcast_to(_plus(base(machine), operand.map.offset), machine.lanes)[lanes])
        if addresses.size > 1:
            raise Unsupported(f"{instruction.origin}: lanes that name different tensor maps in one instruction")
        number, within = divmod(int(addresses[0]) - PARAMETER_WINDOW, PARAMETER_SPACING)
        tile = machine.parameters[number] if 0 <= number < len(machine.parameters) and not within else None
        if not isinstance(tile, Tile):
            raise MemoryFault(
                f"{instruction.origin}: {machine.describe_lane(int(lanes[0]))}: there is no tensor map at "
                f"{int(addresses[0]):#x}; the reference GPU has them as kernel parameters alone (__grid_constant__)"
            )
        tile.require_rank(rank, instruction)
        where = [np.broadcast_to(read(machine), machine.lanes)[lanes] for read in reads]
        return tile, np.stack(where, axis=1).astype(np.int64)

    return tensor


def _line(decoder: Decoder, instruction: Instruction, address: Address, size: Read):
    base = decoder.address(address)

    def line(machine, lanes: np.ndarray) -> tuple[Line, np.ndarray]:
        sizes = np.unique(np.broadcast_to(size(machine), machine.lanes)[lanes])
        if sizes.size > 1:
            raise Unsupported(f"{instruction.origin}: lanes that copy different sizes in one instruction")
        where = np.broadcast_to(_plus(base(machine), address.offset), machine.lanes)[lanes].astype(np.int64)
        if sizes[0] % 16 or (where % 16).any():
            raise MemoryFault(f"{instruction.origin}: a bulk copy's size and address are multiples of 16 bytes")
        line = Line(int(sizes[0]), instruction)
        line.require_inside(machine, lanes, where)
        return line, where[:, None]

    return line


def _plus(value, offset: int):
    return value + value.dtype.type(offset) if offset >= 0 else value - value.dtype.type(-offset)
