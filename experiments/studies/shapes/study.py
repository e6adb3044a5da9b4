"""Which rung is best for which shape: M x N at one depth, long and deep products, and the shapes of real models?

Expectation: away from large cubes the tile that covers C best wins, not the highest rung, and cuBLAS, which chooses
among many kernels by shape, pulls ahead; where K is deep and C small, splitting K (s13) beats it.

Method: that of `ladder`, for the rungs from s10 on in fp32 and from s17 on on tensor cores, in every math mode; B is by
rows and, on tensor cores, also by columns, as the weight of torch.nn.Linear is stored. In emulated compute types it is
the call that names no rung, which the row's `kernel` says the kernels of. The problems are in workloads.toml, each with
its reason and each group with its source; the default preset has every fourth. In fp32 there is a map over M x N at
K = 4096, coarser in the default preset, too. Where the bytes of A, B and C take longer than the arithmetic in fp32, the
share of the read roof that `roofs` measures is drawn as well.

Run: `python -m experiments run shapes [--preset full] [--math bf16] [--layout nk] [--stage S] [--size 64x6144x4096]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender, or_sgemm
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import LayoutRow

NAME = "shapes"
FIRST = "s10_double_buffer"  # a rung below was a dialect's best at one of 70 shapes, by 9% (H200, 2026-11-21)
FIRST_ON_TENSOR_CORES = "s17_wgmma_tma"  # none below was faster in `tensor_cores` (H200, 2026-11-21)
PLAN = {
    DEFAULT: RoundPlan(min_rounds=5, max_rounds=50, per_contender_s=0.1, total_s=2.0),
    FULL: RoundPlan(per_contender_s=0.3, total_s=4.0),
}


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or at these sizes; empty if it is."""
    if request.device == "cpu":
        return "shapes are timed only on a GPU"
    if request.device not in contender.devices:
        return "the CPU does not take part"
    first = FIRST if contender.math == "fp32" else FIRST_ON_TENSOR_CORES
    if not contender.is_baseline and (not contender.is_default or contender.stage < first):
        return f"only the default variants of the rungs from {first} on take part in {contender.math}"
    return eligibility.unsuited_in_its_mode(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[LayoutRow]:
    """A row for each contender, problem and layout of B, timed where it is right."""
    setting = Setting(NAME, request.device, plan=PLAN[request.preset], row=LayoutRow)
    for in_mode, of_mode in eligibility.by_math(request, map(or_sgemm, chosen)):
        with Bench(setting, of_mode, bars) as bench:
            for problem in eligibility.problems(in_mode, workloads.shapes(request.preset, in_mode.math)):
                for layout in eligibility.select_layouts(in_mode):
                    yield from bench.time(replace(problem, b_layout=layout))
