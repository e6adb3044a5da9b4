"""How fast is each rung, in each dialect and variant, beside cuBLAS and the CPU?

Expectation: each rung is faster than the one below it; where it is not, the number stays and docs/ladder.md says why.

Method: every contender is checked against the oracle at the size it is timed at, normal inputs by the bound and one-hot
rows bit for bit, and never timed if wrong. On a GPU all contenders of a size then take turns in one process, from a
cold L2 cache, until their ratio to cuBLAS is known to 0.5% or they have run for a second (docs/method.md). CPU
baselines are timed by the wall clock. Without a GPU only they can be timed, since the reference GPU runs kernels but
has no clock; the plots then show the published data.

Run: `python -m experiments run ladder [--stage S] [--backend B] [--size 4096]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import TimedRow

NAME = "ladder"


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or at these sizes; empty if it is."""
    return eligibility.unsuited(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[TimedRow]:
    """A row for each contender and problem, timed where it is right."""
    with Bench(Setting(NAME, request.device), chosen, bars) as bench:
        for problem in eligibility.problems(request, workloads.LADDER[request.device]):
            yield from bench.time(problem)
