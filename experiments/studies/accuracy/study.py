"""How does the error grow with K, in each math mode, library and rung?

Expectation: in fp32 the errors of K additions partly cancel, so the relative error grows like sqrt(K) or slower. It
grows slower still where the sum is split (s13, cuBLAS' split-K) or kept in several partial sums. Lower precisions start
at the rounding of their operands or of C, and stay there until the error of the accumulation overtakes it.

Method: C is 256 x 256, K from 16 up to 2^18, normal inputs, the error against the float64 oracle in the Frobenius norm.
Without a GPU only the CPU's libraries take part: the reference GPU would take minutes for a large enough K.

Run: `python -m experiments run accuracy [--stage S] [--backend B] [--math tf32] [--size 256x256x65536]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import gemm_ref
from experiments.bench.eligibility import too_slow_on_cpu
from experiments.bench.verify import Inputs, load_all, report, verify
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import CheckedRow

NAME = "accuracy"
KIND = "normal"


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if not contender.is_default:
        return "only the default variant of a rung takes part"
    if not contender.is_baseline:
        return "" if request.device == "cuda" else "the rungs take part only on a GPU"
    return "" if request.device == "cuda" or "cpu" in contender.devices else f"{contender.backend} needs a GPU"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[CheckedRow]:
    """A row for each contender and problem."""
    able, broken = load_all(chosen, request.device)
    side = workloads.ACCURACY_SIDE
    problems = request.problems or [gemm_ref.Problem(side, side, k) for k in workloads.ACCURACY_DEPTHS[request.device]]
    bars.begin("checking", len(problems) * len(chosen))
    for size in problems:
        for math in dict.fromkeys(contender.math for contender in chosen):
            inputs = Inputs.make(gemm_ref.Problem(size.m, size.n, size.k, math), KIND)
            of_math = [contender for contender in chosen if contender.math == math]
            placed = {home: inputs.on(home) for home in {contender.home for contender in of_math}}
            for contender in of_math:
                bars.doing(f"{contender} {inputs.problem}")
                slow = too_slow_on_cpu(contender, inputs.problem) if contender.home == "cpu" else None
                result = broken.get(contender) or slow or verify(contender, able[contender], placed[contender.home])
                yield from report(
                    CheckedRow.about(NAME, contender, inputs.problem, inputs=KIND, **result.columns), result
                )
                bars.done()
