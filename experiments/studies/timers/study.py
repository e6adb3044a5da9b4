"""What does the way of taking a time change, in the time and in who is faster?

Expectation: at 4096 all ways agree to a percent or two. At 256, where a call takes some microseconds, a warm cache and
a graph show speeds that a cold call does not reach; the profiler leaves out what lies between two kernels; `do_bench`
times the write-back of its own memset as well; events around a launch in the open, and the host's clock, time the
launch.

Method: that of `ladder`, with cuBLAS and the last rung of each dialect, in fp32 and bf16 unless --math names one, by
our three ways and by four of others (`experiments.bench.timers` has all seven). Each ratio is to
cuBLAS by the same way in the same rounds. `cold` is what the rest of the project goes by.

Run: `python -m experiments run timers [--math bf16] [--size 256]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import gemm_ref
from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.bench.timers import missing_for
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import SKIPPED, WAYS, TimedRow

NAME = "timers"
PLAN = RoundPlan(min_rounds=7, max_rounds=40, per_contender_s=0.2, total_s=4.0)
BY_DEFAULT = ("fp32", "bf16")


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or at these sizes; empty if it is."""
    if request.device == "cpu":
        return "the timers to be compared are those of a GPU"
    if not request.math and contender.math not in BY_DEFAULT:
        return f"{contender.math} is timed only if --math asks for it"
    last = gemm_ref.stages_in(contender.math)[-1].id
    if not (contender.is_reference or (contender.stage == last and contender.is_default)):
        return f"only cuBLAS and {last} take part"
    return eligibility.unsuited_in_its_mode(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[TimedRow]:
    """A row for each contender, problem and way of taking its time, where it is right."""
    refused = {way: missing_for(way) for way in WAYS}
    for (in_mode, of_mode), way in product(eligibility.by_math(request, chosen), WAYS):
        problems = eligibility.problems(in_mode, map(workloads.cube, workloads.TIMERS))
        if refused[way]:
            about = {"mode": way, "status": SKIPPED, "detail": refused[way]}
            yield from (TimedRow.about(NAME, each, problem, **about) for each, problem in product(of_mode, problems))
            continue
        with Bench(Setting(NAME, request.device, way, PLAN), of_mode, bars) as bench:
            for problem in problems:
                yield from bench.time(problem)
