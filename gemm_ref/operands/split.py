"""Operands in parts: an fp32 element as two numbers of fp16, or three of bf16, whose products tensor cores add.

A line, a row of A or a column of B, is multiplied by a power of two, so that its largest element is in [2^14, 2^15).
Part 0 is what that rounds to, part 1 what is left (2^12 times as large in fp16, whose exponents end early), and so on.
So of an element x of a line whose largest is t

    fp16x3 loses 2^-23 |x| at most down to 2^-28 t, and 2^-51 t below that;
    bf16x6 loses nothing down to 2^-124 t, and 2^-148 t below that.

What that cannot hold is told by line, and computed otherwise (`on_range`): see WIDE.

**Sources.** Ootomo and Yokota, 'Recovering single precision accuracy from Tensor Cores', IJHPCA 36 (2022), for two
parts of fp16, the second one scaled; Henry, Tang and Heinecke, 'Leveraging the bfloat16 AI datatype for higher
precision computations', ARITH 2019, for three parts of bf16.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import torch

from gemm_ref.call.validate import check_grad, check_sizes
from gemm_ref.compute import B_LAYOUTS, EMULATED, MATHS, WIDE
from gemm_ref.launch import Launch, cdiv
from gemm_ref.operands import as_operand, as_operand_b, layout_of, padded
from gemm_ref.operands.copy_layout import note_copy, toolkit_is_there
from gemm_ref.toolchain import REFERENCE_CAPABILITY, open_device_library

TOP = 14  # the exponent of a line's largest element, scaled
LEAST_LINE = -100  # of one that is not scaled
SPARE = 2  # elements of a line that may be below 2**least
THREADS, STRIP = 512, 32  # of split.cu: threads of a block, and columns of which it finds the largest elements
SHARERS, STEPS = 8, 4  # blocks that share lines at most, and the vectors of a thread that make one more worth its wait


class OutOfRange(ValueError):
    """Operands that a math mode does not hold in parts, where `on_range="raise"`."""


@dataclass
class RangeReport:
    """The emulated products inside `range_report()`: the rung of each, and what it computed in fp32 instead."""

    rungs: list[str] = field(default_factory=list)  # ids, product by product: of s20, or of SGEMM where that is faster
    exponents: list[tuple[torch.Tensor, ...]] = field(default_factory=list)  # of rows and columns; none of SGEMM

    def __repr__(self) -> str:
        return f"RangeReport(rungs={self.rungs}, wide={self.wide})"

    @property
    def wide(self) -> list[tuple[list[int], list[int]]]:
        """The rows of A and the columns of B that parts do not hold, product by product; it waits for the GPU."""
        found = [[_wide(each).tolist() for each in lines] or [[], []] for lines in self.exponents]
        return [(rows, columns) for rows, columns in found]

    @property
    def widened(self) -> bool:
        """Whether any row or column was computed in fp32 because parts do not hold it; it waits for the GPU."""
        return any(rows or columns for rows, columns in self.wide)


_REPORTS: ContextVar[tuple[RangeReport, ...]] = ContextVar("reports", default=())


@contextlib.contextmanager
def range_report() -> Iterator[RangeReport]:
    """A report on the emulated products of this block. It costs no time until it is read."""
    report = RangeReport()
    token = _REPORTS.set((*_REPORTS.get(), report))
    try:
        yield report
    finally:
        _REPORTS.reset(token)


@dataclass(frozen=True, repr=False)
class Split:
    """An operand in parts, and the operand itself."""

    matrix: torch.Tensor  # fp32, contiguous: A (M, K), B (K, N), or B^T (N, K)
    by_rows: bool  # whether its rows are the lines: of A, and of B^T
    math: str
    parts: torch.Tensor  # (parts, rows, columns), each with its rows as `padded` has them
    exponents: torch.Tensor  # int32, of each line: elements are multiplied by 2**exponent; or WIDE
    side: str = ""  # "a" or "b", as which `split_operand` has made it; empty where a call splits its own

    def __repr__(self) -> str:
        rows, columns = self.matrix.shape
        shape = (columns, rows) if self.side == "b" and self.by_rows else (rows, columns)
        return f"Split({self.side} of shape {shape} in {self.math}, on {self.matrix.device})"

    @property
    def step(self) -> int:
        """Elements from a row of a part to the next."""
        return self.parts.stride(0) // self.parts.shape[1]

    @property
    def wide(self) -> torch.Tensor:
        """The numbers of the lines that the mode does not hold; it waits for the GPU."""
        return _wide(self.exponents)


Operand: TypeAlias = torch.Tensor | Split


def _wide(exponents: torch.Tensor) -> torch.Tensor:
    return (exponents == WIDE).nonzero()[:, 0]


def note_product(rung: str, *exponents: torch.Tensor) -> None:
    """Notes a product of an emulated compute type in the open reports; exponents: of the rows and columns, if split."""
    for report in _REPORTS.get():
        report.rungs.append(rung)
        report.exponents.append(exponents)


def check_range(rung: str, a: Split, b: Split, raise_on_range: bool) -> None:
    """Notes a product in the open reports; raises OutOfRange for lines that parts do not hold if `raise_on_range`.

    That waits for the GPU.
    """
    note_product(rung, a.exponents, b.exponents)
    if not raise_on_range:
        return
    found = (("rows", a.wide.tolist(), "a"), ("columns", b.wide.tolist(), "b"))
    named = [
        f"{what} {', '.join(map(str, lines[:5]))}{', ...' * (len(lines) > 5)} of {side}"
        for what, lines, side in found
        if lines
    ]
    if named:
        more = "" if a.math == "bf16x6" else ", or math='bf16x6', which holds nearly all of fp32's exponents"
        raise OutOfRange(
            f"{a.math} does not hold {' and '.join(named)} (infinite, NaN, very small, or of exponents too far apart): "
            f"pass on_range='widen' to have them computed in fp32{more}"
        )


def split_operand(x: torch.Tensor, side: str, *, math: str) -> Split:
    """An operand in parts, to be kept for many products: what `gemm` takes in place of a (M, K) or b (K, N).

    side: "a" or "b". It holds x too, and later changes of x do not reach it. Raises ValueError for another side, for
    another math mode than those of EMULATED, and for an x that is no fp32 matrix, is too large, or requires grad.
    """
    if side not in ("a", "b"):
        raise ValueError(f"side must be 'a' or 'b', which says whose lines are scaled, not {side!r}")
    if math not in EMULATED:
        raise ValueError(f"operands are split in {' or '.join(EMULATED)}, not in {math!r}")
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{side} must be a torch.Tensor, not {type(x).__name__}")
    if x.dim() != 2 or x.dtype != torch.float32 or x.layout != torch.strided:
        found = f"of {x.dtype}, of shape {tuple(x.shape)}, {x.layout}"
        raise ValueError(f"{side} must be a dense matrix of torch.float32; it is {found}")
    check_grad(side, x)
    check_sizes(math, rows=x.shape[0], columns=x.shape[1])
    layout = "kn" if side == "a" else layout_of(x, B_LAYOUTS)
    rows = as_operand(x) if side == "a" else as_operand_b(x, layout)
    rows = rows if layout == "kn" else rows.t()
    made = split(rows.clone() if rows.data_ptr() == x.data_ptr() else rows, side == "a" or layout == "nk", math)
    return replace(made, side=side)


def split_operands(a: Operand, b: Operand, b_layout: str, math: str) -> tuple[Split, Split]:
    """The parts of a (M, K) and b (K, N) for a rung that multiplies them; what is in parts already stays as it is."""
    if not isinstance(a, Split):
        a = split(as_operand(a), True, math)
    if not isinstance(b, Split):
        b = as_operand_b(b, b_layout)
        b = split(b if b_layout == "kn" else b.t(), b_layout == "nk", math)
    return a, b


def split(matrix: torch.Tensor, by_rows: bool, math: str) -> Split:
    """The parts of a contiguous fp32 matrix (rows, columns), whose lines are its rows or its columns.

    On a GPU with nvcc one launch on torch's current stream, which reads the matrix twice: for the largest elements, and
    to split it. Else torch's operations, which give the same bits. Raises BuildError for a compiler that fails.
    """
    mode = MATHS[math]
    rows, columns = matrix.shape
    room = padded(matrix.new_empty(1, dtype=mode.part_dtype).expand(mode.parts * rows, columns))
    parts = room.unflatten(0, (mode.parts, rows))
    if matrix.is_cuda and matrix.numel() and toolkit_is_there():
        exponents = matrix.new_empty(rows if by_rows else columns, dtype=torch.int32)
        made = Split(matrix, by_rows, math, parts, exponents)
        _launch(made)
        return made
    if matrix.is_meta:  # for a compiler, which looks at no number; and torch's `abs` of such a one imports its own
        return Split(matrix, by_rows, math, parts, matrix.new_empty(rows if by_rows else columns, dtype=torch.int32))
    exponents, found = in_parts(matrix, by_rows, math)
    torch.stack(found, out=parts)
    note_copy(matrix.nbytes + parts.nbytes)
    return Split(matrix, by_rows, math, parts, exponents)


def in_parts(x: torch.Tensor, by_rows: bool, math: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The exponents of the lines of x, and its parts: what `split.cu` does, in torch's operations."""
    mode, along = MATHS[math], 1 if by_rows else 0
    top = x.abs().amax(along) if x.numel() else x.new_zeros(x.shape[1 - along])
    held = (top == 0) | ((top >= 2.0**LEAST_LINE) & top.isfinite())
    exponents = torch.where(held & (top > 0), TOP + 1 - torch.frexp(top).exponent, 0).int()
    scaled = torch.ldexp(x, exponents.unsqueeze(along))
    small = ((x != 0) & (scaled.abs() < 2.0**mode.least)).sum(along)
    left = torch.where(held.unsqueeze(along), scaled, 0.0)
    parts = []
    for i in range(mode.parts):
        parts.append(left.to(mode.part_dtype))
        left = (left - parts[i].float()) * (2.0**mode.part_shift if i == 0 else 1.0)
    return torch.where(held & (small <= SPARE), exponents, WIDE).int(), parts


def _launch(made: Split) -> None:
    x = made.matrix
    index = x.get_device()
    if torch.cuda.current_device() != index:
        with torch.cuda.device(index):
            return _launch(made)
    gpu = torch.cuda.get_device_properties(index)
    capability = gpu.major, gpu.minor
    launch = launch_of(x.shape, made.by_rows, gpu.multi_processor_count, capability)
    library = _library(capability, made.math)
    addresses = (t.data_ptr() for t in (x, made.parts, made.exponents))
    stream = torch.cuda.current_stream().cuda_stream
    blocks, sharers = launch.grid[0], launch.cluster[0]
    error = library.launch(*addresses, *x.shape, made.step, int(made.by_rows), blocks, sharers, stream)
    if error:
        shape = tuple(x.shape)
        raise RuntimeError(f"the split of {shape} did not start: {library.describe_error(error).decode()}")


@functools.lru_cache(maxsize=256)  # a product of a shape is computed many times
def launch_of(shape: torch.Size, by_rows: bool, sms: int, capability: tuple[int, int] = REFERENCE_CAPABILITY) -> Launch:
    """The launch that splits a matrix of this shape on a GPU of `sms` multiprocessors.

    A block has a row or STRIP columns, or a cluster of blocks has. Before compute capability 9.0 there are no clusters.

    Blocks share what is long while all of them run at once: two of a multiprocessor in pairs, which fit anywhere, and
    one in larger clusters, of which two leave gaps (2048 rows of 2048: 26 us in clusters of 2, 33 of 4; an H200).
    """
    rows, columns = shape
    lines, length, across = (rows, columns, 1) if by_rows else (cdiv(columns, STRIP), rows, STRIP)
    steps = length * across // (4 * THREADS)  # vectors of a thread, in a block that shares with none
    most = SHARERS if capability >= (9, 0) else 1
    sharers = 1
    while sharers < most and sharers * lines <= (sms if sharers == 1 else sms // 2) and 2 * sharers * STEPS <= steps:
        sharers *= 2
    return Launch((sharers * lines, 1, 1), (THREADS, 1, 1), cluster=(sharers, 1, 1))


def source_of(math: str) -> str:
    """The text of split.cu for a math mode."""
    mode = MATHS[math]
    values = {"PARTS": mode.parts, "PART_SHIFT": mode.part_shift, "LEAST": mode.least, "TOP": TOP,
              "LEAST_LINE": LEAST_LINE, "SPARE": SPARE, "WIDE": WIDE, "THREADS": THREADS, "STRIP": STRIP}  # fmt: skip
    constants = "".join(f"constexpr int {name} = {value};\n" for name, value in values.items())
    text = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    types = f"#include <cuda_bf16.h>\n#include <cuda_fp16.h>\nusing Part = {mode.part_element.cpp};\n"
    return f'{types}{constants}#line 1 "split.cu"\n{text}'


@functools.cache
def _library(capability: tuple[int, int], math: str) -> ctypes.CDLL:
    library = open_device_library(f"split_{math}", source_of(math), capability)
    library.launch.argtypes = [*[ctypes.c_void_p] * 3, *[ctypes.c_int] * 6, ctypes.c_void_p]
    return library


def error_bound(a: torch.Tensor, b: torch.Tensor, math: str, in_fp32: bool = False) -> torch.Tensor:
    """The contract: what each element of C (M, N) may be off by at most, in fp64, for any finite a (M, K) and b (K, N).

    A share of |A| @ |B| and, for the SPARE elements of a line that may be smaller than parts can be, a much smaller one
    of the largest elements. Where a line is WIDE, it is what fp32 may lose instead; and everywhere if SGEMM computes
    the product (in_fp32).
    """
    mode, fp32, k = MATHS[math], MATHS["fp32"], a.shape[1]
    magnitudes = a.double().abs(), b.double().abs()
    rows, columns = ((in_parts(x, True, math)[0] == WIDE) | in_fp32 for x in (a, b.t()))
    scale, largest = magnitudes[0] @ magnitudes[1], magnitudes[0].amax(1)[:, None] * magnitudes[1].amax(0)
    held = (mode.operand_eps + k * mode.sum_eps / 2) * scale + 2.0 ** (mode.least - 32) * largest
    return torch.where(rows[:, None] | columns, k * fp32.sum_eps / 2 * scale, held) + (k + 1) * 2.0**-150
