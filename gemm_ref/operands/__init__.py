"""How operands are stored, and the copies that store them as a kernel reads them: the one place for both."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

import torch

from gemm_ref.compute import MATHS
from gemm_ref.launch import cdiv
from gemm_ref.operands.lay_out import copy_all, transposed
from gemm_ref.problem import Problem

VECTOR_BYTES = 16  # what a thread loads or stores at once
LINE_BYTES, SECTOR_BYTES = 128, 32  # of the L2 cache: a box of the TMA unit is as wide as a line of it
MANY_LINES = 4  # in which a row is copied that shall begin at one
MOST_IN_PHASES = 2**30  # rows of an A that is read in phases: with all their tiles they are counted in 32 bits
TMA_BYTES = 16  # what the TMA unit wants the first address and the step from row to row to be a multiple of


def check_shapes(a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ValueError unless a (M, K) and b (K, N) are dense matrices whose inner sizes agree."""
    for name, x, shape in (("a", a, "(M, K)"), ("b", b, "(K, N)")):
        if not isinstance(x, torch.Tensor):
            raise ValueError(
                f"{name} must be a torch.Tensor, not {type(x).__name__}: torch.as_tensor({name}) makes one"
            )
        if x.layout != torch.strided:
            raise ValueError(f"{name} must be dense; its layout is {x.layout}: pass {name}.to_dense()")
        if x.dim() != 2:
            raise ValueError(f"{name} must have 2 dimensions, {shape}; its shape is {tuple(x.shape)}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"the inner sizes differ: a is {tuple(a.shape)} and b is {tuple(b.shape)}; "
            f"b must have {a.shape[1]} rows, as a has columns"
        )


def check_grad(name: str, x: torch.Tensor) -> None:
    """Raise ValueError if x, which is given by that name, requires grad where grad mode is on."""
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires grad, and the kernels are outside autograd: pass {name}.detach(), or call inside "
            "torch.no_grad()"
        )


def check_sizes(math: str, **sizes: int) -> None:
    """Raise ValueError unless kernels of a math mode can count so many rows and columns, which are given by name."""
    most = MATHS[math].most
    if max(sizes.values()) > most:
        raise ValueError(
            f"kernels count rows and columns in 32 bits, so in {math} no size may pass {most}; they are {sizes}: cut "
            "the operands, and multiply the pieces"
        )


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
    return _plain(x).contiguous()


def as_operand_b(b: torch.Tensor, layout: str) -> torch.Tensor:
    """As `as_operand`, laid out as one of B_LAYOUTS says."""
    return as_layout(_plain(b), layout)


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


Lay = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def laying(
    a: torch.Tensor, b: torch.Tensor, b_layout: str, tma: bool, copied_b: bool = False, in_phases: bool = False
) -> Lay | None:
    """What lays out operands like a (M, K) and b (K, N) as a kernel reads them; None where they are stored so.

    That is outside autograd, with a lazy negation carried out, A by rows and B as one of B_LAYOUTS says: one row after
    another or, for a rung that uses the TMA unit, where that finds them. What is copied is copied in one launch.
    copied_b: whether rows of B shall begin at lines of the L2 cache. in_phases: whether A is read in its phases.
    """
    fits, room = (has_tma_rows, padded) if tma else (torch.Tensor.is_contiguous, _dense)
    rooms = room, lined if copied_b else room

    def lines(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        a, b = _plain(a), _plain(b)
        return [a, b if b_layout == "kn" else b.t()]

    copied = [not fits(x) for x in lines(a, b)]
    copied[0] &= not in_phases
    copied[1] |= copied_b
    if not any(copied) and _plain(a) is a and _plain(b) is b:
        return None

    def lay(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        stored = lines(a, b)
        laid = [room(x) if is_copied else x for x, room, is_copied in zip(stored, rooms, copied, strict=True)]
        copy_all(*(pair for pair, is_copied in zip(zip(stored, laid, strict=True), copied, strict=True) if is_copied))
        return laid[0], laid[1] if b_layout == "kn" else laid[1].t()

    return lay


def _dense(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


def lined(x: torch.Tensor) -> torch.Tensor:
    """A new tensor like x (rows, columns), not filled, whose rows begin at lines of the L2 cache."""
    rows, columns = x.shape
    return x.new_empty((rows, _up(columns, LINE_BYTES // x.itemsize)))[:, :columns]


def whole_rows(x: torch.Tensor) -> torch.Tensor:
    """All elements from the first row of x, whose rows are some way apart, to the end of its last: contiguous."""
    return x.as_strided((x.shape[0], x.stride(0)), (x.stride(0), 1))


def _plain(x: torch.Tensor) -> torch.Tensor:
    return (x.detach() if x.requires_grad else x).resolve_neg()


def with_tma_rows(x: torch.Tensor) -> torch.Tensor:
    """x (rows, columns), row-major, with its rows where the TMA unit can find them.

    The unit wants the first element and the step from row to row at multiples of TMA_BYTES (CUDA driver API,
    cuTensorMapEncodeTiled); x itself where they are, else a view of a copy whose rows are padded. What is in the
    padding does not matter: the unit knows where a row ends, and gives zeros past it.
    """
    return x if has_tma_rows(x) else padded(x).copy_(x)


def with_pairs(x: torch.Tensor) -> torch.Tensor:
    """x (rows, columns), row-major, such that two neighbours of a row can be read at once, the first at an even column.

    x itself where they are at a multiple of their size, else a view of a copy whose rows are padded.
    """
    pairs = x.shape[1] % 2 == 0 and x.data_ptr() % (2 * x.itemsize) == 0
    return x if pairs else padded(x).copy_(x)


def whole_pairs(x: torch.Tensor) -> torch.Tensor:
    """All elements of the rows of x, as `with_pairs` makes it, to the next row: (rows, an even number)."""
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
    """Elements from a row of x, as `with_tma_rows` makes it, to the next; where there is one, torch says anything."""
    rows, columns = x.shape
    return x.stride(0) if rows > 1 else _padded_columns(x, columns)


def _padded_columns(x: torch.Tensor, columns: int) -> int:
    """Columns of a row of x that ends at a multiple of TMA_BYTES, or of a line of L2 where that is little more."""
    return _up(columns, (TMA_BYTES if columns * x.itemsize < MANY_LINES * LINE_BYTES else LINE_BYTES) // x.itemsize)


def _up(count: int, multiple: int) -> int:
    return cdiv(count, multiple) * multiple


def padded(x: torch.Tensor) -> torch.Tensor:
    """A new tensor like x (rows, columns), not filled, whose rows are TMA_BYTES or a multiple of them apart."""
    rows, columns = x.shape
    return x.new_empty((rows, _padded_columns(x, columns)))[:, :columns]
