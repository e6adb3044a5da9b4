"""The clock of the reference GPU: how fast a kernel would be on a GPU that is not here, and what holds it back.

    prediction = clock.predict(lambda a, b: cuda_kernels.gemm(a, b, stage="s09"), gemm_ref.Problem(4096, 4096, 4096))
    prediction.tflops, prediction.limit, prediction.lines[0]

A block runs on the reference GPU, the machine code that a GPU would execute is replayed on a model of one
multiprocessor, and the rest of the launch follows from occupancy, waves, L2 and device memory. Kernels that wait for
tensor cores and the TMA unit are replayed as they were recorded. docs/clock.md has the model and its errors.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gemm_ref.clock.gpu import Gpu, read
from gemm_ref.clock.predict import MIN_SHARE, LaunchTime, Limit, Line, NeedsHalf, time_launch
from gemm_ref.clock.sample import Sample, Sampler
from gemm_ref.clock.steps import NotModelled
from gemm_ref.compute import MATHS
from gemm_ref.launch import Launch
from gemm_ref.operands.copy_layout import noted_copies
from gemm_ref.problem import Problem
from gemm_ref.ptx.core.events import KernelInfo, first_block, watched
from gemm_ref.ptx.core.memory import GlobalMemory
from gemm_ref.ptx.text.errors import LeftOver, PtxError

__all__ = [
    "Gpu", "LaunchTime", "Limit", "Line", "MIN_SHARE", "NotModelled", "Prediction", "predict", "predict_samples",
    "read", "zeros",
]  # fmt: skip

INTERVAL = 0.22  # of predicted times, about nine in ten are this near to measured ones (docs/clock.md)
_SAMPLE_K = 1024  # of the problem whose blocks are run
_ALIGNED = 256  # bytes that the addresses of cudaMalloc are multiples of


@dataclass(frozen=True)
class Prediction:
    """What a call would take on a GPU, launch by launch."""

    gpu: str
    problem: Problem
    launches: tuple[LaunchTime, ...]
    copies_us: tuple[float, ...]  # of operands, in front of the launches: by what device memory reads and writes
    launching_us: float  # that two events and as many empty kernels take

    @property
    def microseconds(self) -> float:
        """The time of the whole call between two events, with caches cold."""
        return self.launching_us + sum(self.copies_us) + sum(each.microseconds for each in self.launches)

    @property
    def interval_us(self) -> tuple[float, float]:
        """Between which times nine in ten kernels were found."""
        return self.microseconds / (1 + INTERVAL), self.microseconds * (1 + INTERVAL)

    @property
    def tflops(self) -> float:
        return self.problem.flops / self.microseconds / 1e6

    def __str__(self) -> str:
        problem, name = self.problem, read(self.gpu).name
        size = problem.m if len({problem.m, problem.n, problem.k}) == 1 else problem
        low, high = (f"{problem.flops / us / 1e6:.3g}" for us in reversed(self.interval_us))
        speed = f"{self.tflops:.3g} TFLOP/s ({low} to {high})"
        return f"predicted on an {name} at {size}: {speed}; held back by {self.limit}"

    @property
    def longest(self) -> LaunchTime:
        """The launch that takes most."""
        return max(self.launches, key=lambda each: each.microseconds)

    @property
    def limit(self) -> Limit:
        """What holds the longest launch back."""
        return self.longest.limit

    @property
    def lines(self) -> list[Line]:
        """The longest launch by source line, the one with the largest share of its time first."""
        return self.longest.lines


def predict(
    gemm: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    problem: Problem,
    gpu: str = "nvidia-h200",
    sample_k: int = _SAMPLE_K,
) -> Prediction:
    """The time of a product on a GPU, from a few blocks of it on the reference GPU.

    gemm: computes a @ b for CPU tensors on the reference GPU; gpu: one of `gpus.toml`. It is called with zeros, and of
    each kernel only the first block runs. Where the launch is the same for a smaller K, `sample_k`, K is that.

    Raises ValueError for a GPU that is not in the table and for machine code that cannot be followed, and NotModelled
    for an instruction that has no cost yet, naming it.
    """
    sampled = problem
    if problem.k > sample_k and _launches(gemm, problem) == _launches(gemm, problem.resized(k=sample_k)):
        sampled = problem.resized(k=sample_k)
    (samples, copies), half = _observe(gemm, sampled), sampled.resized(k=sampled.k // 2)
    scale = problem.k / max(1, sampled.k)
    if sampled.k == problem.k or not any(each.recorder for each in samples):
        try:
            return predict_samples(samples, problem, gpu, scale, copies=copies)
        except NeedsHalf:
            pass
    if _launches(gemm, half) == _launches(gemm, sampled):
        return predict_samples(samples, problem, gpu, scale, _observe(gemm, half)[0], copies)
    samples, copies = _observe(gemm, problem)
    return predict_samples(samples, problem, gpu, 1.0, copies=copies)


def predict_samples(
    samples: Sequence[Sample],
    problem: Problem,
    gpu: str,
    scale: float,
    halves: Sequence[Sample] = (),
    copies: Sequence[int] = (),
) -> Prediction:
    """As `predict`, from launches that were observed.

    scale: the problem's K by that of the samples; halves: the same launches with half the samples' K, where that is
    known; copies: bytes that each copy of operands in front of the launches reads and writes at the samples' K.

    Raises NeedsHalf where halves are missing, ValueError and NotModelled.
    """
    if scale > 1 and len(samples) > 1 and not halves:
        raise NeedsHalf("a launch behind the first may not depend on K")
    table = read(gpu)
    pairs = itertools.zip_longest(samples, halves)
    launches = tuple(
        time_launch(one, table, scale, not (number or copies), half) for number, (one, half) in enumerate(pairs)
    )
    copies_us = tuple(scale * count / (table.roof["dram_copy"] * 1e6) for count in copies)
    further = len(launches) + len(copies) - 1
    launching_us = table.launch["events"] + table.launch["cold"] + further * table.launch["gap"]
    return Prediction(gpu, problem, launches, copies_us, launching_us)


def _observe(gemm: Callable, problem: Problem) -> tuple[list[Sample], list[int]]:
    """The launches of a call, and the bytes of each copy in front of them."""
    sampler = Sampler()
    with noted_copies() as copies:
        _call(gemm, problem, sampler)
    return sampler.samples, copies


def zeros(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of zeros, laid out as the problem says; they take no memory until somebody writes to them."""
    dtype, (rows, columns) = MATHS[problem.math].dtype, problem.b_shape
    b = _zeros((rows, columns) if problem.b_layout == "kn" else (columns, rows), dtype)
    return _zeros(problem.a_shape, dtype), b if problem.b_layout == "kn" else b.t()


def _zeros(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """As torch.zeros, which writes them (20 ms for 64 MiB); they begin where a GPU's allocations do."""
    size = shape[0] * shape[1] * dtype.itemsize
    room = torch.from_numpy(np.zeros(size + _ALIGNED, np.uint8))
    return room[-room.data_ptr() % _ALIGNED :][:size].view(dtype).view(shape)


def _call(gemm: Callable, problem: Problem, observer: Sampler | _Launches) -> None:
    """Calls it with zeros, of each launch the first block."""
    # A first block alone may leave the flags set that it sets for others.
    with first_block(), watched(observer), warnings.catch_warnings(), contextlib.suppress(LeftOver):
        warnings.simplefilter("ignore", RuntimeWarning)  # that the whole product would take long
        gemm(*zeros(problem))


class _Launches(Sampler):
    """Notes the first launch, and ends the run."""

    def on_launch(self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory) -> None:
        super().on_launch(kernel, launch, memory)
        raise _Seen


class _Seen(PtxError):
    """Ends a run, through whatever passes faults of a kernel on."""


def _launches(gemm: Callable, problem: Problem) -> tuple:
    noted = _Launches()
    try:
        _call(gemm, problem, noted)
    except _Seen:
        pass
    return tuple((each.kernel.name, each.launch) for each in noted.samples)
