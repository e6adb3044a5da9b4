"""How near do products of few rows, as in decoding, come to the read roof: launched alone and in a graph of layers?

Expectation: reading the weights is all that takes time. Between two events some of it is the launch; in a CUDA graph of
20 layers the next kernel is there when one ends, and what is below the roof is the kernel's own.

Method: that of `ladder`, for the last rung in bf16, fp16 and fp8, with B by columns, as torch.nn.Linear has its weight
(nk): 1 to 64 rows of ten layers of workloads.toml (every third of both in the default preset). Each product is timed
with a cold cache, with a warm one, and in a graph of 20 calls on as many weights (`layers`). The roof is `roofs`'
`dram_read`; A, B and C are moved once.

Run: `python -m experiments run decode [--preset full] [--math bf16] [--backend B] [--size 8x6144x4096]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import gemm_ref
from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import LAYERS, WARM, LayoutRow

NAME = "decode"
MATHS = ("bf16", "fp16", "fp8")
PLAN = RoundPlan(per_contender_s=0.05, total_s=0.5)


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device or in its math mode; empty if it is."""
    if request.device == "cpu":
        return "decoding is timed only on a GPU"
    if contender.math not in MATHS:
        return f"decoding is timed in {', '.join(MATHS)}"
    if contender.stage != gemm_ref.stages_in(contender.math)[-1].id and not contender.is_reference:
        return "the last rung of a compute type takes part, beside cuBLAS"
    return eligibility.unsuited_in_its_mode(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[LayoutRow]:
    """A row for each contender, problem and timing mode, timed where it is right."""
    setting = Setting(NAME, request.device, plan=PLAN, row=LayoutRow, more_modes=(WARM, LAYERS))
    for in_mode, of_mode in eligibility.by_math(request, chosen):
        with Bench(setting, of_mode, bars) as bench:
            for problem in eligibility.problems(in_mode, workloads.decode(request.preset)):
                yield from bench.time(replace(problem, b_layout="nk"))
