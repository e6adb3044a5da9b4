"""What do the bits of the inputs alone do to power, clock and speed?

Expectation: zeros switch few transistors, so a GPU at its power cap computes them at a higher clock: a benchmark on
zeros reports a speed that real data do not reach. Small integers are in between. Where power is no limit, all kinds of
inputs are equally fast.

Method: a kernel runs back to back on one set of operands for HOLD_S, since power follows load with a delay. The speed
is that of the calls after the first SETTLE_S; clock and power are sampled over the same time. Kernels and kinds of
inputs take turns in rounds of random order. cuBLAS and CUDA's last rung take part in every math mode, and in fp32 the
last of each dialect; B is by rows, and in fp8 by columns.

Run: `python -m experiments run inputs [--preset full] [--backend B] [--math bf16] [--size 8192]`
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

import gemm_ref
from experiments.bench import timing
from experiments.bench.telemetry import Sample, Telemetry, summarize
from experiments.bench.verify import Case, DeviceLost, load, refusal, verify
from experiments.progress import Bars
from experiments.records import stats, workloads
from experiments.records.contenders import Contender, Gemm
from experiments.records.frames import LAYOUT
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import SUSTAINED, Timed
from gemm_ref.dialect import BY_HAND
from gemm_ref.problem import integers_are_exact

NAME = "inputs"
KINDS = ("zeros", "integers", "uniform", "normal")
HOLD_S = {DEFAULT: 1.5, FULL: 3.0}
SETTLE_SHARE = 0.6  # of HOLD_S: after a load at the power cap the clock takes about a second to rise again
ROUNDS = {DEFAULT: 1, FULL: 2}
_BATCH_S = 0.05  # of calls that are put in the queue at a time


@dataclass(frozen=True)
class Stretch:
    """A stretch of back-to-back calls: microseconds per call, and what was sampled meanwhile."""

    us: float
    samples: list[Sample]


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if request.device == "cpu":
        return "power and clocks need a GPU"
    last = gemm_ref.stages_in(contender.math)[-1].id
    by_all = contender.math == "fp32" or contender.dialect == BY_HAND
    if timing.is_reference(contender) or (contender.stage == last and contender.is_default and by_all):
        return ""
    return f"only cuBLAS and {last}{'' if contender.math == 'fp32' else ' in CUDA'} take part in {contender.math}"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[Timed]:
    """A row for each contender, problem and kind of inputs."""
    for size in request.problems or [gemm_ref.Problem(*workloads.cube(workloads.INPUTS))]:
        able: timing.Able = {}
        yield from _check(size, chosen, able, bars)
        yield from _hold(size, able, request.preset, bars)


def _problem(size: gemm_ref.Problem, contender: Contender) -> gemm_ref.Problem:
    return replace(size, math=contender.math, b_layout=LAYOUT[contender.math])


def _check(size: gemm_ref.Problem, chosen: Sequence[Contender], able: timing.Able, bars: Bars) -> Iterator[Timed]:
    bars.begin(f"{size}: checking", len(chosen))
    cases: dict[str, Case] = {}
    for contender in chosen:
        bars.doing(str(contender))
        problem = _problem(size, contender)
        if contender.math not in cases:
            cases[contender.math] = Case.make(problem, "normal")
        case = cases[contender.math]
        fn, verdict = load(contender)
        verdict = verdict or refusal(contender, "cuda") or verify(contender, fn, case.a.cuda(), case.b.cuda(), case)
        if verdict.accuracy:
            able[contender] = (fn, verdict.accuracy)
        else:
            yield Timed.about(NAME, contender, problem, mode=SUSTAINED, status=verdict.status, detail=verdict.detail)
        if verdict.lost:
            raise DeviceLost(verdict.lost)
        bars.done()


def _hold(size: gemm_ref.Problem, able: timing.Able, preset: str, bars: Bars) -> Iterator[Timed]:
    turns = [
        (contender, kind)
        for contender in able
        for kind in KINDS
        if kind != "integers" or integers_are_exact(_problem(size, contender))  # in fp8 they are not at 8192
    ]
    taken: dict[tuple[Contender, str], list[Stretch]] = {turn: [] for turn in turns}
    order = np.random.default_rng(0)
    operands: dict[tuple[str, str], tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
    bars.begin(f"{size}: holding", ROUNDS[preset] * len(turns))
    with Telemetry() as telemetry:
        for _ in range(ROUNDS[preset]):
            for index in order.permutation(len(turns)):
                contender, kind = turns[index]
                bars.doing(f"{contender} {contender.math}, {kind}")
                if (contender.math, kind) not in operands:
                    problem = _problem(size, contender)
                    a, b = gemm_ref.make_inputs(problem, kind, device="cuda")
                    c = a.new_empty(problem.m, problem.n, dtype=gemm_ref.MATHS[contender.math].out_dtype)
                    operands[contender.math, kind] = (a, b, c)
                stretch = _stretch(able[contender][0], operands[contender.math, kind], HOLD_S[preset], telemetry)
                taken[contender, kind].append(stretch)
                bars.done()
    for (contender, kind), stretches in taken.items():
        problem, accuracy = _problem(size, contender), able[contender][1]
        summary = stats.summarize(np.array([stretch.us for stretch in stretches]))
        conditions = summarize([sample for stretch in stretches for sample in stretch.samples])
        yield Timed.about(
            NAME,
            contender,
            problem,
            mode=SUSTAINED,
            inputs=kind,
            tflops=stats.tflops(problem.flops, summary.median_us),
            rel_error=accuracy.rel_error,
            bound_share=accuracy.bound_share,
            **asdict(summary),
            **asdict(conditions),
        )


def _stretch(fn: Gemm, operands, hold_s: float, telemetry: Telemetry) -> Stretch:
    """Back-to-back calls for `hold_s`, of which the part after SETTLE_SHARE counts."""
    a, b, c = operands
    calls = _calls(lambda: fn(a, b, out=c))
    start = time.perf_counter()
    while time.perf_counter() - start < SETTLE_SHARE * hold_s:
        _batch(fn, a, b, c, calls)
    times: list[float] = []
    with telemetry.window() as samples:
        while time.perf_counter() - start < hold_s or not times:
            times.append(_batch(fn, a, b, c, calls))
    return Stretch(float(np.mean(times)), samples)


def _calls(work) -> int:
    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return max(1, int(_BATCH_S / (time.perf_counter() - start)))


def _batch(fn: Gemm, a, b, c, calls: int) -> float:
    """Microseconds a call of so many that follow each other."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        fn(a, b, out=c)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls
