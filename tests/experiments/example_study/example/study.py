"""Does a contender compute the product?

Expectation: it does.

Method: a check against the oracle at each of two sizes, by which the runner, the store and the command line are tested.

Run: `python -m experiments run example`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.bench.verify import CheckResult, Inputs, load_all, report, verify
from experiments.progress import Bars
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import SKIPPED, TimedRow
from gemm_ref import Problem

NAME = "example"
PROBLEMS = (Problem(3, 5, 7), Problem(0, 1, 2))
MAX_K = 100


def unsuited(contender: Contender, request: Request) -> str:
    """Returns why the contender is no part of this study; empty if it is."""
    return "baselines are not part of it" if contender.is_baseline else ""


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[TimedRow]:
    """Yields a row for each contender and problem."""
    bars.begin("checking", len(chosen))
    able, broken = load_all(chosen, request.device)
    for contender in chosen:
        for problem in request.problems or PROBLEMS:
            result = broken.get(contender)
            if problem.k > MAX_K:
                result = CheckResult(SKIPPED, "it is too deep")
            elif result is None:
                result = verify(contender, able[contender], Inputs.make(problem, "normal"))
            yield from report(TimedRow.about(NAME, contender, problem, inputs="normal", **result.columns), result)
        bars.done()
