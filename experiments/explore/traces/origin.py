"""Operands whose elements encode their own position, so that a copied value tells where it came from.

Every element of A, B and C has an id: A's row by row, then B's, then C's. The bits of A's and B's elements are their
ids, as many of them at a time as the type takes, so that what a kernel copies can be read back after some passes. The
elements of C are computed and not copied, so there the product itself has to be a small exact number: the element's row
in one pass and its column in another, modulo EXACT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from experiments.explore.traces.record import NOWHERE
from gemm_ref.compute import MATHS
from gemm_ref.inputs import aligned
from gemm_ref.launch import cdiv
from gemm_ref.operands.split import Operand, Split, split_operands
from gemm_ref.problem import Problem

EXACT = 256  # all integers up to it are exact in bfloat16, the coarsest type of C
_DIGIT = 16  # and up to this in fp8, the coarsest type of A and B
_SALT = 0x5A5A0000  # set in bits that ids leave unused, so that zeros, counters and sums are not mistaken for ids

Operands = tuple[Operand, Operand]  # A (M, K) and B (K, N), or their parts


@dataclass(frozen=True)
class Ids:
    """The ids of the elements of one problem, and the operands that carry them."""

    problem: Problem

    @cached_property
    def first(self) -> dict[str, int]:
        """Returns the id of each matrix's element in row 0 and column 0."""
        of_a, of_b = (rows * columns for rows, columns in self.shapes.values())
        return {"A": 0, "B": of_a, "C": of_a + of_b}

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Returns rows and columns of A and of B; for split operands those of all parts, stored one below the other."""
        parts, problem = MATHS[self.problem.math].parts, self.problem
        return {"A": (parts * problem.m, problem.k), "B": (parts * problem.k, problem.n)}

    @property
    def element_bytes(self) -> int:
        """Returns the bytes of an element of A and B, or of their parts."""
        return MATHS[self.problem.math].part_dtype.itemsize

    @cached_property
    def _digits(self) -> tuple[int, int]:
        """Returns how many bits of an id one element carries, and at which bit of the element they begin.

        Compute types that round their operands keep the upper bits of moderate numbers.
        """
        mode = MATHS[self.problem.math]
        return (12, 14) if mode.operand_eps and mode.parts == 1 else (8 * self.element_bytes, 0)

    @property
    def passes(self) -> int:
        """Returns how many pairs of operands carry all 32 bits of an id."""
        return cdiv(32, self._digits[0])

    def operands(self, number: int) -> Operands:
        """Returns A and B of one of the `passes`."""
        bits, shift = self._digits
        ids = np.arange(self.first["C"], dtype=np.int64) ^ _SALT
        digits = (ids >> bits * number & (1 << bits) - 1) << shift
        carriers = torch.from_numpy(digits.astype(f"u{self.element_bytes}").view(f"i{self.element_bytes}"))
        split = self.first["B"]
        laid = self._as_operands(carriers[:split].clone(), carriers[split:].clone())
        return self._as_parts(*laid) if MATHS[self.problem.math].parts > 1 else laid

    def _as_parts(self, a: torch.Tensor, b: torch.Tensor) -> Operands:
        """Returns these matrices as the parts of split operands whose exponents are 0."""
        math, made = self.problem.math, []
        for x, by_rows in ((a, True), (b, False)):
            parts = x.unflatten(0, (MATHS[math].parts, -1))
            whole = torch.zeros(parts.shape[1:])
            made.append(Split(whole, by_rows, math, parts, torch.zeros(whole.shape[not by_rows], dtype=torch.int32)))
        return made[0], made[1]

    def origins(self, contents: Sequence[np.ndarray]) -> np.ndarray:
        """Decodes the ids in bytes of memory, given those of each pass: (places, bytes) -> (places, elements)."""
        bits, shift = self._digits
        found = np.zeros((len(contents[0]), contents[0].shape[1] // self.element_bytes), np.int64)
        for number, bytes_ in enumerate(contents):
            words = np.ascontiguousarray(bytes_).view(f"u{self.element_bytes}").astype(np.int64)
            found |= (words >> shift & (1 << bits) - 1) << bits * number
        found ^= _SALT
        return np.where((found >= 0) & (found < self.first["C"]), found, NOWHERE)

    def products(self, column: bool) -> Operands:
        """Returns A and B whose product's elements equal their row, or their column, modulo EXACT; K is at least 2."""
        m, n, k = self.problem.m, self.problem.n, self.problem.k
        a, b = np.zeros((m, k), np.float32), np.zeros((k, n), np.float32)
        numbers = np.arange(n if column else m) % EXACT
        digits = np.stack([numbers % _DIGIT, numbers // _DIGIT])
        places = np.array([1, _DIGIT])
        a[:, :2], b[:2] = (places, digits) if column else (digits.T, places[:, None])
        math = MATHS[self.problem.math]
        if math.parts > 1:
            return split_operands(torch.from_numpy(a), torch.from_numpy(b), self.problem.b_layout, math.name)
        return self._as_operands(*(torch.from_numpy(x).to(math.dtype) for x in (a, b)))

    def _as_operands(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns operands in the layout that a kernel reads, from elements (or their bits) stored row by row."""
        dtype, problem = MATHS[self.problem.math].part_dtype, self.problem
        a, b = (x.view(dtype).reshape(shape) for x, shape in zip((a, b), self.shapes.values(), strict=True))
        return aligned(a), aligned(b) if problem.b_layout == "kn" else aligned(b.t().contiguous()).t()


def sum_ids(rows: np.ndarray, columns: np.ndarray, tile: tuple[int, int, int, int], ids: Ids) -> np.ndarray | None:
    """Decodes the ids of the elements of C in the bytes that the passes of rows and of columns wrote.

    rows, columns: (places, bytes); tile: row, column, rows, columns of the block's tile. The sums are of C's type or
    still fp32: the type is used with which each value is an element of the tile. Returns None if neither fits.
    """
    math, first = MATHS[ids.problem.math], ids.first["C"]
    for dtype in dict.fromkeys((math.out_dtype, torch.float32)):
        if rows.shape[1] % dtype.itemsize:
            continue
        row, column = (
            _tile_places(values, dtype, start, size)
            for values, start, size in ((rows, tile[0], tile[2]), (columns, tile[1], tile[3]))
        )
        if row is not None and column is not None:
            return first + row * ids.problem.n + column
    return None


def _tile_places(values: np.ndarray, dtype: torch.dtype, start: int, size: int) -> np.ndarray | None:
    """Decodes rows or columns of a tile from numbers modulo EXACT; None if a number is outside the tile."""
    found = torch.from_numpy(np.ascontiguousarray(values)).view(dtype).float().numpy()
    whole = np.isfinite(found) & (found == np.floor(found)) & (found >= 0) & (found < EXACT)
    if not whole.all():
        return None
    inside = (found.astype(np.int64) - start) % EXACT
    return None if (inside >= size).any() else start + inside
