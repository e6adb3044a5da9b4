"""Which contenders and problems an experiment times: the rules that several studies share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

import gemm_ref
from experiments.bench.verify import CheckResult
from experiments.records.contenders import Contender, contenders
from experiments.records.controls import CONTROL
from experiments.records.frames import LAYOUT
from experiments.records.request import Request
from experiments.records.rows import SKIPPED

MAX_CPU_CALL_S = 5.0
LOOP_FLOPS_PER_S = (
    4e8  # seen at 1024, where a column of B no longer fits the caches; only predicts how long a call takes
)
BLAS_FLOPS_PER_S_PER_THREAD = 1e10


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device, at these sizes or in its math mode; empty if it is."""
    for problem in request.problems:
        if problem.flops == 0:
            return f"there is nothing to time at size {problem}"
    if contender.math != (request.math or "fp32"):
        return f"{contender.math} is timed only if --math asks for it"
    if request.device == "cuda":
        return ""
    if not contender.is_baseline:
        return "the rungs are timed only on a GPU"
    return "" if request.device in contender.devices else f"{contender.backend} needs a GPU"


def unsuited_in_its_mode(contender: Contender, request: Request) -> str:
    """As `unsuited`, for studies that time every math mode by itself (`by_math`) unless --math names one."""
    return unsuited(contender, replace(request, math=contender.math))


def by_math(request: Request, chosen: Iterable[Contender]) -> Iterator[tuple[Request, list[Contender]]]:
    """Yields the contenders of one math mode after the other, with the request for that mode alone."""
    chosen = list(chosen)
    for math in gemm_ref.MATHS:
        if of_math := [contender for contender in chosen if contender.math == math]:
            yield replace(request, math=math), of_math


def problems(request: Request, sizes: Iterable[tuple[int, int, int]]) -> list[gemm_ref.Problem]:
    """The requested problems, else those of `sizes`, in the math mode that is timed, with B as LAYOUT has it."""
    math = request.math or "fp32"
    found = request.problems or [gemm_ref.Problem(*size) for size in sizes]
    return [replace(problem, math=math, b_layout=LAYOUT[math]) for problem in found]


def select_layouts(request: Request) -> tuple[str, ...]:
    """How B is stored in the math mode that is timed: on tensor cores both ways, unless --layout names one."""
    if not request.math or request.math == "fp32":
        return (LAYOUT["fp32"],)
    return (request.layout,) if request.layout else gemm_ref.B_LAYOUTS


def too_slow_on_cpu(contender: Contender, problem: gemm_ref.Problem) -> CheckResult | None:
    """SKIPPED, with how long one call would take, if a CPU baseline would take more than some seconds."""
    rate = LOOP_FLOPS_PER_S if contender.backend == "cpu" else BLAS_FLOPS_PER_S_PER_THREAD * torch.get_num_threads()
    seconds = problem.flops / rate
    if seconds <= MAX_CPU_CALL_S:
        return None
    return CheckResult(SKIPPED, f"one call would take about {seconds:.0f} s, and the limit is {MAX_CPU_CALL_S:.0f} s")


def with_references(chosen: Sequence[Contender]) -> list[Contender]:
    """`chosen`, and cuBLAS of the same math modes if it is not among them."""
    maths = {contender.math for contender in chosen}
    references = [each for each in contenders() if each.is_reference and each.math in maths]
    return [*chosen, *(each for each in references if each not in chosen)]


def control_of(reference: Contender) -> Contender:
    """The A-against-A control: the same library a second time, under its own name."""
    return replace(reference, stage=CONTROL, backend=CONTROL)


def with_controls(chosen: Sequence[Contender]) -> list[Contender]:
    """`chosen`, with cuBLAS of the same math modes and the controls."""
    everyone = with_references(chosen)
    return [*everyone, *(control_of(each) for each in everyone if each.is_reference)]
