"""`cp`: asynchronous copies between global and shared memory (PTX ISA, 9.7.9.25 to 9.7.9.27).

`units.async_copies` decides when the copies happen, `units.tile` which bytes a bulk copy moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gemm_ref.ptx.core.access import Accessor, gather, locate_shared
from gemm_ref.ptx.core.decode import Decoder, expect, integer, match_form, require_form
from gemm_ref.ptx.core.machine import Execute, Machine, Mask, Read
from gemm_ref.ptx.core.memory import PARAMETER_SPACING, PARAMETER_WINDOW
from gemm_ref.ptx.text.dtypes import DTYPES, Value, per_lane
from gemm_ref.ptx.text.errors import AsyncFault, MemoryFault, ParseError, Unsupported
from gemm_ref.ptx.text.operands import Address, Negated, Operand, Register, TensorAddress
from gemm_ref.ptx.text.parser import MAP_BYTES, Instruction
from gemm_ref.ptx.units.async_copies import AsyncCopies, BulkBatch, BulkCopies
from gemm_ref.ptx.units.mbarriers import MBarriers
from gemm_ref.ptx.units.tensor_map import PIECE
from gemm_ref.ptx.units.tile import Line, Tile

_KNOWN = {"cp", "async", "bulk", "tensor", "tile", "shared::cluster", "shared::cta", "global", "bulk_group"}
_KNOWN |= {"mbarrier::complete_tx::bytes", "multicast::cluster", "L2::cache_hint", "1d", "2d", "3d", "4d", "5d"}
# For lanes that start copies: the tiles, with the lanes that copy each and where in global memory.
GlobalSide = Callable[[Machine, np.ndarray], Iterator[tuple[Tile | Line, np.ndarray, np.ndarray]]]


def cp(decoder: Decoder, instruction: Instruction) -> Execute:
    """`cp`: `.async` of 4, 8 or 16 bytes, `.async.bulk` and `.async.bulk.tensor`, multicast too, and their groups."""
    require_form(instruction.parts[1] == "async", instruction)
    build = _bulk_copy if instruction.parts[2] == "bulk" else _small_copy
    return build(decoder, instruction)


def _small_copy(decoder: Decoder, instruction: Instruction) -> Execute:
    """`cp.async`: 4, 8 or 16 bytes from global to shared memory, landing at the wait and not before.

    With a source size below the copy's, the rest is filled with zeros and is not read.
    """
    parts = instruction.parts
    if "commit_group" in parts:
        return lambda machine, mask: machine.unit(AsyncCopies).commit(mask)
    if "wait_all" in parts:

        def wait_for_all(machine: Machine, mask: Mask) -> None:
            machine.unit(AsyncCopies).commit(mask)
            machine.unit(AsyncCopies).wait(mask, 0)

        return wait_for_all
    if "wait_group" in parts:
        keep = integer(instruction.operands[0])
        return lambda machine, mask: machine.unit(AsyncCopies).wait(mask, keep)
    if parts[2] == "mbarrier":
        return _arrive_when_landed(decoder, instruction)
    require_form(parts[2] in ("ca", "cg"), instruction)
    to, source, bytes_ = instruction.operands[:3]
    start, size = expect(source, Address), integer(bytes_)
    hinted = "L2::cache_hint" in parts
    extra = instruction.operands[3 : len(instruction.operands) - hinted]
    target = Accessor(decoder, instruction, to, "shared", size, 4)
    if size not in (4, 8, 16) or (parts[2] == "cg" and size != 16):
        raise ParseError(f"{instruction.place}: cp.async.{parts[2]} cannot copy {size} bytes")
    single = [
        Accessor(decoder, instruction, Address(start.base, start.offset + byte), "global", 1, 1) for byte in range(size)
    ]
    whole = Accessor(decoder, instruction, source, "global", size, 4)
    read_size = _bytes_read(decoder, extra[0], size) if extra else None

    def padded(machine: Machine, mask: Mask, wanted: np.ndarray) -> list[np.ndarray]:
        """Return the words of lanes that read `wanted` bytes: at once if that is all of them, else byte by byte."""
        here = machine.access_mask(mask)
        here = np.ones(machine.lanes, bool) if here is None else here
        full, partly = here & (wanted >= size), here & (wanted < size)
        pieces = whole.locate(machine, full, "load")
        values = [np.zeros(machine.lanes, np.uint32) for _ in range(size // 4)]
        if pieces:
            values = [np.where(full, gather(pieces, DTYPES["u32"], word), np.uint32(0)) for word in range(size // 4)]
        for byte in range(int(wanted[partly].max(initial=0))):
            lanes = partly & (wanted > byte)
            found = gather(single[byte].locate(machine, lanes, "load"), DTYPES["u8"], 0).astype(np.uint32)
            values[byte // 4] |= np.where(lanes, found << np.uint32(8 * (byte % 4)), np.uint32(0))
        return values

    def execute(machine: Machine, mask: Mask) -> None:
        places = target.locate(machine, mask, "async store")
        wanted = None if read_size is None else read_size(machine)
        if wanted is None or (wanted.ndim == 0 and wanted >= size):
            pieces = whole.locate(machine, mask, "load")
            values = [gather(pieces, DTYPES["u32"], word) for word in range(size // 4)] if pieces else []
        else:
            values = padded(machine, mask, per_lane(wanted, machine.lanes))
        for piece in places:
            access = target.access(machine, "async store", piece.lanes) if machine.observers else None
            machine.unit(AsyncCopies).start(access, piece, values)

    return execute


def _bytes_read(decoder: Decoder, operand: Operand, size: int) -> Read:
    """Return a reader of the bytes that a copy of `size` reads: an operand, or none by a predicate (`ignore-src`)."""
    named = decoder.named(operand.register if isinstance(operand, Negated) else operand)
    if not isinstance(named, Register) or decoder.dtype_of(named) != np.bool_:
        return decoder.source(operand, DTYPES["u32"])
    ignores = decoder.source(operand, DTYPES["pred"])
    return lambda machine: np.where(ignores(machine), np.uint32(0), np.uint32(size))[()]


def _arrive_when_landed(decoder: Decoder, instruction: Instruction) -> Execute:
    """Build `cp.async.mbarrier.arrive`: each lane arrives when its copies so far have completed, as late as possible.

    Without `.noinc` it increases the pending count first, so that its arrival leaves the count unchanged.
    """
    match_form(r"cp\.async\.mbarrier\.arrive(\.noinc)?(\.shared|\.shared::cta)?\.b64", instruction)
    place, awaited = decoder.place(instruction.operands[0]), 0 if "noinc" in instruction.parts else 1

    def execute(machine: Machine, mask: Mask) -> None:
        lanes = np.flatnonzero(machine.lanes_of(mask))
        if lanes.size:
            barriers, copies = machine.unit(MBarriers), machine.unit(AsyncCopies)
            numbers = barriers.numbers(instruction, lanes, place(machine))
            barriers.tell_use(instruction, lanes, numbers)
            barriers.defer(instruction, lanes, numbers, awaited, copies.make_landing())

    return execute


def _bulk_copy(decoder: Decoder, instruction: Instruction) -> Execute:
    """Build `cp.async.bulk`, its `.tensor` form and its groups."""
    parts = instruction.parts
    if "prefetch" in parts:
        return lambda machine, mask: None  # into the L2 cache
    if "commit_group" in parts:
        return lambda machine, mask: machine.unit(BulkCopies).commit(machine.lanes_of(mask))
    if "wait_group" in parts:
        keep, reads_only = integer(instruction.operands[0]), "read" in parts
        return lambda machine, mask: machine.unit(BulkCopies).wait(machine.lanes_of(mask), keep, reads_only)
    spaces = [part for part in parts if part in ("global", "shared::cluster", "shared::cta")]
    loads = spaces[:1] != ["global"]
    known = set(parts) <= _KNOWN and len(spaces) == 2 and "global" in spaces
    require_form(known and loads == ("mbarrier::complete_tx::bytes" in parts), instruction)
    return _load(decoder, instruction) if loads else _store(decoder, instruction)


def _load(decoder: Decoder, instruction: Instruction) -> Execute:
    """Build a copy to shared memory that completes at an mbarrier: `[to], [from], (size,) [mbarrier], (mask)`."""
    to, source, *others = instruction.operands
    size = None if isinstance(source, TensorAddress) else others.pop(0)
    global_side = _global_side(decoder, instruction, source, size)
    to_place, barrier_place = decoder.place(to), decoder.place(others[0])
    multicast = "multicast::cluster" in instruction.parts
    block_mask = decoder.source(others[1], DTYPES["u16"]) if multicast else None
    align = 16 if size else 128

    def execute(machine: Machine, mask: Mask) -> None:
        for tile, lanes, where in global_side(machine, np.flatnonzero(machine.lanes_of(mask))):
            start(machine, tile, lanes, where)

    def start(machine: Machine, tile: Tile | Line, lanes: np.ndarray, where: np.ndarray) -> None:
        if isinstance(tile, Tile) and (where[:, 0] * tile.element_size % PIECE).any():
            raise AsyncFault(
                f"{instruction.origin}: {machine.describe_lane(int(lanes[0]))}: the first column of a tile that is "
                f"loaded begins at a multiple of {PIECE} bytes (an H100 says 'illegal instruction' to another), and it "
                f"is {int(where[0, 0])}, of {tile.element_size} bytes each"
            )
        blocks, offsets = locate_shared(machine, instruction, lanes, to_place(machine), tile.bytes, align)
        barriers = machine.unit(MBarriers).numbers(instruction, lanes, barrier_place(machine))
        per_block = max(machine.shared.stride // 8, 1)
        if (barriers // per_block != blocks).any():
            raise AsyncFault(
                f"{instruction.origin}: the mbarrier is not in the block whose shared memory the copy goes to"
            )
        if block_mask is not None:
            entries, blocks = _receivers(machine, instruction, lanes, block_mask(machine))
            barriers = barriers[entries] % per_block + blocks * per_block
            lanes, where, offsets = lanes[entries], where[entries], offsets[entries]
        machine.unit(MBarriers).tell_use(instruction, lanes, barriers)
        machine.unit(BulkCopies).load(BulkBatch(instruction, tile, lanes, where, blocks, offsets, barriers))

    return execute


def _receivers(
    machine: Machine, instruction: Instruction, lanes: np.ndarray, mask: Value
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each bit that is set in the lanes' masks the index of its lane, and the block it stands for."""
    size = int(np.prod(machine.launch.cluster))
    bits = per_lane(mask, machine.lanes)[lanes].astype(np.int64)
    if (bits >> size).any() or (bits == 0).any():
        raise AsyncFault(
            f"{instruction.origin}: a multicast to blocks {int(bits.max()):#x} (one bit each) of a cluster of {size}"
        )
    entries, ranks = np.nonzero(bits[:, None] >> np.arange(size) & 1)
    return entries, machine.block_index[lanes[entries]] // size * size + ranks


def _store(decoder: Decoder, instruction: Instruction) -> Execute:
    """Build a copy to global memory, in the thread's bulk group: `[to], [from], (size)`."""
    to, source, *size = instruction.operands
    global_side = _global_side(decoder, instruction, to, size[0] if size else None)
    place = decoder.place(source)
    align = 128 if isinstance(to, TensorAddress) else 16

    def execute(machine: Machine, mask: Mask) -> None:
        copies = machine.unit(BulkCopies)
        for tile, lanes, where in global_side(machine, np.flatnonzero(machine.lanes_of(mask))):
            blocks, offsets = locate_shared(machine, instruction, lanes, place(machine), tile.bytes, align)
            copies.store(BulkBatch(instruction, tile, lanes, where, blocks, offsets, copies.groups(lanes)))

    return execute


def _global_side(decoder: Decoder, instruction: Instruction, operand: Operand, size: Operand) -> GlobalSide:
    """Return what yields the tiles of lanes: for each tensor map its tile, the lanes, and their coordinates."""
    if isinstance(operand, Address):
        return _line(decoder, instruction, operand, decoder.source(size, DTYPES["u32"]))
    tiled = expect(operand, TensorAddress)
    rank = next((int(part[0]) for part in instruction.parts if part in {f"{n}d" for n in range(1, 6)}), 0)
    if len(tiled.coordinates) != rank:
        raise ParseError(f"{instruction.origin}: {rank} coordinates are needed")
    map_ = decoder.place(tiled.map)
    reads = [decoder.source(coordinate, DTYPES["s32"]) for coordinate in tiled.coordinates]

    def tensor(machine: Machine, lanes: np.ndarray) -> Iterator[tuple[Tile, np.ndarray, np.ndarray]]:
        addresses = per_lane(map_(machine), machine.lanes)[lanes]
        where = np.stack([per_lane(read(machine), machine.lanes)[lanes] for read in reads], axis=1).astype(np.int64)
        for address in np.unique(addresses):
            chosen = addresses == address
            tile = tile_at(machine, int(address), int(lanes[chosen][0]))
            tile.require_rank(rank, instruction)
            yield tile, lanes[chosen], where[chosen]

    def tile_at(machine: Machine, address: int, lane: int) -> Tile:
        number, within = divmod(address - PARAMETER_WINDOW, PARAMETER_SPACING)
        tiles = machine.parameters[number] if 0 <= number < len(machine.parameters) else None
        if not isinstance(tiles, list) or within % MAP_BYTES or within // MAP_BYTES >= len(tiles):
            raise MemoryFault(
                f"{instruction.origin}: {machine.describe_lane(lane)}: there is no tensor map at {address:#x}; it must "
                "be a kernel parameter (__grid_constant__)"
            )
        return tiles[within // MAP_BYTES]

    return tensor


def _line(decoder: Decoder, instruction: Instruction, address: Address, size: Read) -> GlobalSide:
    place = decoder.place(address)

    def line(machine: Machine, lanes: np.ndarray) -> Iterator[tuple[Line, np.ndarray, np.ndarray]]:
        sizes = np.unique(per_lane(size(machine), machine.lanes)[lanes])
        if sizes.size > 1:
            raise Unsupported(f"{instruction.origin}: lanes that copy different sizes in one instruction")
        where = per_lane(place(machine), machine.lanes)[lanes].astype(np.int64)
        if sizes[0] % 16 or (where % 16).any():
            raise MemoryFault(f"{instruction.origin}: a bulk copy's size and address are multiples of 16 bytes")
        line = Line(int(sizes[0]), instruction)
        line.require_inside(machine, lanes, where)
        yield line, lanes, where[:, None]

    return line
