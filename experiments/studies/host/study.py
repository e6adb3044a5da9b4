"""What does a call cost the host, beside torch's own `a @ b`?

Expectation: about as much. What does not change between two calls of one shape is computed once. A call then does some
look-ups, allocates C and launches; a rung with tensor maps must also find those, and Triton adds its own launcher.
Where the kernel is shorter than its call, a loop of calls waits for this.

Method: every contender is checked against the oracle first, and called a few times, so that it is compiled and planned.
Then all take turns: with the GPU idle, BURST calls are put into its queue, which never fills, and the host's clock is
read around them. The time of a burst divided by BURST is one sample. Each call allocates C, as `a @ b` does. Python's
garbage collector is paused. Each rung takes part with its default variants, in its first math mode.

Run: `python -m experiments run host [--stage S] [--backend B] [--size 256]`
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import numpy as np
import torch

import gemm_ref
from experiments.bench.verify import Case, DeviceLost, load, refusal, verify
from experiments.progress import Bars
from experiments.records import stats, workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.studies.host.row import HostRow
from gemm_ref.baselines.products import fp32_products
from gemm_ref.ptx.program import without_collection

NAME = "host"
BURST, ROUNDS, WARM_UP = 20, 100, 10  # calls of a sample, samples of a contender, and calls before them
TORCH = "torch_matmul"


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender takes no part; empty if it does."""
    if request.device == "cpu":
        return "a call's cost on the host is the cost of a launch on a GPU"
    if contender.is_baseline:
        return "of the libraries, only torch's `a @ b` takes part"
    if not contender.is_default:
        return "only the default variant of a rung takes part"
    math = request.math or gemm_ref.get_stage(contender.stage).maths[0]
    return "" if contender.math == math else f"{contender.math} takes part only if --math asks for it"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[HostRow]:
    """A row for each contender and size, and for torch in each of their math modes.

    Raises DeviceLost after the row of a contender that left the GPU unusable.
    """
    maths = [math for math in gemm_ref.MATHS if any(contender.math == math for contender in chosen)]
    everyone = [*chosen, *(_torch(math) for math in maths if math not in ("tf32", "fp8"))]
    sizes = [(problem.m, problem.n, problem.k) for problem in request.problems] or map(workloads.cube, workloads.HOST)
    for size in sizes:
        cases = {math: Case.make(gemm_ref.Problem(*size, math=math), "normal") for math in maths}
        yield from _at(cases, everyone, request.device, bars)


def _torch(math: str) -> Contender:
    """torch's `a @ b`, called as its users do."""
    return Contender(TORCH, "default", "torch", "", math, ("cuda",), lambda: _matmul)


def _matmul(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    return a @ b if out is None else torch.matmul(a, b, out=out)


def _at(cases: dict[str, Case], everyone: Sequence[Contender], device: str, bars: Bars) -> Iterator[HostRow]:
    placed = {math: (case.a.to(device), case.b.to(device)) for math, case in cases.items()}
    problem = next(iter(cases.values())).problem
    bars.begin(f"{problem}: checking", len(everyone))
    calls: dict[Contender, Callable[[], object]] = {}
    with fp32_products("ieee"):  # set once, outside of what is timed
        for contender in everyone:
            bars.doing(str(contender))
            case = cases[contender.math]
            fn, verdict = load(contender)
            verdict = verdict or refusal(contender, device) or verify(contender, fn, *placed[contender.math], case)
            if verdict.accuracy:
                calls[contender] = functools.partial(fn, *placed[contender.math])
            else:
                yield HostRow.about(NAME, contender, case.problem, **verdict.columns)
            if verdict.lost:
                raise DeviceLost(verdict.lost)
            bars.done()
        for contender, times_us in host_times(calls, bars, f"{problem}: timing the host").items():
            summary = stats.summarize(np.array(times_us))
            yield HostRow.about(NAME, contender, cases[contender.math].problem, **asdict(summary))


def host_times(calls: dict[Contender, Callable[[], object]], bars: Bars, text: str) -> dict[Contender, list[float]]:
    """Microseconds of the host for one call, ROUNDS of each, in turns.

    calls: what is timed, with its operands bound.
    """
    bars.begin(text, ROUNDS)
    times: dict[Contender, list[float]] = {contender: [] for contender in calls}
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    with without_collection():
        for _ in range(ROUNDS):
            for contender, call in calls.items():
                torch.cuda.synchronize()
                start = time.perf_counter_ns()
                for _ in range(BURST):
                    call()
                times[contender].append((time.perf_counter_ns() - start) / BURST / 1e3)
            bars.done()
    torch.cuda.synchronize()
    return times
