"""How fast is each rung, in each dialect, beside cuBLAS and the CPU?

Expectation: each rung is faster than the one below it; where it is not, the number stays and the README says why.

Method: every contender is checked against the oracle at the size it is timed at, normal inputs by the bound and
one-hot rows bit for bit, and never timed if wrong. On a GPU all contenders of a size are then timed in one process,
in rounds of random order, each from a cold L2 cache, after a second of cuBLAS (`experiments.measure`); their ratio to
cuBLAS is formed round by round. CPU baselines are timed by the wall clock. Without a GPU they are all there is to
time, since the reference GPU runs kernels but has no clock; the plots then show the data that was published.

Run: `python -m experiments run ladder [--stage S] [--backend B] [--size 4096]`
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

import gemm_ref
from experiments import measure as timing
from experiments import plot_ladder
from experiments.contenders import Contender, Gemm, contenders
from experiments.progress import Bars
from experiments.rows import SKIPPED, Timed
from experiments.selection import Request
from experiments.verify import Case, DeviceLost, Verdict, load, refusal, verify

NAME = "ladder"
ROW = Timed
SIZES = {"cuda": (512, 1024, 2048, 4096), "cpu": (256, 512, 1024)}  # cubes; at 512 the CPU loop is beside them
DEEP = (128, 128, 65536)  # one tile of C and a deep K, for s13; on a GPU alone
GPU_BUDGET_S = 25.0  # for the rounds of one problem
CPU_BUDGET_S = 2.0
CPU_MIN_ROUNDS, CPU_MAX_ROUNDS = 3, 10  # by the wall clock, and a run may take seconds
CPU_LIMIT_S = 5.0
LOOP_FLOPS_PER_S = 4e8  # seen at 1024, where a column of B no longer fits the caches; for predicting a run only
BLAS_FLOPS_PER_S_A_THREAD = 1e10

Able = dict[Contender, tuple[Gemm, Verdict]]  # what passed: its callable and how accurate it was


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or at these sizes; empty if it is."""
    for problem in request.problems:
        if problem.flops == 0:
            return f"there is nothing to time at size {problem}"
    if request.device == "cuda":
        return ""
    if not contender.is_baseline:
        return "the rungs are timed on a GPU alone"
    return "" if request.device in contender.devices else f"{contender.backend} needs a GPU"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[Timed]:
    """A row for each contender and problem, timed where it is right."""
    if request.device == "cuda" and not any(map(_is_reference, chosen)):
        chosen = [*chosen, *filter(_is_reference, contenders())]
    for problem in request.problems or _plan(request):
        yield from _measure_problem(problem, request.device, chosen, bars)


def _plan(request: Request) -> list[gemm_ref.Problem]:
    cubes = [(size, size, size) for size in SIZES[request.device]]
    deep = [DEEP] if request.device == "cuda" else []
    return [gemm_ref.Problem(*sizes, math=request.math) for sizes in cubes + deep]


def _is_reference(contender: Contender) -> bool:
    return contender.backend == "cublas"


def _measure_problem(problem: gemm_ref.Problem, device: str, chosen, bars: Bars) -> Iterator[Timed]:
    normal, one_hot = Case.make(problem, "normal"), Case.make(problem, "one_hot")
    placed = {home: [(x.a.to(home), x.b.to(home), x) for x in (one_hot, normal)] for home in {*map(_home, chosen)}}
    able: Able = {}
    bars.begin(f"{problem}: checking", len(chosen))
    for contender in chosen:
        bars.doing(str(contender))
        fn, verdict = load(contender)
        verdict = verdict or _unsuitable(contender, problem, device) or _verify(contender, fn, placed[_home(contender)])
        if verdict.accuracy:
            able[contender] = (fn, verdict)
        else:
            yield Timed.about(NAME, contender, problem, status=verdict.status, detail=verdict.detail)
        if verdict.lost:
            raise DeviceLost(verdict.lost)
        bars.done()
    on_cpu = {contender: entry for contender, entry in able.items() if _home(contender) == "cpu"}
    on_gpu = {contender: entry for contender, entry in able.items() if _home(contender) == "cuda"}
    if on_gpu:
        yield from _time(problem, normal, "cuda", on_gpu, timing.CudaTimer(), bars)
        torch.cuda.empty_cache()
    if on_cpu:
        yield from _time(problem, normal, "cpu", on_cpu, timing.cpu_timer, bars)


def _home(contender: Contender) -> str:
    """Where it is timed: rungs on the GPU, baselines at home."""
    return contender.devices[0] if contender.is_baseline else "cuda"


def _unsuitable(contender: Contender, problem: gemm_ref.Problem, device: str) -> Verdict | None:
    if _home(contender) == "cuda":
        return refusal(contender, device)
    rate = LOOP_FLOPS_PER_S if contender.backend == "cpu" else BLAS_FLOPS_PER_S_A_THREAD * torch.get_num_threads()
    seconds = problem.flops / rate
    if seconds <= CPU_LIMIT_S:
        return None
    return Verdict(SKIPPED, f"one run would take about {seconds:.0f} s, and the limit is {CPU_LIMIT_S:.0f} s")


def _verify(contender: Contender, fn: Gemm, cases: Sequence[tuple[torch.Tensor, torch.Tensor, Case]]) -> Verdict:
    """The first verdict that is not a pass, else the last. cases: operands where the contender runs, and their case."""
    for a, b, case in cases:
        verdict = verify(contender, fn, a, b, case)
        if not verdict.accuracy:
            return verdict
    return verdict


def _time(problem, case: Case, device: str, able: Able, timer: timing.Timer, bars: Bars) -> Iterator[Timed]:
    a, b = case.a.to(device), case.b.to(device)
    c = torch.empty((problem.m, problem.n), dtype=a.dtype, device=device)
    works = {contender: functools.partial(fn, a, b, out=c) for contender, (fn, _) in able.items()}
    reference = next(filter(_is_reference, works), None)
    on_gpu = device == "cuda"
    if on_gpu:
        timing.warm_up(works[reference or next(iter(works))], timer)
    round_us = sum(timer(work) for work in works.values())
    if on_gpu:
        rounds = timing.choose_rounds(round_us, GPU_BUDGET_S)
    else:
        rounds = timing.choose_rounds(round_us, CPU_BUDGET_S, CPU_MIN_ROUNDS, CPU_MAX_ROUNDS)
    bars.begin(f"{problem}: timing on the {'GPU' if on_gpu else 'CPU'}", rounds * len(works))
    interrupted = None
    try:
        times = timing.interleave(works, timer, rounds, after_each=bars.done)
    except timing.Interrupted as early:
        times, interrupted = early.times, early
    for contender, times_us in times.items():
        yield _timed_row(problem, contender, able[contender][1], times_us, times.get(reference))
    if interrupted:
        raise interrupted


def _timed_row(
    problem: gemm_ref.Problem,
    contender: Contender,
    verdict: Verdict,
    times_us: np.ndarray,
    reference_us: np.ndarray | None,
) -> Timed:
    summary = timing.summarize(times_us)
    values = {
        "median_us": summary.median_us,
        "p20_us": summary.p20_us,
        "p80_us": summary.p80_us,
        "repeats": summary.repeats,
        "tflops": timing.tflops(problem.flops, summary.median_us),
        "rel_error": verdict.accuracy.rel_error,
        "bound_share": verdict.accuracy.bound_share,
    }
    if reference_us is not None:
        ratio = timing.speed_ratio(times_us, reference_us)
        values |= {"vs_cublas": ratio.median, "vs_cublas_low": ratio.low, "vs_cublas_high": ratio.high}
    return Timed.about(NAME, contender, problem, **values)


def plot(folder: Path, target: Path) -> list[Path]:
    """Draw the CSV in `folder` into `target`; return the files."""
    return plot_ladder.draw(folder, target)
