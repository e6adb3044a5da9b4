"""Whether a kernel's offsets can pass 2^31: the addresses of first rows in matrices that pretend to be that large."""

from __future__ import annotations

import contextlib

import torch

import gemm_ref
from experiments.check.cuda.cuda_file import CudaKernel
from experiments.check.trial import Patience
from experiments.records.request import UsageError
from gemm_ref import ptx

_LONG = 1 << 30  # elements of a row; two rows of them pass 2^31


class _First(ptx.Observer):
    """The lowest address, in bytes from the tensor that it is nearest to, of all accesses up to the first fault."""

    def __init__(self) -> None:
        self.lowest: tuple[int, str, ptx.Access] | None = None

    def on_access(self, access: ptx.Access) -> None:
        if access.space != "global":
            return
        lanes = slice(None) if access.lanes is None else access.lanes
        addresses = access.addresses if access.addresses.ndim == 0 else access.addresses[lanes]
        if addresses.size == 0:
            return
        address = int(addresses.min())
        near = min(access.machine.memory.tensors, key=lambda tensor: abs(tensor.first - address))
        if self.lowest is None or address - near.first < self.lowest[0]:
            self.lowest = (address - near.first, near.name, access)


def narrow(subject: CudaKernel) -> dict[str, ptx.Access]:
    """For each of A and C whose offsets are computed in 32 bits, by name: the access that goes astray.

    One block runs, with M = 3 and rows of 2^30 elements: row 2 begins 2^33 bytes on, or, in 32 bits, before the matrix.
    The run ends at the first access that leaves the few elements that are there.
    """
    found = {}
    for problem in (gemm_ref.Problem(3, _LONG, 0, subject.math), gemm_ref.Problem(3, 1, _LONG, subject.math)):
        few = [torch.zeros(64, dtype=gemm_ref.MATHS[subject.math].dtype) for _ in range(3)]
        with contextlib.suppress(ptx.PtxError, UsageError), ptx.watched(seen := _First(), Patience()):
            subject.start(problem, subject.first_block(problem), *few)
        if seen.lowest and seen.lowest[0] < -(1 << 31):
            found[seen.lowest[1]] = seen.lowest[2]
    return found
