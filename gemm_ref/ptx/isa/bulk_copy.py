"""The instructions of bulk copies (PTX ISA, 9.7.9.25 to 9.7.9.27): `cp.async.bulk` and its `.tensor` form.

`units.bulk_copies` has when the copies happen, `tile` what is copied where.
"""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core import cluster
from gemm_ref.ptx.core.decode import Decoder, Execute, Read
from gemm_ref.ptx.core.memory import PARAMETER_SPACING, PARAMETER_WINDOW
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.errors import AsyncFault, MemoryFault, ParseError, Unsupported
from gemm_ref.ptx.text.parser import Address, Instruction, TensorAddress
from gemm_ref.ptx.units.bulk_copies import Copies
from gemm_ref.ptx.units.tile import Line, Tile

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
        machine.mbarriers.tell_use(instruction, lanes, barriers)
        machine.bulk.load(Copies(instruction, tile, lanes, where, blocks, offsets, barriers=barriers))

    return execute


def _receivers(machine, instruction: Instruction, lanes: np.ndarray, mask) -> tuple[np.ndarray, np.ndarray]:
    """For each bit that is set in the lanes' masks: which of the lanes, and the block of the machine."""
    size = int(np.prod(machine.launch.cluster))
    bits = per_lane(mask, machine.lanes)[lanes].astype(np.int64)
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
        addresses = np.unique(per_lane(_plus(base(machine), operand.map.offset), machine.lanes)[lanes])
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
        where = [per_lane(read(machine), machine.lanes)[lanes] for read in reads]
        return tile, np.stack(where, axis=1).astype(np.int64)

    return tensor


def _line(decoder: Decoder, instruction: Instruction, address: Address, size: Read):
    base = decoder.address(address)

    def line(machine, lanes: np.ndarray) -> tuple[Line, np.ndarray]:
        sizes = np.unique(per_lane(size(machine), machine.lanes)[lanes])
        if sizes.size > 1:
            raise Unsupported(f"{instruction.origin}: lanes that copy different sizes in one instruction")
        where = per_lane(_plus(base(machine), address.offset), machine.lanes)[lanes].astype(np.int64)
        if sizes[0] % 16 or (where % 16).any():
            raise MemoryFault(f"{instruction.origin}: a bulk copy's size and address are multiples of 16 bytes")
        line = Line(int(sizes[0]), instruction)
        line.require_inside(machine, lanes, where)
        return line, where[:, None]

    return line


def _plus(value, offset: int):
    return value + value.dtype.type(offset) if offset >= 0 else value - value.dtype.type(-offset)
