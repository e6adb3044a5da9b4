"""Instructions that read and write memory: ld, st, atom, red (PTX ISA, 9.7.9 and 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.access import SPACES, Accessor, gather, scatter
from gemm_ref.ptx.core.decode import Decoder, Execute, dtype_named
from gemm_ref.ptx.text.dtypes import UNSIGNED, Value, per_lane
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.parser import Instruction, Vector

_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
# Ordering and caching change neither what one thread reads back nor, in lockstep, what another sees.
_HINTS = {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "nc"}
_HINTS |= {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "noftz"}


def _parse(instruction: Instruction) -> tuple[str, int, np.dtype]:
    """Space, vector length and element type of an ld or st; refuses modifiers that are not mere hints."""
    space, count = "generic", 1
    for part in instruction.parts[1:-1]:
        if part in SPACES:
            space = SPACES[part]
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
                write(machine, gather(pieces, dtype, element), mask)

    return execute


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
        if part in SPACES:
            space = SPACES[part]
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
        values = [per_lane(read(machine), machine.lanes) for read in reads]
        old = np.zeros(machine.lanes, dtype)
        for piece in accessor.locate(machine, mask, "atomic"):
            memory = piece.view(dtype.itemsize).view(dtype)
            index = per_lane(piece.index, machine.lanes)
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


LOAD_STORE = {"ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic}
