"""Instructions that touch memory: ld, st, atom, red, and cp.async with its groups (PTX ISA, 9.7.9 and 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.decode import Decoder, Execute, Read, dtype_named
from gemm_ref.ptx.errors import MemoryFault, ParseError, Unsupported
from gemm_ref.ptx.memory import LOCAL_WINDOW, SHARED_WINDOW, Block, Footprint
from gemm_ref.ptx.observe import Access
from gemm_ref.ptx.parser import Address, Instruction, Vector
from gemm_ref.ptx.types import DTYPES, UNSIGNED, Value

_SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "local": "local", "const": "global"}
_BEFORE_WINDOW = 1 << 32
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
# Ordering and caching change neither what one thread reads back nor, in lockstep, what another sees.
_HINTS = {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "nc"}
_HINTS |= {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "noftz"}


@dataclass(frozen=True)
class Piece:
    """The lanes of an access that fall into one memory block: all lanes where `lanes` is None."""

    block: Block
    start: int  # with `index`, the element of block.view(width) that a lane touches first: index + start
    index: Value
    lanes: np.ndarray | None

    def view(self, width: int, element: int = 0) -> np.ndarray:
        """The block's elements of `width` bytes, such that `index` finds the lanes' element number `element`."""
        return self.block.view(width)[self.start + element :]


@dataclass
class PendingCopy:
    """A cp.async that was issued: it lands when its lanes wait for its group."""

    place: Piece
    words: list[Value]
    lanes: np.ndarray | None
    group: Value  # number of the lane's cp.async group it belongs to


class Accessor:
    """Turns the address operand of one instruction into pieces of memory, with all checks."""

    def __init__(self, decoder: Decoder, instruction: Instruction, address: Address, space: str, size: int, width: int):
        self.instruction = instruction
        self.offset = address.offset
        self.space = space
        self.size = size  # bytes a lane
        self.width = width  # bytes of one element of a vector access
        self.base = decoder.address(address)

    def locate(self, machine, mask: np.ndarray | None, kind: str) -> list[Piece]:
        """Check the access and tell observers of it; empty when no lane takes part."""
        footprint = machine.footprint(self.base(machine))
        offset, space = self.offset, self.space
        active = machine.access_mask(mask)
        every = footprint
        if active is not None:
            if not active.any():
                return []
            if not footprint.uniform:  # lanes that take no part may hold any address
                footprint = footprint.among(active)
        if space == "generic":
            space, offset = self._resolve_generic(footprint)
        if machine.observers:
            addresses = every.addresses + offset
            machine.observe(Access(self.instruction, kind, space, self.size, addresses, active, machine))
        if not ((footprint.low_bits | offset) & (self.size - 1)):
            low, high = footprint.low + offset, footprint.high + offset
            for block in machine.blocks(space):
                if block.holds(low, high, self.size):
                    start, index = offset // self.width, footprint.index(block, self.width)
                    if start < 0:  # a view cannot begin before its block
                        start, index = 0, index + start
                    return [Piece(block, start, index, active)]
        return self._locate_lane_by_lane(machine, footprint, offset, space, active)

    def _locate_lane_by_lane(self, machine, footprint: Footprint, offset: int, space: str, active) -> list[Piece]:
        """The access again when its lanes are not all in bounds of one block."""
        addresses = np.broadcast_to(footprint.addresses, machine.lanes) + offset
        waiting = np.ones(machine.lanes, bool) if active is None else active.copy()
        misaligned = waiting & ((addresses & (self.size - 1)) != 0)
        if misaligned.any():
            self._fault(machine, addresses, misaligned, space, f"is not at a multiple of {self.size}")
        pieces = []
        for block in machine.blocks(space):
            inside = waiting & (addresses >= block.first) & (addresses + self.size <= block.first + block.size)
            if inside.any():
                safe = np.where(inside, addresses, addresses[np.argmax(inside)])
                pieces.append(Piece(block, 0, block.index(safe, self.width), inside))
                waiting &= ~inside
        if waiting.any():
            self._fault(machine, addresses, waiting, space, "is out of bounds")
        return pieces

    def _resolve_generic(self, footprint: Footprint) -> tuple[str, int]:
        """The state space that generic addresses lie in, and the offset that makes them addresses of that space."""
        space, window = _space_of(footprint.low)
        if _space_of(footprint.high) != (space, window):
            raise Unsupported(f"{self.instruction.place}: one instruction whose lanes access different state spaces")
        return space, self.offset - window

    def _fault(self, machine, addresses: np.ndarray, wrong: np.ndarray, space: str, what: str) -> None:
        lane = int(np.argmax(wrong))
        address = int(addresses[lane])
        if space == "global":
            where = machine.memory.describe(address)
        else:
            block = machine.blocks(space)[0]
            where = f"at byte {address} of {block.name} ({block.size} bytes)"
        raise MemoryFault(
            f"{self.instruction.place}: {machine.describe_lane(lane)} accesses {self.size} bytes {where}, which {what}"
            f"; {int(wrong.sum())} lanes do (address {address:#x})"
        )


def _space_of(address: int) -> tuple[str, int]:
    """The state space that a generic address lies in, and where that space's window begins."""
    # a little before a window belongs to it: a base below an array that a positive offset brings back
    for space, window in (("local", LOCAL_WINDOW), ("shared", SHARED_WINDOW)):
        if address >= window - _BEFORE_WINDOW:
            return space, window
    return "global", 0


def _parse(instruction: Instruction) -> tuple[str, int, np.dtype]:
    """Space, vector length and element type of an ld or st; refuses modifiers that are not mere hints."""
    space, count = "generic", 1
    for part in instruction.parts[1:-1]:
        if part in _SPACES:
            space = _SPACES[part]
        elif part in _VECTORS:
            count = _VECTORS[part]
        elif part not in _HINTS and not part.startswith(("L1::", "L2::")):
            raise Unsupported(f"{instruction.place}: the reference GPU has no modifier .{part} here")
    return space, count, dtype_named(instruction)


def load(decoder: Decoder, instruction: Instruction) -> Execute:
    """`ld`: from memory into one register or a vector of them."""
    destination, address = instruction.operands[:2]
    if "param" in instruction.parts:
        read, write = decoder.parameter(address, dtype_named(instruction)), decoder.destination(destination)
        return lambda machine, mask: write(machine, read(machine), mask)
    space, count, dtype = _parse(instruction)
    accessor = Accessor(decoder, instruction, address, space, count * dtype.itemsize, dtype.itemsize)
    targets = destination.items if isinstance(destination, Vector) else (destination,)
    writes = [decoder.destination(target) if target is not None else None for target in targets]

    def execute(machine, mask: np.ndarray | None) -> None:
        pieces = accessor.locate(machine, mask, "load")
        for element, write in enumerate(writes):
            if write is not None and pieces:
                write(machine, _gather(pieces, dtype, element), mask)

    return execute


def _gather(pieces: list[Piece], dtype: np.dtype, element: int) -> Value:
    values = None
    for piece in pieces:
        # `clip` is the fast mode of take; the access is known to be in bounds
        found = piece.view(dtype.itemsize, element).take(piece.index, mode="clip").view(dtype)
        values = found if values is None else np.where(piece.lanes, found, values)
    return values


def store(decoder: Decoder, instruction: Instruction) -> Execute:
    """`st`: from one register or a vector of them to memory."""
    address, source = instruction.operands[:2]
    space, count, dtype = _parse(instruction)
    accessor = Accessor(decoder, instruction, address, space, count * dtype.itemsize, dtype.itemsize)
    sources = source.items if isinstance(source, Vector) else (source,)
    reads = [decoder.source(item, UNSIGNED[dtype.itemsize]) for item in sources]

    def execute(machine, mask: np.ndarray | None) -> None:
        values = [read(machine) for read in reads]
        for piece in accessor.locate(machine, mask, "store"):
            for element, value in enumerate(values):
                scatter(piece.view(dtype.itemsize, element), piece.index, value, piece.lanes)

    return execute


def scatter(view: np.ndarray, index: Value, value: Value, lanes: np.ndarray | None) -> None:
    """Write the lanes' values; of several lanes at one place the last wins, as one of them does on a GPU."""
    if lanes is not None:
        if not lanes.any():
            return
        index = index[lanes] if index.ndim else index
        value = value[lanes] if value.ndim else value
    if index.ndim == 0 and value.ndim:
        value = value[-1]
    view[index] = value


# --- atomics -------------------------------------------------------------------------------------------------

_UPDATES: dict[str, Callable[[Value, Value], Value]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
}


def atomic(decoder: Decoder, instruction: Instruction) -> Execute:
    """`atom` and `red`: lanes one after the other, in lane order, each sees what those before it did."""
    returns = instruction.parts[0] == "atom"
    operands = instruction.operands[1:] if returns else instruction.operands
    space, operation = "generic", None
    for part in instruction.parts[1:-1]:
        if part in _SPACES:
            space = _SPACES[part]
        elif part in _UPDATES or part == "cas":
            operation = part
        elif part not in _HINTS:
            raise Unsupported(f"{instruction.place}: the reference GPU has no modifier .{part} here")
    if operation is None:
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    dtype = dtype_named(instruction)
    accessor = Accessor(decoder, instruction, operands[0], space, dtype.itemsize, dtype.itemsize)
    reads = [decoder.source(operand, dtype) for operand in operands[1 : 3 if operation == "cas" else 2]]
    write = decoder.destination(instruction.operands[0]) if returns and instruction.operands[0] is not None else None

    def execute(machine, mask: np.ndarray | None) -> None:
        values = [np.broadcast_to(read(machine), machine.lanes) for read in reads]
        old = np.zeros(machine.lanes, dtype)
        for piece in accessor.locate(machine, mask, "atomic"):
            memory = piece.view(dtype.itemsize).view(dtype)
            index = np.broadcast_to(piece.index, machine.lanes)
            lanes = np.arange(machine.lanes) if piece.lanes is None else np.flatnonzero(piece.lanes)
            for group in _collision_free(index, lanes):
                where = index[group]
                old[group] = memory[where]
                if operation == "cas":
                    memory[where] = np.where(old[group] == values[0][group], values[1][group], old[group])
                else:
                    memory[where] = _UPDATES[operation](old[group], values[0][group])
        if write is not None:
            write(machine, old, mask)

    return execute


def _collision_free(index: np.ndarray, lanes: np.ndarray) -> list[np.ndarray]:
    """Split lanes into groups that touch each place once, keeping lane order at each place."""
    groups = []
    while lanes.size:
        _, first = np.unique(index[lanes], return_index=True)
        groups.append(lanes[np.sort(first)])
        lanes = np.delete(lanes, first)
    return groups


# --- cp.async ------------------------------------------------------------------------------------------------


def async_copy(decoder: Decoder, instruction: Instruction) -> Execute:
    """`cp.async`: 4, 8 or 16 bytes from global to shared memory, landing at the wait and not before.

    With a source size below the copy's, the rest is filled with zeros and is not read.
    """
    parts = instruction.parts
    if "commit_group" in parts:
        return _commit
    if "wait_all" in parts:
        return lambda machine, mask: (_commit(machine, mask), _wait(machine, mask, 0))
    if "wait_group" in parts:
        keep = instruction.operands[0].value
        return lambda machine, mask: _wait(machine, mask, keep)
    if parts[2] not in ("ca", "cg") or "mbarrier" in parts:
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    to, source, bytes_ = instruction.operands[:3]
    size = bytes_.value
    hinted = "L2::cache_hint" in parts
    extra = instruction.operands[3 : len(instruction.operands) - hinted]
    target = Accessor(decoder, instruction, to, "shared", size, 4)
    if size not in (4, 8, 16) or (parts[2] == "cg" and size != 16):
        raise ParseError(f"{instruction.place}: cp.async.{parts[2]} copies no {size} bytes")
    single = [
        Accessor(decoder, instruction, Address(source.base, source.offset + byte), "global", 1, 1)
        for byte in range(size)
    ]
    whole = Accessor(decoder, instruction, source, "global", size, 4)
    read_size: Read | None = decoder.source(extra[0], DTYPES["u32"]) if extra else None

    def padded(machine, mask: np.ndarray | None, wanted: np.ndarray) -> list[np.ndarray]:
        """The words of lanes that read `wanted` bytes: at once where that is all of them, else byte by byte."""
        here = machine.access_mask(mask)
        here = np.ones(machine.lanes, bool) if here is None else here
        full, partly = here & (wanted >= size), here & (wanted < size)
        pieces = whole.locate(machine, full, "load")
        values = [np.zeros(machine.lanes, np.uint32) for _ in range(size // 4)]
        if pieces:
            values = [np.where(full, _gather(pieces, DTYPES["u32"], word), np.uint32(0)) for word in range(size // 4)]
        for byte in range(int(wanted[partly].max(initial=0))):
            lanes = partly & (wanted > byte)
            found = _gather(single[byte].locate(machine, lanes, "load"), DTYPES["u8"], 0).astype(np.uint32)
            values[byte // 4] |= np.where(lanes, found << np.uint32(8 * (byte % 4)), np.uint32(0))
        return values

    def execute(machine, mask: np.ndarray | None) -> None:
        places = target.locate(machine, mask, "async store")
        wanted = None if read_size is None else read_size(machine)
        if wanted is None or (wanted.ndim == 0 and wanted >= size):
            pieces = whole.locate(machine, mask, "load")
            values = [_gather(pieces, DTYPES["u32"], word) for word in range(size // 4)] if pieces else []
        else:
            values = padded(machine, mask, np.broadcast_to(wanted, machine.lanes))
        for piece in places:
            machine.pending.append(PendingCopy(piece, values, piece.lanes, machine.groups))

    return execute


def _commit(machine, mask: np.ndarray | None) -> None:
    machine.groups = machine.groups + 1 if mask is None else machine.groups + mask


def _wait(machine, mask: np.ndarray | None, keep: int) -> None:
    """Land the copies of all but the latest `keep` groups of each waiting lane."""
    still = []
    for copy in machine.pending:
        done = np.asarray(copy.group < machine.groups - keep)
        if mask is not None:
            done = done & mask
        if copy.lanes is not None:
            done = done & copy.lanes
        if done.any():
            lanes = None if done.all() else np.broadcast_to(done, machine.lanes)
            for word, value in enumerate(copy.words):
                scatter(copy.place.view(4, word), copy.place.index, value, lanes)
        if not done.all():
            rest = np.broadcast_to(~done, machine.lanes)
            copy.lanes = rest if copy.lanes is None else copy.lanes & rest
            if copy.lanes.any():
                still.append(copy)
    machine.pending = still


def matrix(decoder: Decoder, instruction: Instruction) -> Execute:
    """`ldmatrix` and `stmatrix` of 8 x 8 elements of 16 bits: lane l holds 32 bits, word l % 4 of row l / 4.

    Lane 8 j + r gives the address of row r of matrix j, 16 bytes of shared memory.
    """
    loads = instruction.parts[0] == "ldmatrix"
    known = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}
    if set(instruction.parts[1:]) - known:
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    registers, address = instruction.operands if loads else instruction.operands[::-1]
    items = registers.items if isinstance(registers, Vector) else (registers,)
    access = decoder.destination if loads else lambda item: decoder.source(item, DTYPES["u32"])
    accessors = [access(item) for item in items]
    rows = Accessor(decoder, instruction, address, "shared", 16, 4)
    transposed = "trans" in instruction.parts

    def execute(machine, mask: np.ndarray | None) -> None:
        active = machine.access_mask(mask)
        if machine.launch.threads % 32 or (active is not None and _parted(active)):
            raise Unsupported(f"{instruction.place}: {instruction.name} in a warp of which some lanes are elsewhere")
        places = machine.special("%laneid") < 8 * len(items)  # the lanes that give addresses
        rows.locate(machine, places if mask is None else places & mask, "load" if loads else "store")
        block, footprint = machine.blocks("shared")[0], machine.footprint(rows.base(machine))
        for j, accessor in enumerate(accessors):
            # 32 bits at once; transposed, two elements of a column
            parts = [(j, 0), (j, 1)] if transposed else [(j, None)]
            start = rows.offset // (2 if transposed else 4)
            view = block.view(2 if transposed else 4)[max(start, 0) :]
            index = [
                footprint.cached(part, lambda part=part: _matrix_index(machine, footprint, *part)) for part in parts
            ]
            if start < 0:  # a view cannot begin before its block
                index = [i + start for i in index]
            if loads:
                found = [view.take(i, mode="clip").astype(np.uint32) for i in index]
                accessor(machine, found[0] if len(found) == 1 else found[0] | found[1] << np.uint32(16), mask)
            else:
                value = accessor(machine)
                for shift, i in zip((0, 16), index, strict=False):
                    scatter(view, i, (value >> np.uint32(shift)).astype(view.dtype), active)

    return execute


def _matrix_index(machine, footprint: Footprint, j: int, half: int | None) -> np.ndarray:
    """Where each lane finds its part of matrix j: its word, or half of one of a transposed matrix."""
    lane = machine.special("%laneid").astype(np.int64)
    first = np.arange(machine.lanes) - lane  # lane 0 of each lane's warp, whose lanes give the addresses
    if half is None:
        row, byte, width = lane // 4, 4 * (lane % 4), 4
    else:
        row, byte, width = 2 * (lane % 4) + half, 2 * (lane // 4), 2
    addresses = np.broadcast_to(footprint.addresses, machine.lanes)[first + 8 * j + row] + byte
    return machine.blocks("shared")[0].index(addresses, width)


def _parted(active: np.ndarray) -> bool:
    warps = active.reshape(-1, 32)
    return bool((warps.any(1) & ~warps.all(1)).any())


LOAD_STORE = {
    "ld": load,
    "ldu": load,
    "st": store,
    "atom": atomic,
    "red": atomic,
    "ldmatrix": matrix,
    "stmatrix": matrix,
}
