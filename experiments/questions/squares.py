"""How does the speed of each rung change with the size of a square problem, awkward sizes included?

Expectation: a rung with large tiles needs a large C to fill the GPU, so the order of the rungs changes below about
2048; a size just off a power of two pays for the unaligned path and the last partial tiles.

Method: that of `ladder`, on cubes: powers of two, their neighbours, and primes. Each rung's default variant takes part.
The default preset leaves out calls that take longer than half a second, and most neighbours; `full` times every rung at
every size.

Run: `python -m experiments run squares [--preset full] [--stage S] [--backend B] [--size 1021]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.bench import timing
from experiments.bench.rounds import Plan
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import Timed

NAME = "squares"
LIMIT_S = {DEFAULT: 0.5, FULL: float("inf")}
PLAN = {DEFAULT: Plan(each_s=0.4, total_s=8.0), FULL: Plan(total_s=15.0)}


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or at these sizes; empty if it is."""
    if not contender.is_default:
        return "only the default variant of a rung takes part"
    return timing.unsuited(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[Timed]:
    """A row for each contender and problem, timed where it is right."""
    edges = workloads.SQUARES[request.preset] if request.device == "cuda" else workloads.SQUARES_ON_CPU
    setting = timing.Setting(NAME, request.device, plan=PLAN[request.preset], limit_s=LIMIT_S[request.preset])
    with timing.Bench(setting, chosen, bars) as bench:
        for problem in timing.problems(request, map(workloads.cube, edges)):
            yield from bench.time(problem)
