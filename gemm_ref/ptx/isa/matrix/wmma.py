"""`wmma.load`, `wmma.mma` and `wmma.store` (PTX ISA, 9.7.14.4): the matrix fragments that nvcuda::wmma is made of.

The manual leaves open which lane holds which element. This is what ptxas (13.0) does for sm_90, read from its machine
code: fragments are those of `mma.sync` (`mma.Tiles`), m8n32 being m32n8 transposed, and an fp16
fragment whose registers outnumber its blocks holds each block several times. Memory is accessed as that machine code
does it, and observers see just these accesses:

- 16-bit A and B from shared memory: LDSM, whose lanes give the addresses of 16-byte rows of 8 x 8 blocks; transposed
  (LDSM.T) where memory does not run along k;
- 16-bit fragments otherwise, generic addresses into shared memory too: 32 bits a lane for each 8 x 8 block, lane l word
  l % 4 of row l / 4, and where memory runs the other way the registers are transposed after a load or before a store
  (MOVM). nvcc's <mma.h> gives bf16 and tf32 generic addresses wherever the pointer came from;
- tf32: 32 bits a lane for each block of 8 rows x 4 k;
- fp32 accumulators: 64 bits a lane, two neighbours of a row of the product, where memory runs along those, else 32.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.access import SPACES, Accessor, gather, scatter
from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.core.machine import Control, Machine, Mask, Read
from gemm_ref.ptx.isa.matrix.mma import (
    ACCUMULATORS,
    WARP,
    Tiles,
    crossed,
    lanes_of,
    multiply_doubles,
    multiply_words,
    pack,
    read_fragments,
    register_type,
    registers_of,
    unpack,
)
from gemm_ref.ptx.isa.warp import together
from gemm_ref.ptx.text.dtypes import DTYPES, UNSIGNED, Value, per_lane
from gemm_ref.ptx.text.errors import MemoryFault, Unsupported
from gemm_ref.ptx.text.parser import Instruction

_STRIDE = 16  # bytes: what the stride between a fragment's rows is a multiple of (CUDA guide, 'WMMA')


class _Matrix:
    """The place of a fragment in memory, from the operands of one instruction."""

    def __init__(self, decoder: Decoder, instruction: Instruction, fragment: Fragment, address, stride, space: str):
        self.instruction, self.fragment = instruction, fragment
        self._base = decoder.address(address)
        self._stride: Read = decoder.source(stride, DTYPES["u32"])
        self._offset = address.offset

        def make_accessors(accesses: list[FragmentAccess]) -> list[tuple[FragmentAccess, Accessor]]:
            word = fragment.word
            return [(access, Accessor(decoder, instruction, address, space, access.size, word)) for access in accesses]

        sums = instruction.parts[2] in ("c", "d")
        self.places = make_accessors(word_accesses(fragment, sums))  # of the values
        self.rows = []  # what is seen of the access, where that is not the same
        if space == "shared" and fragment.bytes == 2 and instruction.parts[2] in ("a", "b"):
            self.rows = make_accessors(row_accesses(fragment))

    def point(self, machine: Machine, mask: Mask) -> None:
        """Set the addresses of every access. Raises MemoryFault for a misaligned or diverging address or stride."""
        base, stride = machine.footprint(self._base(machine)), self._stride(machine)
        row_bytes = stride.astype(np.int64) * self.fragment.bytes
        self._check(machine, mask, base.addresses + self._offset, row_bytes)
        every = per_lane(base.addresses, machine.lanes)
        for access, accessor in (*self.places, *self.rows):

            def compute(access=access):
                return access.addresses(every, row_bytes)

            found = base.cached((id(access), int(stride)), compute) if stride.ndim == 0 else compute()
            accessor.base = _constant_reader(found)

    def _check(self, machine: Machine, mask: Mask, addresses: np.ndarray, row_bytes: np.ndarray) -> None:
        active = machine.access_mask(mask)
        # An address is a multiple of the size of what a lane gets (PTX ISA, 'Matrix storage'); the CUDA guide, which
        # asks for 32 bytes of all types, means fp16 and fp32.
        size = self.fragment.registers * max(self.fragment.word, 4)
        for what, values, unit in (("address", addresses, size), ("stride", row_bytes, _STRIDE)):
            values = per_lane(values, machine.lanes)
            warps = values.reshape(-1, WARP)
            wrong = values % unit != 0
            parted = np.repeat((warps != warps[:, :1]).any(1), WARP)
            if active is not None:
                wrong, parted = wrong & active, parted & active
            if (wrong | parted).any():
                lane = int(np.argmax(wrong | parted))
                said = f"is not at a multiple of {unit} bytes" if wrong[lane] else "is not the same in all of its warp"
                raise MemoryFault(
                    f"{self.instruction.place}: {machine.describe_lane(lane)} has a fragment whose {what} {said}"
                )


def _constant_reader(value: Value) -> Read:
    return lambda machine: value


_MEMORY = re.compile(
    r"wmma\.(?:load\.([abc])|store\.(d))\.sync\.aligned\.(row|col)\.(m\d+n\d+k\d+)"
    r"(?:\.(shared|shared::cta|global))?\.(\w+)"
)


_FACTORS = {"s32": "s8", "f64": "f64"}  # by the type of the sums, where it says what is multiplied


def _memory(decoder: Decoder, instruction: Instruction) -> Control:
    found = _MEMORY.fullmatch(instruction.name)
    loads, stores, layout, size, space, kind = found.groups() if found else ("",) * 6
    which = loads or stores
    sums = which in ("c", "d")
    element = _FACTORS.get(kind, "tf32" if size == "m16n16k8" else "f16") if sums else kind
    shape = SHAPES.get((size, element))
    operands = list(instruction.operands)
    known = ("f32", "s32", "f64", "f16" if element == "f16" else "f32")
    if shape is None or (sums and kind not in known) or len(operands) != 3:
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name} of this form")
    fragment = accumulator(shape, layout, kind) if sums else operand(shape, which, layout, kind)
    address, registers = operands[:2] if which == "d" else operands[1::-1]
    matrix = _Matrix(decoder, instruction, fragment, address, operands[2], SPACES.get(space, "generic"))
    items = registers_of(registers, fragment.registers, instruction)
    is_transposed = fragment.bytes == 2 and not fragment.along
    if which == "d":
        return _store(decoder, instruction, matrix, items, is_transposed)
    return _load(decoder, instruction, matrix, items, is_transposed)


def _load(decoder: Decoder, instruction: Instruction, matrix: _Matrix, items: tuple, is_transposed: bool) -> Control:
    writes = [decoder.destination(item) for item in items]
    word = UNSIGNED[matrix.fragment.word]

    def execute(machine: Machine, mask: Mask) -> None:
        active = machine.access_mask(mask)
        matrix.point(machine, mask)
        for access, accessor in matrix.rows:
            takes_part = machine.special("%laneid") < access.lanes
            accessor.locate(machine, takes_part if active is None else takes_part & active, "load")
        values = []
        for access, accessor in matrix.places:
            pieces = accessor.locate(machine, mask, None if matrix.rows else "load")
            values += [gather(pieces, word, element) for element in range(access.size // word.itemsize)]
        if word.itemsize == 1:
            values = [_join_bytes(values[first : first + 4]) for first in range(0, len(values), 4)]
        for i, write in enumerate(writes):
            value = lanes_of(machine, [values[i % len(values)]])[0]
            write(machine, crossed(value) if is_transposed else value, mask)

    return together(execute)


def _join_bytes(bytes_: list[Value]) -> Value:
    """Join four bytes to a word, the first lowest."""
    return sum((byte.astype(np.uint32) << np.uint32(8 * i) for i, byte in enumerate(bytes_)), start=np.uint32(0))


def _store(decoder: Decoder, instruction: Instruction, matrix: _Matrix, items: tuple, is_transposed: bool) -> Control:
    width = matrix.fragment.word
    reads = [decoder.source(item, UNSIGNED[width]) for item in items]

    def execute(machine: Machine, mask: Mask) -> None:
        matrix.point(machine, mask)
        values = iter(lanes_of(machine, [read(machine) for read in reads]))
        for access, accessor in matrix.places:
            some = [next(values) for _ in range(access.size // width)]
            for piece in accessor.locate(machine, mask, "store"):
                for element, value in enumerate(some):
                    stored = crossed(value) if is_transposed else value
                    scatter(piece.view(width, element), piece.index, stored, piece.lanes)

    return together(execute)


_MMA = re.compile(
    r"wmma\.mma\.sync\.aligned\.(row|col)\.(row|col)\.(m\d+n\d+k\d+)\.(f32|f16|s32)(?:\.(bf16|tf32|s8|u8)\.\5)?"
    r"\.(f32|f16|s32)(\.satfinite)?"
)


def _mma(decoder: Decoder, instruction: Instruction) -> Control:
    """`wmma.mma`: D = A @ B + C; the layouts in its name were the loads' concern, fragments have but one."""
    found = _MMA.fullmatch(instruction.name)
    if instruction.parts[-1] == "f64" or instruction.parts[-2] == "f64":
        return multiply_doubles(decoder, instruction)
    size, to, kind, c, clamps = found.groups()[2:] if found else ("",) * 5
    kind = kind or "f16"
    shape = SHAPES.get((size, kind))
    whole = kind in ("s8", "u8")
    wanted = "s32" if whole else "f32"
    if shape is None or (kind != "f16" and (to, c) != (wanted, wanted)) or (clamps and not whole):
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    tiles = shape.tiles
    sums = {"f32": 8, "s32": 8, "f16": 4}
    many = [8 if kind == "f16" else len(blocks) for blocks in (tiles.left_blocks, tiles.right_blocks)]
    counts = sums[to], *(many[::-1] if shape.swapped else many), sums[c]
    types = DTYPES["u32"], DTYPES["u32"], register_type(c)
    writes, (a, b, old) = read_fragments(decoder, instruction, counts, types)
    left, right = (b, a) if shape.swapped else (a, b)

    def execute(machine: Machine, mask: Mask) -> None:
        words = [
            lanes_of(machine, [read(machine) for read in reads[: len(blocks)]])
            for reads, blocks in ((left, tiles.left_blocks), (right, tiles.right_blocks))
        ]
        before = tiles.gather(unpack(lanes_of(machine, [read(machine) for read in old]), c))
        if "f32" in (to, c):  # ptxas turns an fp16 addend into fp32 first, and fp32 sums into fp16 afterwards
            before = before.astype(np.float32)
        result = multiply_words("wmma", tiles, words, (kind, kind), before, bool(clamps))
        result = result.astype(ACCUMULATORS[to], copy=False)
        for write, value in zip(writes, pack(tiles.spread(result), to), strict=True):
            write(machine, value, mask)

    return together(execute)


def wmma(decoder: Decoder, instruction: Instruction) -> Control:
    """`wmma`: `.load .store .mma`: m16n16k16, m32n8k16, m8n32k16 of f16, bf16, s8, u8, m16n16k8 of tf32, m8n8k4 of f64.

    Integers' fragments from memory that runs across k are read byte by byte.
    """
    return _mma(decoder, instruction) if instruction.parts[1] == "mma" else _memory(decoder, instruction)


_LANE_IDS = np.arange(WARP)


@dataclass(frozen=True)
class WmmaShape:
    """m x n x k as tiles of 16 x 8, of the transposed product where `swapped`: A is then on its right."""

    tiles: Tiles
    swapped: bool


@dataclass(frozen=True)
class Eight(Tiles):
    """A product of 8 x 8, of f64: a block of each matrix."""

    @property
    def left_blocks(self) -> list[tuple[int, int]]:
        return [(0, 0)]

    right_blocks = sum_blocks = left_blocks


SHAPES = {
    ("m16n16k16", "f16"): WmmaShape(Tiles(1, 2, 8), False),
    ("m32n8k16", "f16"): WmmaShape(Tiles(2, 1, 8), False),
    ("m8n32k16", "f16"): WmmaShape(Tiles(2, 1, 8), True),
    ("m16n16k8", "tf32"): WmmaShape(Tiles(1, 2, 8), False),
}
SHAPES |= {
    (shape, kind): WmmaShape(Tiles(how.tiles.tiles_m, how.tiles.tiles_n, 4), how.swapped)
    for (shape, of), how in SHAPES.items()
    if of == "f16"
    for kind in ("s8", "u8")
}
SHAPES["m8n8k4", "f64"] = WmmaShape(Eight(1, 1, 4), False)
SHAPES |= {(shape, "bf16"): tiles for (shape, kind), tiles in SHAPES.items() if kind == "f16"}


@dataclass(frozen=True)
class Fragment:
    """One matrix of a product, in registers and in memory."""

    blocks: Sequence[tuple[int, int]]  # of each register: which block of 8 rows, and which along the row; of 16 bytes
    registers: int  # how many the instruction names: `blocks` again and again
    along: bool  # memory runs along the rows of blocks: along k, or along a row of the (transposed) product
    kind: str

    @property
    def bytes(self) -> int:
        """Of an element."""
        return {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "f64": 8}.get(self.kind, 4)

    @property
    def word(self) -> int:
        """Bytes of what its memory is accessed in: elements where they do not lie in a register as in memory."""
        return 1 if self.bytes == 1 and not self.along else 8 if self.bytes == 8 else 4


def operand(shape: WmmaShape, which: str, layout: str, kind: str) -> Fragment:
    left = (which == "a") != shape.swapped
    blocks = shape.tiles.left_blocks if left else shape.tiles.right_blocks
    return Fragment(blocks, 8 if kind == "f16" else len(blocks), (layout == "row") == (which == "a"), kind)


def accumulator(shape: WmmaShape, layout: str, kind: str) -> Fragment:
    # two elements of a lane are neighbours of a row: a block is 8 rows x 8 columns, in fp32 as in fp16
    blocks = shape.tiles.sum_blocks
    return Fragment(blocks, len(blocks) * (1 if kind == "f16" else 2), (layout == "row") != shape.swapped, kind)


@dataclass(frozen=True, eq=False)
class FragmentAccess:
    """One access of the machine code: where in the matrix each lane of a warp goes."""

    rows: np.ndarray  # (32,) whole strides
    bytes: np.ndarray  # (32,) beyond them
    size: int  # bytes a lane
    lanes: int = WARP  # those that take part

    def addresses(self, base: np.ndarray, row_bytes: np.ndarray) -> np.ndarray:
        """(lanes of the machine,) from the fragment's address and the bytes from one row to the next."""
        warps = base.size // WARP
        return base + np.tile(self.rows, warps) * row_bytes + np.tile(self.bytes, warps)


def word_accesses(fragment: Fragment, sums: bool) -> list[FragmentAccess]:
    """Accesses of a word a lane for each block; of wider elements of those, in pairs in a product where they can be."""
    row, word, size = _LANE_IDS // 4, _LANE_IDS % 4, fragment.bytes
    accesses = []
    for i, j in fragment.blocks:
        if fragment.word == 1:
            accesses += [FragmentAccess(16 * j + 4 * word + byte, 8 * i + row, 1) for byte in range(4)]
        elif size <= 2:
            i, j = (i, j) if fragment.along else (j, i)
            accesses.append(FragmentAccess(8 * i + row, 16 * j + 4 * word, 4))
        elif not sums:
            x, y = 8 * i + row, 4 * j + word
            accesses.append(FragmentAccess(x, size * y, size) if fragment.along else FragmentAccess(y, size * x, size))
        elif fragment.along:
            accesses.append(FragmentAccess(8 * i + row, size * (8 * j + 2 * word), 2 * size))
        else:
            accesses += [FragmentAccess(8 * j + 2 * word + side, size * (8 * i + row), size) for side in (0, 1)]
    return accesses


def row_accesses(fragment: Fragment) -> list[FragmentAccess]:
    """What LDSM is given: up to 4 blocks at once, 8 lanes with a row of each."""
    accesses, blocks = [], [block if fragment.along else block[::-1] for block in fragment.blocks]
    for first in range(0, len(blocks), 4):
        some = np.array(blocks[first : first + 4])
        i, j = some[_LANE_IDS // 8 % len(some)].T
        accesses.append(FragmentAccess(8 * i + _LANE_IDS % 8, 16 * j, 16, 8 * len(some)))
    return accesses
