"""Where ptxas puts the elements of wmma's fragments, and with which accesses it moves them; `wmma` has the overview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.isa.matrix.mma import WARP, Tiles

_LANE = np.arange(WARP)


@dataclass(frozen=True)
class Shape:
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
    ("m16n16k16", "f16"): Shape(Tiles(1, 2, 8), False),
    ("m32n8k16", "f16"): Shape(Tiles(2, 1, 8), False),
    ("m8n32k16", "f16"): Shape(Tiles(2, 1, 8), True),
    ("m16n16k8", "tf32"): Shape(Tiles(1, 2, 8), False),
}
SHAPES |= {
    (shape, kind): Shape(Tiles(how.tiles.tiles_m, how.tiles.tiles_n, 4), how.swapped)
    for (shape, of), how in SHAPES.items()
    if of == "f16"
    for kind in ("s8", "u8")
}
SHAPES["m8n8k4", "f64"] = Shape(Eight(1, 1, 4), False)
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


def operand(shape: Shape, which: str, layout: str, kind: str) -> Fragment:
    left = (which == "a") != shape.swapped
    blocks = shape.tiles.left_blocks if left else shape.tiles.right_blocks
    return Fragment(blocks, 8 if kind == "f16" else len(blocks), (layout == "row") == (which == "a"), kind)


def accumulator(shape: Shape, layout: str, kind: str) -> Fragment:
    # two elements of a lane are neighbours of a row: a block is 8 rows x 8 columns, in fp32 as in fp16
    blocks = shape.tiles.sum_blocks
    return Fragment(blocks, len(blocks) * (1 if kind == "f16" else 2), (layout == "row") != shape.swapped, kind)


@dataclass(frozen=True, eq=False)
class Touch:
    """One access of the machine code: where in the matrix each lane of a warp goes."""

    rows: np.ndarray  # (32,) whole strides
    bytes: np.ndarray  # (32,) beyond them
    size: int  # bytes a lane
    lanes: int = WARP  # those that take part

    def addresses(self, base: np.ndarray, row_bytes: np.ndarray) -> np.ndarray:
        """(lanes of the machine,) from the fragment's address and the bytes from one row to the next."""
        warps = base.size // WARP
        return base + np.tile(self.rows, warps) * row_bytes + np.tile(self.bytes, warps)


def word_touches(fragment: Fragment, sums: bool) -> list[Touch]:
    """Accesses of a word a lane for each block; of wider elements of those, in pairs in a product where they can be."""
    row, word, size = _LANE // 4, _LANE % 4, fragment.bytes
    touches = []
    for i, j in fragment.blocks:
        if fragment.word == 1:
            touches += [Touch(16 * j + 4 * word + byte, 8 * i + row, 1) for byte in range(4)]
        elif size <= 2:
            i, j = (i, j) if fragment.along else (j, i)
            touches.append(Touch(8 * i + row, 16 * j + 4 * word, 4))
        elif not sums:
            x, y = 8 * i + row, 4 * j + word
            touches.append(Touch(x, size * y, size) if fragment.along else Touch(y, size * x, size))
        elif fragment.along:
            touches.append(Touch(8 * i + row, size * (8 * j + 2 * word), 2 * size))
        else:
            touches += [Touch(8 * j + 2 * word + side, size * (8 * i + row), size) for side in (0, 1)]
    return touches


def row_touches(fragment: Fragment) -> list[Touch]:
    """What LDSM is given: up to 4 blocks at once, 8 lanes with a row of each."""
    touches, blocks = [], [block if fragment.along else block[::-1] for block in fragment.blocks]
    for first in range(0, len(blocks), 4):
        some = np.array(blocks[first : first + 4])
        i, j = some[_LANE // 8 % len(some)].T
        touches.append(Touch(8 * i + _LANE % 8, 16 * j, 16, 8 * len(some)))
    return touches
