"""How operands are stored, and the copies that store them as a kernel reads them: the one place for both."""

from __future__ import annotations

from math import gcd

import torch

from gemm_ref.compute import MATHS
from gemm_ref.launch import round_up
from gemm_ref.operands.copy_layout import transposed
from gemm_ref.problem import Problem

VECTOR_BYTES = 16  # the most that a thread loads or stores at once
LINE_BYTES, SECTOR_BYTES = 128, 32  # of the L2 cache; a box of the TMA unit is one line wide
MIN_LINES_TO_ALIGN = 4  # rows of at least this many cache lines are copied to the beginning of one
MOST_IN_PHASES = 2**30  # rows of an A that is read in phases: with their tiles they are counted in 32 bits
TMA_BYTES = 16  # the TMA unit takes matrices whose address and row pitch are multiples of this


def lies_in(b: torch.Tensor, layout: str) -> bool:
    """Whether b (K, N) is stored as one of B_LAYOUTS says; a row or a column alone is stored as both."""
    return b.is_contiguous() if layout == "kn" else b.t().is_contiguous()


def as_layout(b: torch.Tensor, layout: str) -> torch.Tensor:
    """b (K, N) laid out as one of B_LAYOUTS says: itself where it already is, else a copy."""
    if layout == "kn":
        return b.contiguous()
    return b if lies_in(b, "nk") else transposed(b.contiguous()).t()


def has_vector_rows(x: torch.Tensor) -> bool:
    """Whether every row of a row-major x is made of whole vectors of 16 bytes, and starts at a multiple of them."""
    return x.data_ptr() % VECTOR_BYTES == 0 and x.shape[1] * x.itemsize % VECTOR_BYTES == 0


def as_operand(x: torch.Tensor) -> torch.Tensor:
    """The numbers of x as a kernel reads them: row-major, outside autograd, with a lazy negation carried out.

    x itself where it is so.
    """
    return resolve_views(x).contiguous()


def as_operand_b(b: torch.Tensor, layout: str) -> torch.Tensor:
    """As `as_operand`, laid out as one of B_LAYOUTS says."""
    return as_layout(resolve_views(b), layout)


def layout_of(b: torch.Tensor, layouts: tuple[str, ...]) -> str:
    """In which of the layouts that a kernel reads b (K, N) is stored; the first, to be copied to, where in none.

    A part of a wider matrix is stored as that is.
    """
    stored = [layout for layout in layouts if lies_in(b, layout)]
    stored += [layout for layout in layouts if b.stride(1 if layout == "kn" else 0) == 1]
    return (*stored, layouts[0])[0]


def phases_at(problem: Problem) -> int:
    """As how many matrices the TMA unit can read A (M, K), whose rows follow each other, where they are stored.

    Rows begin at any multiple of an element, and the unit wants them at multiples of TMA_BYTES. But a row and the one
    that is so many rows further begin equally far behind such a multiple. So each phase, every so-manyth row, is a
    matrix for the unit, whose first columns belong to the rows before (cuda_kernels/include/phases.cuh). 1 where all
    rows begin at multiples, where A has too few rows, and where B is not stored by rows.
    """
    phases = TMA_BYTES // gcd(TMA_BYTES, problem.k * MATHS[problem.math].dtype.itemsize)
    return phases if phases <= problem.m <= MOST_IN_PHASES and problem.b_layout == "kn" else 1


def has_phases(a: torch.Tensor) -> bool:
    """Whether rows of a follow each other, from an address on that the TMA unit takes."""
    return a.is_contiguous() and a.data_ptr() % TMA_BYTES == 0


def padded_to_lines(x: torch.Tensor) -> torch.Tensor:
    """A new tensor like x (rows, columns), not filled, whose rows begin at lines of the L2 cache."""
    rows, columns = x.shape
    return x.new_empty((rows, round_up(columns, LINE_BYTES // x.itemsize)))[:, :columns]


def with_padding(x: torch.Tensor) -> torch.Tensor:
    """The contiguous matrix that padded rows of x are a part of: (rows, elements from a row to the next)."""
    return x.as_strided((x.shape[0], x.stride(0)), (x.stride(0), 1))


def resolve_views(x: torch.Tensor) -> torch.Tensor:
    """The numbers of x outside autograd, with a lazy negation carried out; x itself where it is so."""
    return (x.detach() if x.requires_grad else x).resolve_neg()


def with_tma_rows(x: torch.Tensor) -> torch.Tensor:
    """x (rows, columns), row-major, with its rows where the TMA unit can find them.

    The unit wants the first element and the step from row to row at multiples of TMA_BYTES (CUDA driver API,
    cuTensorMapEncodeTiled); x itself where they are, else a view of a copy whose rows are padded. What is in the
    padding does not matter: the unit knows where a row ends, and gives zeros past it.
    """
    return x if has_tma_rows(x) else padded(x).copy_(x)


def align_pairs(x: torch.Tensor) -> torch.Tensor:
    """x (rows, columns), row-major, such that two neighbours of a row can be read at once, the first at an even column.

    x itself where they are at a multiple of their size, else a view of a copy whose rows are padded.
    """
    pairs = x.shape[1] % 2 == 0 and x.data_ptr() % (2 * x.itemsize) == 0
    return x if pairs else padded(x).copy_(x)


def pairs_with_padding(x: torch.Tensor) -> torch.Tensor:
    """All elements of the rows of x, as `align_pairs` makes it, to the next row: (rows, an even number)."""
    rows, columns = x.shape
    alone = _padded_columns(x, columns) if columns % 2 else columns
    step = x.stride(0) if rows > 1 else alone
    return x.as_strided((rows, step), (step, 1))


def has_tma_rows(x: torch.Tensor) -> bool:
    """Whether x (rows, columns) is as `with_tma_rows` makes it: all of its own, or a part of a wider matrix."""
    (rows, columns), (row_step, column_step) = x.shape, x.stride()
    apart = rows <= 1 or (row_step >= columns and row_step * x.itemsize % TMA_BYTES == 0)
    return apart and (column_step == 1 or columns <= 1) and x.data_ptr() % TMA_BYTES == 0


def has_stored_rows(x: torch.Tensor) -> bool:
    """Whether the TMA unit can store to rows of x (rows, columns): it writes whole TMA_BYTES, past a row's end too."""
    return has_tma_rows(x) and x.shape[1] * x.itemsize % TMA_BYTES == 0


def row_elements(x: torch.Tensor) -> int:
    """The row pitch of x in elements, as `with_tma_rows` makes it; of a single row torch's own stride is arbitrary."""
    rows, columns = x.shape
    return x.stride(0) if rows > 1 else _padded_columns(x, columns)


def _padded_columns(x: torch.Tensor, columns: int) -> int:
    """Columns of a row of x that ends at a multiple of TMA_BYTES, or of a line of L2 where that is little more."""
    return round_up(
        columns, (TMA_BYTES if columns * x.itemsize < MIN_LINES_TO_ALIGN * LINE_BYTES else LINE_BYTES) // x.itemsize
    )


def padded(x: torch.Tensor) -> torch.Tensor:
    """A new tensor like x (rows, columns), not filled, whose rows are TMA_BYTES or a multiple of them apart."""
    rows, columns = x.shape
    return x.new_empty((rows, _padded_columns(x, columns)))[:, :columns]
