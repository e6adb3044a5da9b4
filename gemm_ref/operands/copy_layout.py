"""Copies of operands that keep up with memory, both operands of a product in one launch.

torch's own copy takes a launch per operand, and where it turns a matrix round it reaches a quarter of an H200's
bandwidth (about 1.1 TB/s for 4096 x 4096 floats).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

import torch

from gemm_ref.build import BuildError
from gemm_ref.launch import cdiv
from gemm_ref.toolchain import find_toolkit, open_device_library

THREADS, VECTOR, TILE, LINE = 256, 16, 64, 128  # of copy_layout.cu
MOST_BLOCKS = 2**32 // THREADS - 1  # of a copy, whose vectors are counted in 32 bits
MOST_PLANS = 1024  # that are kept


class Copy(ctypes.Structure):
    """`Copy` of copy_layout.cu."""

    _fields_ = [
        ("from_", ctypes.c_void_p),
        ("to", ctypes.c_void_p),
        ("from_step", ctypes.c_longlong),
        ("to_step", ctypes.c_longlong),
        ("lines", ctypes.c_uint),
        ("elements", ctypes.c_uint),
        ("blocks", ctypes.c_uint),
        ("transposed", ctypes.c_uint),
    ]


Pair = tuple[torch.Tensor, torch.Tensor]  # what is copied, and where to; both (rows, columns)
About = tuple[int, int, int, int, int, int]  # a Copy but for its addresses


_NOTED: ContextVar[list[int] | None] = ContextVar("noted", default=None)


@contextlib.contextmanager
def noted_copies() -> Iterator[list[int]]:
    """The bytes that are read and written by each copy in this block that would be a launch on a GPU.

    Of tensors on the CPU, whose operands torch copies and splits.
    """
    noted: list[int] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def note_copy(count: int) -> None:
    """Adds a launch that reads and writes so many bytes to the copies that are noted."""
    noted = _NOTED.get()
    if noted is not None and count:
        noted.append(count)


def copy_all(*pairs: Pair) -> None:
    """Copy each x to its room (rows, columns), of the same dtype, whose rows are stored one after another.

    On a GPU one launch on torch's current stream copies two at a time, where nvcc is there to compile it and `plan`
    knows how; else torch copies. Raises BuildError for a compiler that fails, and RuntimeError if the launch fails.
    """
    mine: list[tuple[Pair, About]] = []
    note_copy(sum(x.nbytes + room.nbytes for x, room in pairs))
    for x, room in pairs:
        copy = plan(x.shape, x.stride(), room.stride(), room.data_ptr() % VECTOR, x.itemsize) if x.is_cuda else None
        if copy is not None and toolkit_is_there():
            mine.append(((x, room), copy))
        elif x.numel():
            room.copy_(x)
    for first in range(0, len(mine), 2):
        _launch(mine[first : first + 2])


def transposed(x: torch.Tensor) -> torch.Tensor:
    """x (rows, columns) as a new row-major tensor (columns, rows); copied as by `copy_all`."""
    out = x.new_empty((x.shape[1], x.shape[0]))
    copy_all((x.t(), out))
    return out


@functools.lru_cache(maxsize=MOST_PLANS)
def plan(
    shape: tuple[int, int], strides: tuple[int, int], room: tuple[int, int], shift: int, itemsize: int
) -> About | None:
    """The copy of a matrix of this shape and these strides to a room of those, but for addresses.

    shift: bytes by which the room begins past a vector.

    None where the kernel has no such copy: of rows to rows that do not begin at vectors, of what has neither rows nor
    columns whose elements lie side by side, of nothing, and of more than it can count.
    """
    (rows, columns), (row_step, column_step) = shape, strides
    if not rows * columns or shift or itemsize not in (1, 2, 4) or room[1] != 1:
        return None
    from_rows = column_step == 1 and row_step >= columns and room[0] * itemsize % VECTOR == 0
    if not from_rows and not (row_step == 1 and column_step >= rows):
        return None
    if from_rows:
        lines, elements, step = rows, columns, row_step
        blocks = cdiv(lines * cdiv(elements * itemsize, VECTOR), THREADS)
    else:
        lines, elements, step = columns, rows, column_step
        blocks = cdiv(lines, TILE) * cdiv(elements * itemsize, LINE)
    if blocks > MOST_BLOCKS or elements * itemsize >= 2**31:
        return None
    return step * itemsize, room[0] * itemsize, lines, elements, blocks, int(not from_rows)


@functools.cache
def toolkit_is_there() -> bool:
    """Whether nvcc is; where it is not, a warning says once in a process who copies instead."""
    try:
        find_toolkit()
    except BuildError as error:
        warnings.warn(f"torch copies operands that are not stored as a kernel reads them: {error}", stacklevel=4)
        return False
    return True


def _launch(pairs: Sequence[tuple[Pair, About]]) -> None:
    (x, _), _ = pairs[0]
    index = x.get_device()
    if torch.cuda.current_device() != index:
        with torch.cuda.device(index):
            return _launch(pairs)
    copies = [Copy(x.data_ptr(), room.data_ptr(), *about) for (x, room), about in pairs]
    first, second = (*copies, Copy())[:2]
    library = _library(torch.cuda.get_device_capability(index))
    error = library.launch(first, second, x.itemsize, torch.cuda.current_stream().cuda_stream)
    if error:
        shapes = " and ".join(str(tuple(x.shape)) for (x, _), _ in pairs)
        raise RuntimeError(f"a copy of {shapes} did not start: {library.describe_error(error).decode()}")


@functools.cache
def _library(capability: tuple[int, int]) -> ctypes.CDLL:
    text = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    library = open_device_library("lay_out", text, capability)
    library.launch.argtypes = [ctypes.POINTER(Copy), ctypes.POINTER(Copy), ctypes.c_int, ctypes.c_void_p]
    return library
