"""`mma.sync` (PTX ISA, 9.7.14.5): a warp multiplies matrices that lie spread over the registers of its lanes.

Sums are those of Hopper's tensor cores to the last bit (`units.tensor_core`). Of tf32 operands the 13 low bits are not
read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.context import Control, Machine, Mask
from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.isa.warp import together
from gemm_ref.ptx.text.dtypes import DTYPES, Value, per_lane
from gemm_ref.ptx.text.errors import ParseError, Unsupported
from gemm_ref.ptx.text.operands import Operand, items_of
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units import tensor_core
from gemm_ref.ptx.units.formats import BITS, numbers

WARP = 32


ACCUMULATORS: dict[str, type[np.floating]] = {"f32": np.float32, "f16": np.float16}


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


def multiply_words(
    instruction: str, tiles: Tiles, words: Sequence[np.ndarray], kinds: tuple[str, str], c: np.ndarray
) -> np.ndarray:
    """left @ right^T + c for each warp, as `tensor_core` adds; words of left and right as `Tiles.matrix` gives them."""
    x, y = (numbers(part.view(BITS[kind]), kind, np.float32) for kind, part in zip(kinds, words, strict=True))
    return tensor_core.multiply_add(instruction, x, y, kinds, c)


def unpack(registers: Sequence[np.ndarray], kind: str) -> list[np.ndarray]:
    """An accumulator's registers as its elements: one fp32 in each, or two fp16."""
    if kind == "f32":
        return list(registers)
    halves = [register.view(np.float16) for register in registers]
    return [half[side::2] for half in halves for side in (0, 1)]


def pack(elements: Sequence[np.ndarray], kind: str) -> list[np.ndarray]:
    """The inverse of `unpack`."""
    if kind == "f32":
        return list(elements)
    pairs = zip(elements[0::2], elements[1::2], strict=True)
    return [np.stack(pair, axis=-1).reshape(-1).view(np.uint32) for pair in pairs]


def register_type(kind: str) -> np.dtype:
    """What an accumulator's registers are read as."""
    return DTYPES["f32" if kind == "f32" else "u32"]


def lanes_of(machine: Machine, values: Sequence[Value]) -> list[np.ndarray]:
    """Registers with an element for each lane, also those that the machine keeps as one number."""
    return [np.ascontiguousarray(per_lane(value, machine.lanes)) for value in values]


def registers_of(operand: Operand, count: int, instruction: Instruction) -> tuple[Operand, ...]:
    """The registers of a fragment, which may be one without braces. Raises ParseError where they are not `count`."""
    items = items_of(operand)
    if len(items) != count:
        raise ParseError(f"{instruction.place}: {len(items)} registers where a fragment has {count}")
    return items


_NAME = re.compile(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(f32|f16)\.(\w+)\.(\w+)\.(f32|f16)")
_DEPTHS = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "e4m3": (32,), "e5m2": (32,)}  # k, by type


def mma(decoder: Decoder, instruction: Instruction) -> Control:
    """`mma`: `.sync` m16n8, D = A @ B + C, A row-major, B column-major, of f16, bf16, tf32, e4m3 or e5m2."""
    found = _NAME.fullmatch(instruction.name)
    if found is None:
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    k, (to, a, b, c) = int(found[1]), found.groups()[1:]
    fp8 = {a, b} <= {"e4m3", "e5m2"}
    alike = to == c and (a == b or fp8) and (to == "f32" or a == "f16" or fp8)
    if k not in _DEPTHS.get(a, ()) or not alike:
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    tiles = Tiles(1, 1, k * BITS[a].itemsize // 4)
    sums = 4 if to == "f32" else 2
    counts = sums, len(tiles.left_blocks), len(tiles.right_blocks), sums
    registers = [registers_of(*pair, instruction) for pair in zip(instruction.operands, counts, strict=True)]
    kinds = DTYPES["u32"], DTYPES["u32"], register_type(c)
    writes = [decoder.destination(item) for item in registers[0]]
    reads = [[decoder.source(item, kind) for item in items] for items, kind in zip(registers[1:], kinds, strict=True)]

    def execute(machine: Machine, mask: Mask) -> None:
        left, right, old = (lanes_of(machine, [read(machine) for read in some]) for some in reads)
        words = tiles.matrix(left, tiles.left_blocks), tiles.matrix(right, tiles.right_blocks)
        result = multiply_words("mma", tiles, words, (a, b), tiles.gather(unpack(old, c)))
        for write, value in zip(writes, pack(tiles.spread(result), to), strict=True):
            write(machine, value, mask)

    return together(execute)
