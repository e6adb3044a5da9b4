"""Runs one block of a kernel: which tile of C it stores, how far it fetches ahead, and which offsets overflow 32 bits.

For the offsets a block runs on small matrices whose row lengths are set to 2^30.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import numpy as np
import torch

import gemm_ref
from experiments.check.cuda.kernel import CudaKernel
from experiments.check.messages import Limit, Message, message
from experiments.check.subject import Subject, Survey
from experiments.check.trial import InstructionLimit, Trial, attempt
from experiments.records.request import UsageError
from gemm_ref import ptx

SIDE = 512  # of the cube whose first block runs: two tiles, and more slices than any pipeline has
_MAX_SIDE = SIDE // 2  # rows or columns of a tile, or products of a slice
_MAX_AHEAD = 384  # columns of A that shared memory may hold
_MAX_PARTS = 16  # of C that a block stores one after another, loading A for each; after more it is stopped
_MIN_DEPTH, _SLICE = 128, 32  # products of each sum, and those of a slice where it is not known

_ROWS = 8
_SHORT, _LONG = 1 << 10, 1 << 30  # elements of a row: two long ones pass 2^31, and four 2^32
_MAX_ACCESSES = 64  # that are compared
_ALLOCATED = 64  # elements of a matrix whose rows are long


def survey(subject: Subject) -> Survey:
    """Runs the first block alone, unless it ran; what it does not show gets common values."""
    return subject.survey or first_block(subject)[0]


def first_block(subject: Subject) -> tuple[Survey, Trial]:
    """Returns what the first block does, and its run, with the result of that block alone."""
    problem = subject.nearest_problem(gemm_ref.Problem(SIDE, SIDE, SIDE))
    seen = _Seen(problem)
    with ptx.first_block():
        trial = attempt(subject, problem, scales=subject.plain, observers=(seen,))
    return seen.result(), trial


class _Walks(ptx.PtxError):
    """The block stores one part of C after another, such as each column of its rows."""


class _Seen(ptx.Observer):
    def __init__(self, problem: gemm_ref.Problem) -> None:
        self._problem = problem
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._stored, self._parts_end = False, 0  # since A was last loaded; rows of earlier parts
        # Of C, each stored before A was loaded again: first and last row, first and last column
        self._parts: list[tuple[int, ...]] = []
        self._last: dict[int, int] = {}  # the last column of A that was loaded, by the barriers before
        self._barriers = 0
        self._shared = 0
        self._bytes = gemm_ref.MATHS[problem.math].dtype.itemsize

    def on_launch(self, kernel, launch, memory) -> None:
        self._shared = max(self._shared, kernel.static_shared.size + launch.shared_bytes)

    def on_synchronisation(self, event: ptx.Synchronisation) -> None:
        self._barriers += event.opens and event.barrier[0] in ("barrier", "mbarrier")

    def on_access(self, access: ptx.Access) -> None:
        if access.space == "global":
            lanes = slice(None) if access.lanes is None or access.addresses.ndim == 0 else access.lanes
            self._look(access.kind, np.atleast_1d(access.addresses)[lanes], access.size, access.machine)

    def on_bulk(self, access: ptx.BulkAccess) -> None:
        if access.space == "global" and access.started:
            self._look(access.kind, access.addresses, access.size, access.machine)

    def _look(self, kind: str, addresses: np.ndarray, size: int, machine) -> None:
        for tensor in machine.memory.tensors:
            inside = addresses[(addresses >= tensor.first) & (addresses < tensor.first + tensor.size)]
            if not inside.size or tensor.name not in ("A", "C"):
                continue
            width = tensor.owner.element_size()
            first = (inside - tensor.first) // width
            last = first + size // width - 1
            if tensor.name == "A" and kind == "load":
                self._begin_part()
                column = int((last % self._problem.k).max())
                self._last[self._barriers] = max(column, self._last.get(self._barriers, 0))
            elif tensor.name == "C" and kind != "load":
                self._stored = True
                self._rows += [int(first.min()) // self._problem.n, int(last.max()) // self._problem.n]
                self._columns += [int((first % self._problem.n).min()), int((last % self._problem.n).max())]

    def _begin_part(self) -> None:
        if not self._stored:
            return
        self._stored = False
        new = slice(self._parts_end, None)
        part = (min(self._rows[new]), max(self._rows[new]), min(self._columns[new]), max(self._columns[new]))
        self._parts_end = len(self._rows)
        if part not in self._parts:  # sums in C itself are stored again and again
            self._parts.append(part)
        if len(self._parts) > _MAX_PARTS:
            self._rows, self._columns = list(self._parts[0][:2]), list(self._parts[0][2:])
            raise _Walks("the first block stores one part of C after another")

    def result(self) -> Survey:
        tile = None
        if self._rows:
            sides = max(self._rows) - min(self._rows) + 1, max(self._columns) - min(self._columns) + 1
            tile = sides if max(sides) <= _MAX_SIDE else None
        reached = np.maximum.accumulate([self._last[count] + 1 for count in sorted(self._last)] or [self._problem.k])
        steps = np.diff(reached)
        steps = steps[(steps > 0) & (steps <= _MAX_SIDE)]
        slice_, ahead = (int(steps.min()), int(reached[0])) if steps.size else (_SLICE, 0)
        rows = sum(tile) if tile else 0
        held = min(self._shared // (rows * self._bytes), _MAX_AHEAD) if rows else 0
        depth = max(ahead + 3 * slice_, held + 2 * slice_, _MIN_DEPTH)
        return Survey(tile, slice_, math.ceil(depth / slice_) * slice_, len(self._parts) > _MAX_PARTS)


# --- offsets ---------------------------------------------------------------------------------------------------------


class _Offsets(ptx.Observer):
    """Collects accesses of global memory up to the first fault: instruction, matrix and each lane's bytes into it."""

    def __init__(self) -> None:
        self.accesses: list[tuple[ptx.Access, str, np.ndarray]] = []

    def on_access(self, access: ptx.Access) -> None:
        if access.space != "global":
            return
        lanes = slice(None) if access.lanes is None else access.lanes
        addresses = access.addresses if access.addresses.ndim == 0 else access.addresses[lanes]
        if addresses.size:
            first = int(addresses.flat[0])
            near = min(access.machine.memory.tensors, key=lambda tensor: abs(tensor.first - first))
            self.accesses.append((access, near.name, addresses - near.first))
        if len(self.accesses) == _MAX_ACCESSES:
            raise ptx.EndlessLoop("enough accesses were collected")


def find_overflows(subject: CudaKernel) -> list[Message]:
    """Returns a limit for A and for C where their offsets are computed in 32 bits.

    One block runs twice, with short rows and with long ones: a lane must access the same row and column in both. The
    second run ends at the first access outside of the few elements that are allocated.
    """
    found: dict[str, Message] = {}
    if subject.launch.has_expressions:  # host code would be called with matrices of any size
        subject = subject.changed(launch=replace(subject.launch.as_expressions(), grid=("1",)))
    width = gemm_ref.MATHS[subject.math].dtype.itemsize
    for name, axis, base in (("C", "n", gemm_ref.Problem(_ROWS, 1, 0)), ("A", "k", gemm_ref.Problem(_ROWS, 1, 1))):
        runs = [_accesses(subject, base.resized(**{axis: size})) for size in (_SHORT, _LONG)]
        for (one, of_one, near), (other, of_other, far) in zip(*runs, strict=False):
            if one.instruction is not other.instruction or of_one != of_other or near.shape != far.shape:
                break  # it goes another way
            if of_one != name or name in found:
                continue
            row, column = np.divmod(near // width, _SHORT)
            wanted = row * _LONG + column
            wrapped = wanted[(wanted * width != far) & ((wanted * width - far) % (1 << 32) == 0)]
            if wrapped.size:
                where, bits = other.instruction, int(wrapped.min()).bit_length() - 1
                place = {"file": where.file, "line": where.line}
                found[name] = message(Limit.OFFSETS_IN_32_BITS, matrix=name, bits=bits, **place)
    return list(found.values())


def _accesses(subject: CudaKernel, problem: gemm_ref.Problem) -> list[tuple[ptx.Access, str, np.ndarray]]:
    dtype = gemm_ref.MATHS[subject.math].dtype
    sizes = {"A": problem.m * problem.k, "B": problem.k * problem.n} | dict.fromkeys("CD", problem.m * problem.n)
    held = {
        role: torch.zeros(max(size, _ALLOCATED) if size <= _ROWS * _SHORT else _ALLOCATED, dtype=dtype)
        for role, size in (sizes | {"BIAS": problem.n}).items()
    }
    with (
        contextlib.suppress(ptx.PtxError, UsageError, MemoryError),
        ptx.watched(observer := _Offsets(), InstructionLimit()),
    ):
        launch = replace(subject.launch.at(problem), grid=(1, 1, 1))
        subject.start(problem, launch, held)
    return observer.accesses
