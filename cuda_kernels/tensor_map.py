"""Tensor maps: what the TMA unit is told about a matrix (CUDA driver API, cuTensorMapEncodeTiled), on both machines."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from gemm_ref.call import Plan, driver
from gemm_ref.compute import TMA_TF32, element_of
from gemm_ref.config import Box
from gemm_ref.launch import cdiv, round_up
from gemm_ref.operands import LINE_BYTES, TMA_BYTES, row_elements
from gemm_ref.operands.split import Split

MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a CUtensorMap
EIGHTS = 8  # rows after which a swizzle repeats; and as many, of a vector at least, are no shorter than a box
# CUtensorMapSwizzle and CUtensorMapL2promotion of cuda.h
_SWIZZLES, _PROMOTIONS = {64: 2, 128: 3}, {128: 2, 256: 3}


@dataclass(frozen=True)
class Boxed:
    """A matrix (rows, columns) as it is stored, and what the TMA unit copies of it at once."""

    matrix: torch.Tensor
    box: Box
    to_tf32: bool = False  # rounded to nearest on its way into shared memory, where wgmma would cut it
    tile: int = 0  # of an operand that has maps for its edges too: rows of it in a tile, or columns if not `along_k`
    along_k: bool = True  # whether a row of it is along K
    phases: int = 1  # matrices that it is for the unit, of every so-manyth row each (`operands.phases_at`)

    @property
    def row_bytes(self) -> int:
        """From a row to the next."""
        return row_elements(self.matrix) * self.matrix.itemsize

    @property
    def box_bytes(self) -> int:
        """Of a row of the box: 64 or 128. Chunks of 16 bytes are permuted as the swizzle of so many bytes has it."""
        return self.box.columns * self.matrix.itemsize

    @property
    def swizzle(self) -> int:
        """A CUtensorMapSwizzle."""
        return _SWIZZLES[self.box_bytes]

    @property
    def element_type(self) -> int:
        """A CUtensorMapDataType."""
        return TMA_TF32 if self.to_tf32 else element_of(self.matrix.dtype).tma_code


@dataclass(frozen=True)
class View:
    """One of the matrices that a `Boxed` is for the unit."""

    offset: int  # bytes from the first element of the matrix to its own
    rows: int
    columns: int
    row_bytes: int  # from a row to the next
    box: Box

    @classmethod
    def all_of(cls, boxed: Boxed) -> list[View]:
        """The phases of a matrix; and behind them the same for its edges, where it has maps for those."""
        (rows, columns), phases, item = boxed.matrix.shape, boxed.phases, boxed.matrix.itemsize
        begins = [phase * boxed.row_bytes for phase in range(phases)]
        views = [
            cls(begin - begin % TMA_BYTES, cdiv(rows - phase, phases), columns + begin % TMA_BYTES // item,
                phases * boxed.row_bytes, boxed.box)
            for phase, begin in enumerate(begins)
        ]  # fmt: skip
        return views + [view._edge(boxed) for view in views] if boxed.tile else views

    def _edge(self, boxed: Boxed) -> View:
        """What include/edges.cuh reads in place of boxes that are partly outside of the matrix.

        Along K, a box of the last tile's rows alone, in eights. Else the columns go on up to whole boxes: behind the
        end of a row is the next one, so this is without the last rows.
        """
        box = self.box
        if boxed.along_k:
            rest, sharers = self.rows % boxed.tile, boxed.tile // box.rows
            return replace(self, box=replace(box, rows=round_up(cdiv(rest, sharers), EIGHTS))) if rest else self
        if self.columns % box.columns == 0 or self.rows <= EIGHTS:
            return self
        return replace(self, rows=self.rows - EIGHTS, columns=round_up(self.columns, box.columns))


def operands(plan: Plan, a: Any, b: Any, c: torch.Tensor) -> tuple[tuple[Boxed, ...], int, int]:
    """What a kernel with TMA is given: its left operand, its right one and C, and the rows and columns of left @ right.

    C is left out where threads store it.

    a (M, K), b (K, N), c (M, N) have rows as `operands.with_tma_rows` makes them. Left is A, but B^T where the kernel
    turns the product round. Operands in parts are their parts, one below the other.
    """
    implementation, problem = plan.implementation, plan.problem
    if isinstance(a, Split):
        stored_a, stored_b = (x.parts.flatten(0, 1) for x in (a, b))
    else:
        stored_a, stored_b = a, b if problem.b_layout == "kn" else b.t()
    boxes = implementation.config.boxes(problem.math, problem.b_layout)
    of = (("A", stored_a), ("B", stored_b))
    to_tf32, phases = problem.math == "tf32", problem.a_phases
    transpose_c, tma = implementation.transpose_c, implementation.stage.tma
    sides = implementation.config.BLOCK_M, implementation.config.BLOCK_N
    tiles = dict(zip("BA" if transpose_c else "AB", sides, strict=True)) if tma and tma.edge_maps else {}
    along_k = {"A": True, "B": problem.b_layout == "nk"}
    first, second = (
        Boxed(x, boxes[name], to_tf32, tiles.get(name, 0), along_k[name], phases if name == "A" else 1)
        for name, x in of
    )
    result = () if implementation.threads_store_c else (Boxed(c, boxes["C"], phases=phases),)
    if transpose_c:
        return (second, first, *result), problem.n, problem.m
    return (first, second, *result), problem.m, problem.n


def for_gpu(boxed: tuple[Boxed, ...]) -> Callable[..., ctypes.Array]:
    """From the addresses of such matrices, and of others after them, to their maps one after another, as CUtensorMaps.

    A map for each view of each. It raises RuntimeError with the driver's error where that refuses one. It is kept with
    a plan, and so it keeps none of the matrices: their memory can be used again.
    """
    views = [(x.element_type, x.swizzle, View.all_of(x)) for x in boxed]

    def maps_at(*addresses: int) -> ctypes.Array:
        return _aligned(
            b"".join(
                _encode(address + of.offset, element_type, of.rows, of.columns, of.row_bytes, of.box, swizzle)
                for address, (element_type, swizzle, own) in zip(addresses, views, strict=False)
                for of in own
            )
        )

    return maps_at


@functools.lru_cache(maxsize=1024)
def _encode(address: int, element_type: int, rows: int, columns: int, step: int, box: Box, swizzle: int) -> bytes:
    promotion = _PROMOTIONS[_promoted(address, step)]
    return encode(address, element_type, (columns, rows), (step,), (box.columns, box.rows), swizzle, promotion)


def encode(
    address: int,
    element_type: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
    promotion: int = 0,
) -> bytes:
    """A CUtensorMap of memory on the GPU, as the driver encodes it; sizes and box in elements, the innermost first.

    strides: bytes, of each dimension but the innermost. The others are cuda.h's codes. Raises RuntimeError with the
    driver's error where that refuses it.
    """
    whole = _aligned(bytes(MAP_BYTES))
    rank = len(sizes)
    driver.bind_context()
    error = driver.library().cuTensorMapEncodeTiled(
        ctypes.byref(whole),
        element_type,
        rank,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*sizes),
        (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,  # not interleaved
        swizzle,
        promotion,
        0,  # zeros outside the matrix
    )
    if error:
        raise RuntimeError(
            f"the CUDA driver rejected a tensor map of {' x '.join(map(str, reversed(sizes)))} elements of type "
            f"{element_type} (CUtensorMapDataType), {strides} bytes per row, box {box}: CUresult {error}"
        )
    return bytes(whole)


def _promoted(address: int, step: int) -> int:
    """To how many bytes the L2 cache completes what a box's row misses, in a matrix of rows `step` bytes apart.

    Where rows begin at lines of the cache, two lines at once: on an H100 512 x 512 x 32768 takes 38.4 us for 39.9 in
    bf16. Elsewhere a row of a box is parts of two lines, and each would bring another one: there one line, and 3000
    cubed takes 89.5 us for 95.0, 1000 cubed 11.1 for 11.7.
    """
    return LINE_BYTES if address % LINE_BYTES or step % LINE_BYTES else 2 * LINE_BYTES


def _aligned(text: bytes) -> ctypes.Array:
    """The bytes in memory that starts where a CUtensorMap may."""
    room = ctypes.create_string_buffer(len(text) + MAP_ALIGNMENT)
    skip = -ctypes.addressof(room) % MAP_ALIGNMENT
    array = (ctypes.c_char * len(text)).from_buffer(room, skip)
    array.raw = text
    return array
