"""What does it cost that a row of the product has the same bits for any number of rows?

Expectation: little. `gemm(..., batch_invariant=True)` chooses among the tiles of the last rung that no blocks share.
The default may also split K, which pays where C has fewer tiles than the GPU has multiprocessors: for few rows of a
deep or narrow layer. A rung with one tile, which is batch-invariant by itself, is slow for few rows: its tile is large.

Method: that of `ladder`, cold, in bf16 unless --math names another compute type. The layers are workloads.INVARIANCE,
each at several numbers of rows; the last rung takes part with and without `batch_invariant`, beside the last rung that
has one tile. cuBLAS is the reference, and chooses its kernels by shape.

Run: `python -m experiments run invariance [--preset full] [--backend B] [--math fp16] [--size 16x4096x4096]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gemm_ref
from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender, batch_invariant
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import TimedRow
from gemm_ref.rung import ALWAYS, ON_REQUEST

NAME = "invariance"
MATH = "bf16"
PLAN = {
    DEFAULT: RoundPlan(min_rounds=7, max_rounds=50, per_contender_s=0.1, total_s=2.0),
    FULL: RoundPlan(per_contender_s=0.3, total_s=4.0),
}


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or at these sizes; empty if it is."""
    if request.device == "cpu":
        return "the price of equal bits is timed only on a GPU"
    if contender.math != (request.math or MATH):
        return f"{contender.math} is timed only if --math asks for it"
    if contender.is_baseline:
        return "" if contender.is_reference else "of the libraries only cuBLAS takes part"
    if not contender.is_default or contender.stage not in _last_rungs(contender.math, contender.dialect):
        return "only the last rung, and the last one with a single tile, take part"
    return ""


def _last_rungs(math: str, dialect: str) -> set[str]:
    """The last rung of a dialect that is batch-invariant on request, and the last one that always is."""
    answers = {rung.batch_invariance(dialect): rung.id for rung in gemm_ref.stages_in(math) if dialect in rung.dialects}
    return {answers[answer] for answer in (ALWAYS, ON_REQUEST) if answer in answers}


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[TimedRow]:
    """Yields a row for each contender and problem, timed where it is right."""
    setting = Setting(NAME, request.device, plan=PLAN[request.preset])
    asked = [batch_invariant(each) for each in chosen if not each.is_baseline and _is_on_request(each)]
    for in_mode, of_mode in eligibility.by_math(request, [*chosen, *asked]):
        with Bench(setting, of_mode, bars) as bench:
            for problem in eligibility.problems(in_mode, workloads.invariance(request.preset)):
                yield from bench.time(problem)


def _is_on_request(contender: Contender) -> bool:
    return gemm_ref.get_stage(contender.stage).batch_invariance(contender.dialect) == ON_REQUEST
