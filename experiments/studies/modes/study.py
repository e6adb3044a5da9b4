"""How much of a time is the cache, and how much the launch: cold, warm, and replayed from a CUDA graph?

Expectation: at 4096 all three agree, since the operands do not fit the L2 cache and a launch takes microseconds of
milliseconds. At 256 a warm cache and a replay without launches show speeds that a cold call does not reach.

Method: that of `ladder`, in each of the timing modes of `experiments.bench.timers`, and in every math mode, with B by
rows and in fp8 by columns; each ratio is to cuBLAS in the same modes.

Run: `python -m experiments run modes [--stage S] [--backend B] [--math bf16] [--size 256]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import GRAPH, WARM, TimedRow

NAME = "modes"
PLAN = RoundPlan(min_rounds=5, max_rounds=60, per_contender_s=0.2, total_s=3.0)
LIMIT_S = 0.02  # a kernel that takes longer at 4096 is shown at the smaller sizes, where the modes differ


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or at these sizes; empty if it is."""
    if request.device == "cpu":
        return "the timing modes need a GPU"
    if contender.is_baseline and not contender.is_reference:
        return "of the libraries, only cuBLAS takes part"
    if not contender.is_default:
        return "only the default variant of a rung takes part"
    return eligibility.unsuited_in_its_mode(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[TimedRow]:
    """A row for each contender, problem and timing mode, timed where it is right."""
    setting = Setting(NAME, request.device, plan=PLAN, limit_s=LIMIT_S, more_modes=(WARM, GRAPH))
    for in_mode, of_mode in eligibility.by_math(request, chosen):
        with Bench(setting, of_mode, bars) as bench:
            for problem in eligibility.problems(in_mode, map(workloads.cube, workloads.MODES)):
                yield from bench.time(problem)
