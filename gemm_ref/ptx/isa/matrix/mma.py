"""`mma.sync` (PTX ISA, 9.7.14.5): a warp multiplies matrices that lie spread over the registers of its lanes.

Sums are those of Hopper's tensor cores to the last bit (`units.tensor_core`). Of tf32 operands the 13 low bits are not
read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, match_form, require_form
from gemm_ref.ptx.core.machine import Control, Machine, Mask, Read, Write
from gemm_ref.ptx.isa.numbers.rounding import fma64
from gemm_ref.ptx.isa.warp import together
from gemm_ref.ptx.text.dtypes import DTYPES, Value, per_lane
from gemm_ref.ptx.text.errors import ParseError
from gemm_ref.ptx.text.operands import Operand, items_of
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units import tensor_core
from gemm_ref.ptx.units.formats import BITS, numbers

WARP = 32


ACCUMULATORS = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


@dataclass(frozen=True)
class Tiles:
    """A product in tiles of 16 x 8: of which registers are blocks of 8 rows x 4 words, a word a lane.

    left[16 tiles_m, k] @ right[8 tiles_n, k] transposed; k has `words` 32-bit words, 4 or 8 of them. PTX ISA, 'Matrix
    Fragments for mma.m16n8k*': lane l holds word l % 4 of row l / 4 of a block. A tile's blocks of `left` follow each
    other down first and then along k, those of `right` along k. An accumulator's lane has columns 2 (l % 4) and + 1 of
    row l / 4, then of row l / 4 + 8.
    """

    tiles_m: int
    tiles_n: int
    words: int

    @property
    def left_blocks(self) -> list[tuple[int, int]]:
        """(block of 8 rows, block of 4 words) of each register."""
        return [(2 * tile + half, j) for tile in range(self.tiles_m) for j in range(self.words // 4) for half in (0, 1)]

    @property
    def sum_blocks(self) -> list[tuple[int, int]]:
        """(block of 8 rows, block of 8 columns) of each pair of elements of a lane."""
        rows = [(2 * tile + half, tile) for tile in range(self.tiles_m) for half in (0, 1)]
        return [(row, j) for tile in range(self.tiles_m) for j in range(self.tiles_n) for row, t in rows if t == tile]

    @property
    def right_blocks(self) -> list[tuple[int, int]]:
        return [(tile, j) for tile in range(self.tiles_n) for j in range(self.words // 4)]

    def matrix(self, registers: Sequence[np.ndarray], blocks: list[tuple[int, int]]) -> np.ndarray:
        """Registers (lanes,) of words -> (warps, rows, words)."""
        found = np.empty((registers[0].size // WARP, len(blocks) * 4 // self.words, 8, self.words // 4, 4), np.uint32)
        for register, (i, j) in zip(registers, blocks, strict=True):
            found[:, i, :, j] = register.reshape(-1, 8, 4)
        return found.reshape(len(found), -1, self.words)

    def gather(self, elements: Sequence[np.ndarray]) -> np.ndarray:
        """An accumulator's elements (lanes,), four a tile -> (warps, 16 tiles_m, 8 tiles_n)."""
        found = np.empty(self._split(elements[0].size // WARP), elements[0].dtype)
        for e, element in enumerate(elements):
            self._at(found, e)[...] = element.reshape(-1, 8, 4)
        return found.reshape(len(found), 16 * self.tiles_m, 8 * self.tiles_n)

    def spread(self, matrices: np.ndarray) -> list[np.ndarray]:
        """The inverse of `gather`."""
        parts = matrices.reshape(self._split(len(matrices)))
        return [self._at(parts, e).reshape(-1) for e in range(4 * self.tiles_m * self.tiles_n)]

    def _split(self, warps: int) -> tuple[int, ...]:
        return warps, self.tiles_m, 2, 8, self.tiles_n, 4, 2

    def _at(self, parts: np.ndarray, element: int) -> np.ndarray:
        tile, half, side = element // 4, element // 2 % 2, element % 2
        return parts[:, tile // self.tiles_n, half, :, tile % self.tiles_n, :, side]


def read_fragments(
    decoder: Decoder, instruction: Instruction, counts: Sequence[int], types: Sequence[np.dtype]
) -> tuple[list[Write], list[list[Read]]]:
    """Return writers of the registers of D, and readers of those of A, B and C, which have these types.

    Raises ParseError where a fragment does not have as many registers as `counts` says.
    """
    fragments = [registers_of(*pair, instruction) for pair in zip(instruction.operands, counts, strict=True)]
    reads = [[decoder.source(item, kind) for item in items] for items, kind in zip(fragments[1:], types, strict=True)]
    return [decoder.destination(item) for item in fragments[0]], reads


def multiply_words(
    instruction: str,
    tiles: Tiles,
    words: Sequence[Sequence[np.ndarray]],
    kinds: tuple[str, str],
    c: np.ndarray,
    clamps: bool = False,
) -> np.ndarray:
    """Return left @ right^T + c for each warp, as `tensor_core` adds; words: the registers of left and right."""
    blocks = tiles.left_blocks, tiles.right_blocks
    parts = (tiles.matrix(registers, each) for registers, each in zip(words, blocks, strict=True))
    x, y = (numbers(part.view(BITS[kind]), kind, np.float32) for kind, part in zip(kinds, parts, strict=True))
    return tensor_core.multiply_add(instruction, x, y, kinds, c, clamps)


def unpack(registers: Sequence[np.ndarray], kind: str) -> list[np.ndarray]:
    """Return the elements of an accumulator's registers: one fp32 or int32 in each, or two fp16."""
    if kind != "f16":
        return list(registers)
    halves = [register.view(np.float16) for register in registers]
    return [half[side::2] for half in halves for side in (0, 1)]


def pack(elements: Sequence[np.ndarray], kind: str) -> list[np.ndarray]:
    """Return the registers of an accumulator's elements: the inverse of `unpack`."""
    if kind != "f16":
        return list(elements)
    pairs = zip(elements[0::2], elements[1::2], strict=True)
    return [np.stack(pair, axis=-1).reshape(-1).view(np.uint32) for pair in pairs]


def register_type(kind: str) -> np.dtype:
    """Return the type as which an accumulator's registers are read."""
    return DTYPES["u32" if kind == "f16" else kind]


def lanes_of(machine: Machine, values: Sequence[Value]) -> list[np.ndarray]:
    """Return registers with an element for each lane, also those that the machine holds as one number."""
    return [np.ascontiguousarray(per_lane(value, machine.lanes)) for value in values]


def registers_of(operand: Operand, count: int, instruction: Instruction) -> tuple[Operand, ...]:
    """Return the registers of a fragment, maybe one without braces. Raises ParseError unless they are `count`."""
    items = items_of(operand)
    if len(items) != count:
        raise ParseError(f"{instruction.place}: {len(items)} registers where a fragment has {count}")
    return items


_INTEGERS = re.compile(r"mma\.sync\.aligned\.m16n8k(16|32)\.row\.col(\.satfinite)?\.s32\.(s8|u8)\.(s8|u8)\.s32")
_NAME = re.compile(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(f32|f16)\.(\w+)\.(\w+)\.(f32|f16)")
_DEPTHS = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "e4m3": (32,), "e5m2": (32,)}  # k, by type


def mma(decoder: Decoder, instruction: Instruction) -> Control:
    """`mma`: `.sync` m16n8, D = A @ B + C, of f16, bf16, tf32, e4m3, e5m2, s8 or u8; m8n8k4 and m16n8 of f64."""
    if instruction.parts[-1] == "f64":
        return multiply_doubles(decoder, instruction)
    clamps, integers = False, _INTEGERS.fullmatch(instruction.name)
    if integers is not None:
        k, clamps, a, b = int(integers[1]), bool(integers[2]), integers[3], integers[4]
        to = c = "s32"
    else:
        found = match_form(_NAME, instruction)
        k, (to, a, b, c) = int(found[1]), found.groups()[1:]
        fp8 = {a, b} <= {"e4m3", "e5m2"}
        alike = to == c and (a == b or fp8) and (to == "f32" or a == "f16" or fp8)
        require_form(alike and k in _DEPTHS.get(a, ()), instruction)
    tiles = Tiles(1, 1, k // 4 if integers else k * BITS[a].itemsize // 4)
    sums = 2 if to == "f16" else 4
    counts = sums, len(tiles.left_blocks), len(tiles.right_blocks), sums
    writes, reads = read_fragments(decoder, instruction, counts, (DTYPES["u32"], DTYPES["u32"], register_type(c)))

    def execute(machine: Machine, mask: Mask) -> None:
        left, right, old = (lanes_of(machine, [read(machine) for read in some]) for some in reads)
        result = multiply_words("mma", tiles, (left, right), (a, b), tiles.gather(unpack(old, c)), clamps)
        for write, value in zip(writes, pack(tiles.spread(result), to), strict=True):
            write(machine, value, mask)

    return together(execute)


_DOUBLES = re.compile(r"(?:wmma\.)?mma\.sync\.aligned\.(?:row|col)\.(?:row|col)\.(m8n8k4)\.f64\.f64\.f64\.f64(?:\.rn)?")
_MMA_DOUBLES = re.compile(r"mma\.sync\.aligned\.(m8n8k4|m16n8k(?:4|8|16))\.row\.col(?:\.rn)?\.f64\.f64\.f64\.f64")


def multiply_doubles(decoder: Decoder, instruction: Instruction) -> Control:
    """Of f64, `mma` and `wmma.mma`: each product added in order of k, rounded once.

    Lane l holds of A in blocks of 8 rows x 4 columns element (l / 4, l % 4), of B the same transposed, and of C and D
    in blocks of 8 rows elements 2 (l % 4) and + 1 of row l / 4.
    """
    found = _DOUBLES.fullmatch(instruction.name) or match_form(_MMA_DOUBLES, instruction)
    rows, parts = (2 if found[1].startswith("m16") else 1), int(found[1].rpartition("k")[2]) // 4
    counts = 2 * rows, rows * parts, parts, 2 * rows
    writes, reads = read_fragments(decoder, instruction, counts, (DTYPES["f64"],) * 3)

    def execute(machine: Machine, mask: Mask) -> None:
        a, b, c = (lanes_of(machine, [read(machine) for read in some]) for some in reads)
        for row in range(rows):
            pair = [part.reshape(-1, 8, 4) for part in c[2 * row : 2 * row + 2]]
            sums = np.stack(pair, axis=-1).reshape(-1, 8, 8)
            for part in range(parts):
                left, right = a[rows * part + row].reshape(-1, 8, 4), b[part].reshape(-1, 8, 4)
                for k in range(4):
                    sums = fma64(left[:, :, k, None], right[:, None, :, k], sums)
            for side in (0, 1):
                writes[2 * row + side](machine, np.ascontiguousarray(sums[:, :, side::2]).reshape(-1), mask)

    return together(execute)


def transpose(decoder: Decoder, instruction: Instruction) -> Control:
    """`movmatrix`: a matrix of 8 x 8 elements of 16 bits, transposed."""
    match_form(r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16", instruction)
    write, read = decoder.destination(instruction.operands[0]), decoder.source(instruction.operands[1], DTYPES["u32"])
    return together(lambda machine, mask: write(machine, crossed(lanes_of(machine, [read(machine)])[0]), mask))


def crossed(register: np.ndarray) -> np.ndarray:
    """Transpose an 8 x 8 block of 16-bit elements, a word per lane, as MOVM does."""
    return register.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1).reshape(-1).view(np.uint32)
