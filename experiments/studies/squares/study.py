"""How does the speed of each rung change with the size of a square problem, awkward sizes included?

Expectation: a rung with large tiles needs a large C to fill the GPU, so the order of the rungs changes below about
2048; a size just off a power of two pays for the unaligned path and the last partial tiles.

Method: that of `ladder`, on cubes: powers of two, their neighbours, primes, and two sizes between. Each rung's default
variant takes part, in each of its math modes, with B by rows; in fp8, where cuBLAS supports only that, by columns. The
default preset leaves out calls that take longer than half a second, most neighbours, and most sizes on tensor cores;
`full` times every rung at every size.

Run: `python -m experiments run squares [--preset full] [--stage S] [--backend B] [--math bf16] [--size 1021]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import TimedRow

NAME = "squares"
LIMIT_S = {DEFAULT: 0.5, FULL: float("inf")}
PLAN = {DEFAULT: RoundPlan(per_contender_s=0.4, total_s=8.0), FULL: RoundPlan(total_s=15.0)}


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or at these sizes; empty if it is."""
    if not contender.is_default:
        return "only the default variant of a rung takes part"
    return eligibility.unsuited_in_its_mode(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[TimedRow]:
    """A row for each contender and problem, timed where it is right."""
    plan, limit_s = PLAN[request.preset], LIMIT_S[request.preset]
    setting = Setting(NAME, request.device, plan=plan, limit_s=limit_s, hint=": PRESET=full has none")
    for in_mode, of_mode in eligibility.by_math(request, chosen):
        on_gpu = request.device == "cuda"
        edges = workloads.squares(request.preset, in_mode.math) if on_gpu else workloads.SQUARES_ON_CPU
        with Bench(setting, of_mode, bars) as bench:
            for problem in eligibility.problems(in_mode, map(workloads.cube, edges)):
                yield from bench.time(problem)
