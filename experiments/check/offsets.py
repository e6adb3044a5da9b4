"""Finds offsets that overflow 32 bits: a block runs on small matrices whose row lengths are set to 2^30."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import torch

import gemm_ref
from experiments.check.cuda.kernel import CudaKernel
from experiments.check.messages import Limit, Message, message
from experiments.check.trial import InstructionLimit
from experiments.records.request import UsageError
from gemm_ref import ptx

_ROWS = 8
_SHORT, _LONG = 1 << 10, 1 << 30  # elements of a row: two long ones pass 2^31, and four 2^32
_MAX_ACCESSES = 64  # that are compared
_ALLOCATED = 64  # elements of a matrix whose rows are long


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
