"""How much faster are several GPUs than one, and what do the links between them cost in each way to use them?

Expectation: in turn, a product waits for all bytes to cross the links first, and the share that it waits grows with the
number of GPUs, as each computes less of what is sent to all. Overlapped, all but the first chunk comes while another is
multiplied: nearly nothing is lost while a chunk's product takes longer than its way. fp32 without tensor cores computes
so long that the links hardly count. In weak scaling the share stays nearly the same.

Method: there is a process per GPU, of 2, 4, ... up to all or --gpus. A layer's two products, and from 4 GPUs on a
grid, are computed three ways (`gemm_ref.distributed.layouts`): NCCL's collective and the product in turn, torch's fused
operator, and ours overlapped, with cuBLAS and with our rungs as the local product. Each way is checked on every rank.
All take turns in the same rounds, with the whole product on one card, the local product alone, and both kinds of
copies alone: from those four the model is made. A time is that of the slowest rank, between two events, after the GPUs
have met. Strong scaling divides one cube; in weak scaling every GPU's product is a cube of its own. NVLink multicast
is off. Without a GPU the same code runs in processes on the reference GPU and is checked, at small sizes; it is not
timed. With one GPU nothing is done.

Run: `python -m experiments run scaling [--gpus N] [--math bf16] [--size 8192] [--stage S] [--device cpu]`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

import gemm_ref
from experiments.bench.eligibility import with_references
from experiments.bench.verify import DeviceLost
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender
from experiments.records.request import Request
from experiments.records.rows import STRONG, WEAK, ScalingRow
from experiments.studies.scaling.ranks import RankTask
from gemm_ref import Problem
from gemm_ref.dialect import BY_HAND
from gemm_ref.distributed import layouts, spawn

NAME = "scaling"
BY_DEFAULT = {
    "fp32": ("s14_register_banks",),
    "bf16": ("s18_warp_specialized", "s19_any_shape"),
    "fp16x3": ("s20_emulated",),
    "bf16x6": ("s20_emulated",),
}
ON_CPU = ("fp32", "bf16")  # of BY_DEFAULT, the last rung
RANKS_ON_CPU = 2


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender takes no part; empty if it does."""
    if request.device == "cuda" and cards(request) < 2:
        return "scaling takes two GPUs or more, and there is one: --device cpu checks the same code in processes"
    if gemm_ref.MATHS[contender.math].has_scales:
        return f"{contender.math} has scales, which the layouts do not divide"
    if request.problems and any(not problem.flops for problem in request.problems):
        return "a size of 0 leaves nothing to divide"
    if contender.is_baseline:
        there = contender.is_reference and request.device == "cuda" and contender.math in BY_DEFAULT
        return "" if there else "of the libraries, cuBLAS alone takes part, on GPUs"
    if not contender.is_default:
        return "only the default variant of a rung takes part"
    if request.stages or request.backends or request.math not in ("", *BY_DEFAULT):
        return "" if request.math in ("", contender.math) else f"{contender.math} takes part only if --math asks for it"
    rungs = BY_DEFAULT.get(contender.math, ())
    if request.device == "cpu":
        rungs = rungs[-1:] if contender.math in ON_CPU or request.math else ()
    named = contender.stage in rungs and contender.dialect == BY_HAND
    return "" if named else "of each math mode the last rungs in CUDA take part; --stage and --backend name others"


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[ScalingRow]:
    """A row for each way of each contender, layout, size and number of GPUs.

    Raises DeviceLost, with what the first rank said that failed, once all have ended.
    """
    for ranks in counts(request):
        tasks = list(_tasks(request, chosen, ranks))
        bars.begin(f"{ranks} {'GPUs' if request.device == 'cuda' else 'processes'}", len(tasks))
        try:
            first = True
            for said in spawn.run_on_ranks("experiments.studies.scaling.ranks:measure", tasks, ranks, request.device):
                if isinstance(said, str):
                    if not first:
                        bars.done()
                    bars.doing(said)
                    first = False
                else:
                    yield said
        except spawn.RanksFailed as failed:
            raise DeviceLost(str(failed)) from failed
        bars.done()


def cards(request: Request) -> int:
    """How many ranks there are at most."""
    return request.gpus or (torch.cuda.device_count() if request.device == "cuda" else RANKS_ON_CPU)


def counts(request: Request) -> list[int]:
    """How many ranks are measured: on GPUs powers of two, and all; on a CPU all."""
    most = cards(request)
    powers = [2**n for n in range(1, most.bit_length()) if 2**n <= most] if request.device == "cuda" else []
    return sorted({*powers, most})


def _tasks(request: Request, chosen: Sequence[Contender], ranks: int) -> Iterator[RankTask]:
    on_gpus = request.device == "cuda"
    everyone = with_references(chosen) if on_gpus else list(chosen)
    sizes = workloads.SCALING[request.preset] if on_gpus else workloads.SCALING_ON_CPU
    problems = request.problems or [Problem(*size) for size in sizes]
    for problem in problems:
        for math in gemm_ref.MATHS:
            names = tuple(str(each) for each in everyone if each.math == math)
            for layout in layouts.LAYOUTS if names else ():
                if layout == layouts.GRID and layouts.grid_shape(ranks)[0] == 1:
                    continue  # a row of ranks gathers B alone
                whole = replace(problem, math=math)
                yield RankTask(NAME, request.device, layout, STRONG, whole, whole, names, on_gpus)
                if on_gpus and problem.m == problem.n == problem.k <= workloads.SCALING_WEAK_MOST:
                    yield RankTask(
                        NAME, request.device, layout, WEAK, layouts.scale_weakly(whole, layout, ranks), whole, names
                    )
