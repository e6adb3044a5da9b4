"""How fast is a kernel in a burst, how fast held for seconds, at how many watts, and what do its inputs' bits change?

Expectation: a burst of 20 ms runs at the highest clock; back to back for seconds a kernel near the peak meets the power
cap, the clock falls, and what counts is TFLOP/s per W. Zeros switch few transistors, so at the cap they are computed at
a higher clock: a benchmark on zeros reports a speed that real data do not reach. Where power is no limit, all kinds of
inputs are equally fast.

Method: all take turns in rounds of random order. A burst of back-to-back calls follows a pause that lets power fall, is
timed as a whole, and gives a share of cuBLAS of the same math and inputs; it is too short to be asked for its power.
Held, a kernel runs back to back for HOLD_S, since power follows load with a delay: speed, clock and power are those
after SETTLE_SHARE of it. cuBLAS and CUDA's last rung take part in every math mode with every kind of inputs, and in
fp32 the last of each dialect; the full preset has the default of every rung besides, on normal numbers. B is by rows,
and in fp8 by columns.

Run: `python -m experiments run energy [--preset full] [--stage S] [--backend B] [--math bf16] [--size 8192]`
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

import gemm_ref
from experiments.bench import timing
from experiments.bench.telemetry import Sample, Telemetry, summarize
from experiments.bench.timers import Work, elapsed_us
from experiments.bench.verify import Case, Verdict, refusal, verify
from experiments.progress import Bars
from experiments.records import stats, workloads
from experiments.records.contenders import Contender, Gemm
from experiments.records.frames import LAYOUT
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import BURST, SUSTAINED, TimedRow
from gemm_ref.dialect import BY_HAND
from gemm_ref.problem import integers_are_exact

NAME = "energy"
KINDS = ("zeros", "integers", "uniform", "normal")
BURSTS, BURST_S, PAUSE_S = 9, 0.02, 0.05
HOLD_S = {DEFAULT: 1.5, FULL: 3.0}
SETTLE_SHARE = 0.6  # of HOLD_S: after a load at the power cap the clock takes about a second to rise again
_BATCH_S = 0.05  # of calls that are put in the queue at a time


@dataclass
class Turn:
    """A contender with inputs of one kind: microseconds per call in each burst and when held, and what was sampled."""

    contender: Contender
    kind: str
    work: Work
    bursts_us: list[float] = field(default_factory=list)
    held_us: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if request.device == "cpu":
        return "power and clocks need a GPU"
    of_full = contender.dialect and contender.is_default and request.preset == FULL
    if of_full or _is_foremost(contender):
        return ""
    last = gemm_ref.stages_in(contender.math)[-1].id
    where = "" if contender.math == "fp32" else " in CUDA"
    return f"only cuBLAS and {last}{where} take part in {contender.math}, and in the full preset each rung's default"


def _is_foremost(contender: Contender) -> bool:
    """Whether it takes part with inputs of every kind."""
    last = gemm_ref.stages_in(contender.math)[-1].id
    by_all = contender.math == "fp32" or contender.dialect == BY_HAND
    return timing.is_reference(contender) or (contender.stage == last and contender.is_default and by_all)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[TimedRow]:
    """Two rows for each contender, problem and kind of inputs: in bursts, and held."""
    sizes = map(workloads.cube, workloads.ENERGY[request.preset])
    for size in request.problems or [gemm_ref.Problem(*each) for each in sizes]:
        able: timing.Able = {}
        yield from _check(size, timing.with_references(chosen), able, bars)
        yield from _take_turns(size, able, HOLD_S[request.preset], bars)
        torch.cuda.empty_cache()  # the next size's operands are others


def _problem(size: gemm_ref.Problem, contender: Contender) -> gemm_ref.Problem:
    return replace(size, math=contender.math, b_layout=LAYOUT[contender.math])


def _check(size: gemm_ref.Problem, chosen: Sequence[Contender], able: timing.Able, bars: Bars) -> Iterator[TimedRow]:
    cases: dict[str, Case] = {}

    def judge(contender: Contender, fn: Gemm) -> Verdict:
        if contender.math not in cases:
            cases[contender.math] = Case.make(_problem(size, contender), "normal")
        case = cases[contender.math]
        return refusal(contender, "cuda") or verify(contender, fn, case.a.cuda(), case.b.cuda(), case)

    def row(contender: Contender, verdict: Verdict) -> TimedRow:
        return TimedRow.about(NAME, contender, _problem(size, contender), mode=SUSTAINED, **verdict.columns)

    yield from timing.check(f"{size}: checking", chosen, judge, row, able, bars)


def _take_turns(size: gemm_ref.Problem, able: timing.Able, hold_s: float, bars: Bars) -> Iterator[TimedRow]:
    turns = list(_turns(size, able))
    order = np.random.default_rng(0)
    bars.begin(f"{size}: bursts", BURSTS * len(turns))
    for _ in range(BURSTS):
        for index in order.permutation(len(turns)):
            bars.doing(f"{turns[index].contender}, {turns[index].kind}")
            time.sleep(PAUSE_S)
            turns[index].bursts_us.append(_batch(turns[index].work, BURST_S))
            bars.done()
    references = {(turn.contender.math, turn.kind): turn for turn in turns if timing.is_reference(turn.contender)}
    for turn in turns:
        yield _row(turn, BURST, turn.bursts_us, size, able, **_beside(turn, references))
    bars.begin(f"{size}: holding", len(turns))
    with Telemetry() as telemetry:
        for index in order.permutation(len(turns)):
            turn = turns[index]
            bars.doing(f"{turn.contender}, {turn.kind}")
            _hold(turn, hold_s, telemetry)
            bars.done()
            yield _row(turn, SUSTAINED, turn.held_us, size, able, **asdict(summarize(turn.samples)))


def _turns(size: gemm_ref.Problem, able: timing.Able) -> Iterator[Turn]:
    """Who is timed with what; operands of one kind are the same for all of a math mode."""
    operands: dict[tuple[str, str], timing.Operands] = {}
    for contender, (fn, _) in able.items():
        problem = _problem(size, contender)
        for kind in KINDS if _is_foremost(contender) else ("normal",):
            if kind == "integers" and not integers_are_exact(problem):  # in fp8 at 8192
                continue
            if (contender.math, kind) not in operands:
                a, b = gemm_ref.make_inputs(problem, kind, device="cuda")
                c = a.new_empty(problem.m, problem.n, dtype=gemm_ref.MATHS[contender.math].out_dtype)
                operands[contender.math, kind] = (a, b, c)
            a, b, c = operands[contender.math, kind]
            yield Turn(contender, kind, functools.partial(fn, a, b, out=c))


def _beside(turn: Turn, references: Mapping[tuple[str, str], Turn]) -> dict[str, Any]:
    """The share of cuBLAS in bursts of the same rounds, if it is there."""
    reference = references.get((turn.contender.math, turn.kind))
    if reference is None:
        return {}
    ratio = stats.speed_ratio(np.array(turn.bursts_us), np.array(reference.bursts_us))
    return ratio.columns("vs_cublas") | {"verdict": stats.verdict(ratio)}


def _row(
    turn: Turn, mode: str, times_us: list[float], size: gemm_ref.Problem, able: timing.Able, **more: Any
) -> TimedRow:
    problem = _problem(size, turn.contender)
    summary = stats.summarize(np.array(times_us))
    return TimedRow.about(
        NAME,
        turn.contender,
        problem,
        mode=mode,
        inputs=turn.kind,
        tflops=stats.tflops(problem.flops, summary.median_us),
        **asdict(able[turn.contender][1]),
        **asdict(summary),
        **more,
    )


def _hold(turn: Turn, hold_s: float, telemetry: Telemetry) -> None:
    """Back-to-back calls for `hold_s`, of which those after SETTLE_SHARE count."""
    start = time.perf_counter()
    while time.perf_counter() - start < SETTLE_SHARE * hold_s:
        _batch(turn.work, _BATCH_S)
    with telemetry.window() as samples:
        while time.perf_counter() - start < hold_s or not turn.held_us:
            turn.held_us.append(_batch(turn.work, _BATCH_S))
    turn.samples += samples


def _batch(work: Work, seconds: float) -> float:
    """Microseconds a call, of as many as take about so long, one after the other."""
    calls = max(1, round(seconds * 1e6 / elapsed_us(work)))
    return elapsed_us(work, calls) / calls
