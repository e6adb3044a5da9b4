"""How near do the tensor-core rungs come to cuBLAS, in each math mode, with B by rows and by columns?

Expectation: each rung gains on the one below it, since the tensor cores wait less for what they multiply. B by columns,
as weights are often stored, is as fast as B by rows in 16-bit types, which the tensor cores read both ways; in tf32 and
fp8 B by rows costs a copy, or, in s18 in tf32, a way through registers.

Method: that of `ladder`, in every math mode, each beside cuBLAS of the same mode; for B by rows (K x N) and by columns
(N x K). A copy that a kernel needs is part of its time. cuBLAS supports only B by columns in fp8, so by rows its time
includes a copy too; its sums stay in the tensor cores ("fast accumulation"), as the rungs' do.

Run: `python -m experiments run tensor_cores [--stage S] [--backend B] [--math bf16] [--layout nk] [--size 4096]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import LayoutRow

NAME = "tensor_cores"
PLAN = {DEFAULT: RoundPlan(per_contender_s=0.4, total_s=6.0), FULL: RoundPlan(total_s=10.0)}


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is no part of this experiment; empty if it is."""
    if contender.math == "fp32":
        return "fp32 uses no tensor core: `ladder` times it"
    if request.device != "cuda":
        return "tensor cores are timed only on a GPU"
    return eligibility.unsuited_in_its_mode(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[LayoutRow]:
    """A row for each contender, size and layout of B, timed where it is right; a math mode at a time."""
    setting = Setting(NAME, request.device, plan=PLAN[request.preset], row=LayoutRow)
    sizes = [workloads.cube(edge) for edge in workloads.TENSOR_CORES[request.preset]]
    for in_mode, of_mode in eligibility.by_math(request, chosen):
        with Bench(setting, of_mode, bars) as bench:
            for problem in eligibility.problems(in_mode, sizes):
                for layout in eligibility.select_layouts(in_mode):
                    yield from bench.time(replace(problem, b_layout=layout))
