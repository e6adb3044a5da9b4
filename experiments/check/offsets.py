"""Whether a kernel's offsets can pass 32 bits: what a block asks of matrices whose rows pretend to be that long."""

from __future__ import annotations

import contextlib

import numpy as np
import torch

import gemm_ref
from experiments.check.cuda.cuda_file import CudaKernel
from experiments.check.trial import Patience
from experiments.records.request import UsageError
from gemm_ref import ptx

_ROWS = 8
_SHORT, _LONG = 1 << 10, 1 << 30  # elements of a row: two long ones pass 2^31, and four 2^32
_MOST = 64  # accesses that are compared
_FEW = 64  # elements of a matrix that pretends to be large


class _Offsets(ptx.Observer):
    """Accesses of global memory up to the first fault: the instruction, the matrix, and each lane's bytes into it."""

    def __init__(self) -> None:
        self.seen: list[tuple[ptx.Access, str, np.ndarray]] = []

    def on_access(self, access: ptx.Access) -> None:
        if access.space != "global":
            return
        lanes = slice(None) if access.lanes is None else access.lanes
        addresses = access.addresses if access.addresses.ndim == 0 else access.addresses[lanes]
        if addresses.size:
            first = int(addresses.flat[0])
            near = min(access.machine.memory.tensors, key=lambda tensor: abs(tensor.first - first))
            self.seen.append((access, near.name, addresses - near.first))
        if len(self.seen) == _MOST:
            raise ptx.EndlessLoop("enough was seen")


def limits(subject: CudaKernel) -> list[str]:
    """What to say of A and of C where their offsets are computed in 32 bits: the line, and how far they go.

    One block runs twice, with short rows and with long ones: what a lane asks for at one row and column, it must ask
    for at the same row and column again. The second run ends at the first access that leaves the few elements that are
    there.
    """
    subject, found = subject.alone(), {}
    width = gemm_ref.MATHS[subject.math].dtype.itemsize
    for name, axis, base in (("C", "n", gemm_ref.Problem(_ROWS, 1, 0)), ("A", "k", gemm_ref.Problem(_ROWS, 1, 1))):
        runs = [_seen(subject, base.resized(**{axis: size})) for size in (_SHORT, _LONG)]
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
                found[name] = (
                    f"offsets into {name} are computed in 32 bits ({where.file}:{where.line}), so the kernel fails "
                    f"once {name} has 2^{bits} elements: write (size_t)row * N + col"
                )
    return list(found.values())


def _seen(subject: CudaKernel, problem: gemm_ref.Problem) -> list[tuple[ptx.Access, str, np.ndarray]]:
    dtype = gemm_ref.MATHS[subject.math].dtype
    sizes = {"A": problem.m * problem.k, "B": problem.k * problem.n} | dict.fromkeys("CD", problem.m * problem.n)
    held = {
        role: torch.zeros(max(size, _FEW) if size <= _ROWS * _SHORT else _FEW, dtype=dtype)
        for role, size in (sizes | {"BIAS": problem.n}).items()
    }
    with contextlib.suppress(ptx.PtxError, UsageError, MemoryError), ptx.watched(seen := _Offsets(), Patience()):
        subject.start(problem, subject.first_block(problem), held)
    return seen.seen
