"""What a right result at small sizes does not show: that the kernel computed it, and does so at large sizes as well."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import torch

import gemm_ref
from experiments.check import predict, progress
from experiments.check.limits import InstructionLimit
from experiments.check.subject import Launches, Subject, attempt, operands
from experiments.records.request import UsageError
from gemm_ref import Problem, ptx
from gemm_ref.build import digest

_MAX_INSTRUCTIONS = 100_000  # of a block at the size that the time is predicted for
_SLICE = 512  # products of each sum in that block, fewer where sums would not be exact
_TOLERANCE = 0.01  # of the sum of absolute products, in which all compute types agree


def not_by_kernels(subject: Subject, problem: Problem) -> str:
    """Returns what host code computes in place of the kernels; empty where it computes nothing.

    A kernel may read A, B, constant memory, and what an earlier kernel has left; C must be what a kernel has left.
    """
    watch = _Provenance({_content(x) for x in operands(problem, "integers")})
    trial = attempt(subject, problem, observers=(watch,))
    if watch.foreign:
        return f"host code computes what is passed as {watch.foreign}: a kernel must read A and B themselves"
    return "" if _content(trial.c) in watch.left else "C is not what the last kernel left there"


class _Provenance(ptx.Observer):
    """Follows the contents of tensors from launch to launch."""

    def __init__(self, known: set[str]) -> None:
        """known: digests of the contents that a kernel may read."""
        self._known = known
        self.left: set[str] = set()  # digests of what kernels have left
        self.foreign = ""  # a tensor that a kernel has read, and whose content is not known
        self._tensors: Sequence = ()
        self._before: dict[int, str] = {}  # of the tensors that this launch has not accessed yet, by their index
        self._written: set[int] = set()

    def on_launch(self, kernel, launch, memory) -> None:
        self._tensors = memory.tensors
        self._before = {index: _content(tensor.owner) for index, tensor in enumerate(memory.tensors)}
        self._written = set()

    def on_access(self, access) -> None:
        if access.space == "global":
            is_one = access.lanes is None or access.addresses.ndim == 0
            self._touch(access.kind, access.addresses if is_one else access.addresses[access.lanes])

    def on_bulk(self, access) -> None:
        if access.space == "global" and access.started:
            self._touch(access.kind, access.addresses)

    def _touch(self, kind: str, addresses: np.ndarray) -> None:
        """Notes the tensor of an access as read, unless it was written before in this launch."""
        address = int(addresses.flat[0]) if addresses.size else -1
        index = next((i for i, each in enumerate(self._tensors) if 0 <= address - each.first < each.size), None)
        if index is None:
            return
        content, tensor = self._before.pop(index, ""), self._tensors[index]
        if "store" in kind or kind == "atomic":
            self._written.add(index)
        if content and "store" not in kind and content not in self._known and not _is_constant(tensor.owner):
            self.foreign = self.foreign or tensor.name

    def on_end(self) -> None:
        self.left |= {_content(self._tensors[index].owner) for index in self._written}
        self._known = self._known | self.left


def _content(x: torch.Tensor) -> str:
    return digest(x.contiguous().view(torch.uint8).numpy().tobytes())


def _is_constant(x: torch.Tensor) -> bool:
    """Whether all elements have one value, or none has been written."""
    return bool((x == x.reshape(-1)[:1]).all()) or x.is_floating_point() and bool(x.isnan().all())


class _Work(ptx.Observer):
    """Counts the instructions of all lanes."""

    def __init__(self) -> None:
        self.count = 0

    def on_instruction(self, instruction, mask, machine) -> None:
        self.count += machine.lanes if mask is None else int(mask.sum())


def wrong_at_large_size(subject: Subject) -> str:
    """Returns why a block's part of C is not the product at the size that the time is predicted for; empty if it is.

    The block whose time is taken, the first, and another one run on integers, and on zeros as when the time is taken.
    """
    problem = subject.nearest_problem(Problem(predict.SIZE, predict.SIZE, min(_SLICE, subject.max_depth)))
    progress.step(f"compares two blocks at {problem}")
    a, b = operands(problem, "integers")
    c = torch.full((problem.m, problem.n), torch.nan, dtype=gemm_ref.MATHS[subject.math].out_dtype)
    places, works, launches = (0.0, 0.5 + random.random() / 2), (_Work(), _Work()), Launches()
    try:
        for inputs, work in (((torch.zeros_like(a), torch.zeros_like(b)), works[0]), ((a, b), works[1])):
            c.fill_(torch.nan)
            with ptx.some_blocks(*places), ptx.watched(launches, work, InstructionLimit(_MAX_INSTRUCTIONS)):
                subject.run(*inputs, c, subject.plain)
    except (ptx.PtxError, UsageError) as error:
        return str(error)
    if works[0].count != works[1].count:
        return "it executes other instructions where A and B are zeros, as when its time is predicted"
    written = ~c.isnan()
    blocks = math.prod(launches.seen[0][1].grid)
    if int(written.sum()) * blocks < min(len(places), blocks) * c.numel():
        return f"at {problem} its blocks compute fewer elements than C has, so its time says nothing"
    rows, columns = written.any(1), written.any(0)
    left, right, part = a[rows].double(), b[:, columns].double(), c[rows][:, columns].double()
    is_near = (part - left @ right).abs() <= _TOLERANCE * (left.abs() @ right.abs())
    if not is_near[written[rows][:, columns]].all():
        return f"at {problem} a block leaves something else than the product in C"
    return ""
