"""Instructions that read and write memory: ld, st, atom, red, ldmatrix (PTX ISA, 9.7.9, 9.7.13 and 9.7.14)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

import numpy as np

from gemm_ref.ptx.core.access import SPACES, Accessor, gather, scatter
from gemm_ref.ptx.core.decode import Decoder, dtype_named, expect, require_form
from gemm_ref.ptx.core.machine import Control, Execute, Machine, Mask, Read, Write
from gemm_ref.ptx.core.memory import SHARED_WINDOW, Footprint
from gemm_ref.ptx.isa.numbers import floats
from gemm_ref.ptx.isa.warp import together
from gemm_ref.ptx.text.dtypes import ALTERNATE, DTYPES, UNSIGNED, Value, per_lane
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.operands import Address, Symbol, items_of
from gemm_ref.ptx.text.parser import Instruction

_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
# In lockstep, ordering and caching change the result of no access.
_HINTS = {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "nc"}
_STRONG = {"relaxed", "acquire", "volatile"}  # loads that may poll for another thread's store
_HINTS |= {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "noftz"}


def _parse(instruction: Instruction, operations: Collection[str] = ()) -> tuple[str, int, str]:
    """Return the state space, the vector length and the operation of a memory access.

    Raises Unsupported for a modifier that is not a mere hint.
    """
    space, count, operation = "generic", 1, ""
    for part in instruction.parts[1:-1]:
        if part in SPACES:
            space = SPACES[part]
        elif part in _VECTORS:
            count = _VECTORS[part]
        elif part in operations:
            operation = part
        elif part not in _HINTS and (operations or not part.startswith(("L1::", "L2::"))):
            raise Unsupported(f"{instruction.place}: the reference GPU has no modifier .{part} here")
    return space, count, operation


def _parameter_space(address: Address) -> str:
    """Return the space of an address in `.param`: local for a parameter of a function, which has a name."""
    return "local" if isinstance(address.base, Symbol) else "param"


def _copies(reads: list[Read], writes: list[Write]) -> Execute:
    def execute(machine: Machine, mask: Mask) -> None:
        for read, write in zip(reads, writes, strict=True):
            write(machine, read(machine), mask)

    return execute


def load(decoder: Decoder, instruction: Instruction) -> Execute:
    """`ld`, `ldu`: from global, shared, local, parameter or generic memory into a register or a vector of 2 to 8."""
    destination, address = instruction.operands[:2]
    (space, count, _), dtype = _parse(instruction), dtype_named(instruction)
    writes = [decoder.destination(target) for target in items_of(destination)]
    kind: str | None = "load"
    if space == "param":
        start = expect(address, Address)
        places = [Address(start.base, start.offset + i * dtype.itemsize) for i in range(count)]
        reads = [read for place in places if (read := decoder.parameter(place, dtype))]
        if reads:
            return _copies(reads, writes)
        space, kind = _parameter_space(start), None
    accessor = Accessor(decoder, instruction, address, space, count * dtype.itemsize, dtype.itemsize)
    strong = not _STRONG.isdisjoint(instruction.parts)

    def execute(machine: Machine, mask: Mask) -> None:
        machine.schedule.polling.looked |= strong
        pieces = accessor.locate(machine, mask, kind)
        for element, write in enumerate(writes if pieces else ()):
            write(machine, gather(pieces, dtype, element), mask)

    return execute


def store(decoder: Decoder, instruction: Instruction) -> Execute:
    """`st`: from a register, or a vector of 2 to 8, to global, shared, local or generic memory."""
    address, source = instruction.operands[:2]
    (space, count, _), dtype = _parse(instruction), dtype_named(instruction)
    kind: str | None = "store"
    if space == "param":
        space, kind = _parameter_space(expect(address, Address)), None
    accessor = Accessor(decoder, instruction, address, space, count * dtype.itemsize, dtype.itemsize)
    reads = [decoder.source(item, UNSIGNED[dtype.itemsize]) for item in items_of(source)]

    def execute(machine: Machine, mask: Mask) -> None:
        values, polling = [read(machine) for read in reads], machine.schedule.polling
        for piece in accessor.locate(machine, mask, kind, values):
            for element, value in enumerate(values):
                view = piece.view(dtype.itemsize, element)
                before = view.take(piece.index, mode="clip") if polling.goes_on else None
                scatter(view, piece.index, value, piece.lanes)
                if before is not None and not np.array_equal(before, view.take(piece.index, mode="clip")):
                    polling.stored()

    return execute


_UPDATES: dict[str, Callable[..., Value]] = {
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "inc": lambda old, last: np.where(old >= last, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, last: np.where((old == 0) | (old > last), last, old - old.dtype.type(1)),
}


def atomic(decoder: Decoder, instruction: Instruction) -> Execute:
    """`atom`, `red`: `.add .inc .dec .min .max .and .or .xor .exch .cas`, lanes one after the other, in lane order.

    Of f16x2, bf16x2 and vectors each number by itself.
    """
    returns = instruction.parts[0] == "atom"
    operands = instruction.operands[1:] if returns else instruction.operands
    (space, count, operation), kind = _parse(instruction, _UPDATES), instruction.parts[-1]
    require_form(bool(operation), instruction)
    dtype = ALTERNATE[kind] if kind in ALTERNATE else dtype_named(instruction)
    accessor = Accessor(decoder, instruction, operands[0], space, count * dtype.itemsize, dtype.itemsize)
    sources = operands[1 : 3 if operation == "cas" else 2]
    reads = [[decoder.source(item, dtype) for item in items_of(operand)] for operand in sources]
    targets = items_of(instruction.operands[0]) if returns and instruction.operands[0] is not None else ()
    writes = [decoder.destination(target) for target in targets]
    update: Callable[..., Value] = _UPDATES[operation]
    if kind in ALTERNATE:
        update = floats.operation([operation, kind])[2]

    def execute(machine: Machine, mask: Mask) -> None:
        values = [[per_lane(read(machine), machine.lanes) for read in some] for some in reads]
        old, polling = [np.zeros(machine.lanes, dtype) for _ in range(count)], machine.schedule.polling
        polling.looked |= returns
        for piece in accessor.locate(machine, mask, "atomic"):
            index = per_lane(piece.index, machine.lanes)
            lanes = np.arange(machine.lanes) if piece.lanes is None else np.flatnonzero(piece.lanes)
            for group in _collision_free(index, lanes):
                where = index[group]
                for element in range(count):
                    memory = piece.view(dtype.itemsize, element).view(dtype)
                    old[element][group] = before = memory[where]
                    memory[where] = update(before, *(some[element][group] for some in values))
                    if memory[where].tobytes() != before.tobytes():
                        polling.stored()
        for write, value in zip(writes, old, strict=False):
            write(machine, value, mask)

    return execute


def _collision_free(index: np.ndarray, lanes: np.ndarray) -> list[np.ndarray]:
    """Split lanes into groups that access each place once, in lane order at each place."""
    groups = []
    while lanes.size:
        _, first = np.unique(index[lanes], return_index=True)
        groups.append(lanes[np.sort(first)])
        lanes = np.delete(lanes, first)
    return groups


def matrix(decoder: Decoder, instruction: Instruction) -> Control:
    """`ldmatrix`, `stmatrix`: a warp moves 1, 2 or 4 matrices of 8 x 8 elements of 16 bits, `.trans` too.

    A lane l holds 32 bits of a matrix, word l % 4 of row l / 4. Lane 8 j + r gives the address of row r of matrix j, 16
    bytes of shared memory. Without `.shared` that is a generic address.
    """
    loads = instruction.parts[0] == "ldmatrix"
    known = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}
    require_form(set(instruction.parts[1:]) <= known, instruction)
    registers, address = instruction.operands if loads else instruction.operands[::-1]
    items = items_of(registers)
    writes = [decoder.destination(item) for item in items] if loads else []
    reads = [] if loads else [decoder.source(item, DTYPES["u32"]) for item in items]
    rows = Accessor(decoder, instruction, address, "shared", 16, 4)
    if not any(part.startswith("shared") for part in instruction.parts):
        generic = rows.base
        rows.base = lambda machine: generic(machine).astype(np.int64) - SHARED_WINDOW
    transposed = "trans" in instruction.parts
    halves = (0, 1) if transposed else (None,)  # 32 bits at once; transposed, two elements of a column

    def execute(machine: Machine, mask: Mask) -> None:
        active = machine.access_mask(mask)
        places = machine.special("%laneid") < 8 * len(items)  # the lanes that provide addresses
        seen = reads if machine.observers else []  # of what is stored
        words = _stored_rows(machine, [read(machine) for read in seen], transposed) if seen else ()
        rows.locate(machine, places if mask is None else places & mask, "load" if loads else "store", words)
        block, footprint = machine.blocks("shared")[0], machine.footprint(rows.base(machine))
        for j in range(len(items)):
            start = rows.offset // (2 if transposed else 4)
            before = start < 0 or footprint.low < block.first  # a view cannot begin before its block, nor an index
            view = block.view(2 if transposed else 4)[0 if before else start :]
            index = [
                footprint.cached((j, half), functools.partial(_matrix_index, machine, footprint, j, half))
                for half in halves
            ]
            if before:
                index = [i + start for i in index]
            if loads:
                found = [view.take(i, mode="clip").astype(np.uint32) for i in index]
                writes[j](machine, found[0] if len(found) == 1 else found[0] | found[1] << np.uint32(16), mask)
            else:
                value = reads[j](machine)
                for shift, i in zip((0, 16), index, strict=False):
                    scatter(view, i, (value >> np.uint32(shift)).astype(view.dtype), active)

    return together(execute)


def _stored_rows(machine: Machine, registers: Sequence[Value], transposed: bool) -> list[np.ndarray]:
    """Return the four words of the row whose address each lane provides, of matrices that `stmatrix` stores."""
    words = np.stack([per_lane(register, machine.lanes) for register in registers])
    lane = machine.special("%laneid").astype(np.int64)
    matrix, row, first = np.minimum(lane // 8, len(words) - 1), lane % 8, np.arange(machine.lanes) - lane
    if not transposed:
        return [words[matrix, first + 4 * row + word] for word in range(4)]
    halves = [words[matrix, first + 4 * column + row // 2] >> (16 * (row % 2)).astype(np.uint32) for column in range(8)]
    pairs = zip(halves[::2], halves[1::2], strict=True)
    return [(low & np.uint32(0xFFFF)) | (high << np.uint32(16)) for low, high in pairs]


def _matrix_index(machine: Machine, footprint: Footprint, j: int, half: int | None) -> np.ndarray:
    """Return the index of each lane's part of matrix j: its word, or a half word of a transposed matrix."""
    lane = machine.special("%laneid").astype(np.int64)
    first = np.arange(machine.lanes) - lane  # lane 0 of each lane's warp, whose lanes provide the addresses
    if half is None:
        row, byte, width = lane // 4, 4 * (lane % 4), 4
    else:
        row, byte, width = 2 * (lane % 4) + half, 2 * (lane // 4), 2
    addresses = per_lane(footprint.addresses, machine.lanes)[first + 8 * j + row] + byte
    return machine.blocks("shared")[0].index(addresses, width)
