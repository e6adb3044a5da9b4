"""`ldmatrix` and `stmatrix` (PTX ISA, 9.7.14.5): a warp moves whole 8 x 8 matrices of 16-bit elements."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.access import Accessor, scatter
from gemm_ref.ptx.core.decode import Decoder, Execute
from gemm_ref.ptx.core.memory import Footprint
from gemm_ref.ptx.isa.warp import require_whole_warps
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.parser import Instruction, Vector


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
        require_whole_warps(machine, mask, instruction)
        active = machine.access_mask(mask)
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
    addresses = per_lane(footprint.addresses, machine.lanes)[first + 8 * j + row] + byte
    return machine.blocks("shared")[0].index(addresses, width)


MATRIX = {"ldmatrix": matrix, "stmatrix": matrix}
