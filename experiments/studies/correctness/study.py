"""Is every rung right, in every dialect, at every kind of edge?

Expectation: yes. Errors are well under the bound, and zero where the inputs make exact results possible.

Method: each kernel multiplies the same seeded inputs, into a C full of NaN between guard bands, and is compared with
the float64 oracle: normal inputs against the elementwise bound K * eps * (|A| @ |B|), integers and one-hot rows bit for
bit; where integers would not be exact, a probe of the last products of each sum takes their place. Sizes are those
around the edges of the tiles; on the GPU each pair of them meets in each pair of dimensions, and two large problems
pass 2^31 in offsets. Without a GPU the same source runs on the reference GPU, with its fault detectors on at the small
sizes: a race, a skipped barrier or an element that nobody writes fails the kernel even if C is right.

Run: `python -m experiments run correctness [--stage S] [--backend cuda|triton|gluon] [--size MxNxK]`
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import torch

import gemm_ref
from experiments.bench import parallel
from experiments.bench.verify import CheckResult, Inputs, load_all, report, verify
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import FULL, Request
from experiments.records.rows import ERROR, SKIPPED
from experiments.records.store import short
from experiments.studies.correctness.row import CorrectnessRow
from experiments.studies.shared.reference_runs import left_to_full_preset, refuse_long_run
from gemm_ref.problem import integers_are_exact

NAME = "correctness"
KINDS = ("normal", "integers", "one_hot")

LARGE_BYTES = 2**30  # the largest operand takes 17 GB, and the parts that s20 makes of it 24 GiB more
WATCHED_KIND = "normal"  # the inputs with which the fault detectors look on,
WATCHED_MOST_PRODUCTS = 2**19  # and the largest problem at which they do: others of ON_CPU have as many slices


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if contender.is_baseline:
        return "baselines are not part of it: they are checked where they are timed"
    if reason := left_to_full_preset(contender, request):
        return reason
    return "" if request.device in contender.devices else f"{contender} does not run on the {request.device}"


def parts_of(request: Request, math: str) -> list[tuple[gemm_ref.Problem, str]]:
    """Each problem in a math mode with each kind of its inputs; `k_tail` where integers would not be exact."""
    whole: Sequence[tuple[int, int, int]]  # of these all kinds; of the others normal ones alone
    normal: Sequence[tuple[int, int, int]] = ()
    if request.problems:
        whole = [(problem.m, problem.n, problem.k) for problem in request.problems]
    elif request.device == "cuda":
        whole, normal = (*workloads.covering(), workloads.ALL_EDGES_PARTIAL), workloads.ON_GPU_LARGE[request.preset]
    elif request.preset == FULL:
        whole, normal = workloads.ON_CPU, (workloads.ALL_EDGES_PARTIAL,)
    else:
        whole = workloads.ON_CPU_FEW
        if math == "fp32":
            normal = (*(sizes for sizes in workloads.ON_CPU if sizes not in whole), workloads.FEW_EDGES_PARTIAL)
    found = [(gemm_ref.Problem(*sizes, math), kind) for sizes in whole for kind in KINDS]
    found += [(gemm_ref.Problem(*sizes, math), "normal") for sizes in normal]
    inexact = {part for part in found if part[1] == "integers" and not integers_are_exact(part[0])}
    return [(part[0], "k_tail") if part in inexact else part for part in found]


def measure(request: Request, contenders: Sequence[Contender], bars: Bars) -> Iterator[CorrectnessRow]:
    """A row for each contender, problem and kind of inputs."""
    plan = {math: parts_of(request, math) for math in dict.fromkeys(each.math for each in contenders)}
    bars.begin("checking", sum(len(plan[contender.math]) for contender in contenders))
    if request.device == "cuda":
        yield from _on_the_gpu(plan, contenders, bars)
        return
    jobs = [(contender, plan[contender.math]) for contender in contenders]
    for rows in parallel.measure_parts(jobs, _on_the_reference_gpu, bars, request.row_cache):
        yield from rows


def _on_the_gpu(plan, contenders: Sequence[Contender], bars: Bars) -> Iterator[CorrectnessRow]:
    """Problems are outermost: the largest operands are on the GPU once."""
    able, broken = load_all(contenders, "cuda")
    for math, parts in plan.items():
        for problem, kind in parts:
            inputs = Inputs.make(problem, kind).on("cuda")
            for contender in (each for each in contenders if each.math == math):
                bars.doing(f"{contender} {problem}")
                result = _check(contender, able, broken, inputs)
                yield from report(CorrectnessRow.about(NAME, contender, problem, inputs=kind, **result.columns), result)
                bars.done()
                if inputs.a.nbytes > LARGE_BYTES:
                    torch.cuda.empty_cache()  # what one leaves behind in pieces, the next could not use as a whole
            del inputs
            torch.cuda.empty_cache()


def _on_the_reference_gpu(
    contender: Contender, parts: Sequence[tuple[gemm_ref.Problem, str]]
) -> Iterator[list[CorrectnessRow]]:
    able, broken = load_all([contender], "cpu")
    for problem, kind in parts:
        result = broken.get(contender) or refuse_long_run(problem)
        if result is None or result.status == ERROR:
            result = _check(contender, able, broken, _make_inputs(problem, kind))
        row = CorrectnessRow.about(NAME, contender, problem, inputs=kind, **result.columns)
        yield from ([reported] for reported in report(row, result))


_make_inputs = functools.lru_cache(maxsize=64)(Inputs.make)  # shared by all contenders in a process


def is_watched(inputs: Inputs) -> bool:
    """Whether the fault detectors look on: where that takes a moment, and once per problem, as no address is data."""
    return inputs.kind == WATCHED_KIND and inputs.problem.flops // 2 <= WATCHED_MOST_PRODUCTS


def _check(contender: Contender, able, broken, inputs: Inputs) -> CheckResult:
    """The result of one run; after an error the contender is among the `broken`, with what its later rows say."""
    result = broken.get(contender)
    if result is None:
        detect = inputs.a.device.type == "cpu" and is_watched(inputs)
        result = verify(contender, able[contender], inputs, detect=detect)
        if result.status == ERROR:  # it would say the same at every size
            why = f"not run after its error at {inputs.problem}: {short(result.detail)}"
            broken[contender] = CheckResult(SKIPPED, why)
    elif result.status == ERROR:
        broken[contender] = CheckResult(SKIPPED, f"not run: {short(result.detail)}")
    return result
