"""How much is lost by choosing tile and blocks by a model of the shape, and not by trying all of them?

Expectation: the model (`gemm_ref.choice`) is some percent off for a single time, yet ranks candidates well: what it
chooses takes at most 3% longer than the best (geometric mean), and at most 15% at the worst shape. Triton's autotune,
which times every candidate at each new shape, takes seconds for it.

Method: that of `ladder`, for the candidates of the rung that chooses, at random shapes that the model was not fitted
on. Tried are those whose predicted time is at most 3 times the least, and of one tile's counts of blocks at most 8,
evenly over their logarithms; rows say how many candidates there are in all. Regret is the time of the chosen one over
that of the fastest, less 1. Triton's autotune picks from the same list by its own benchmark, after all of them are
compiled. The full preset also times the shapes that `python -m experiments fit` makes a GPU's table from: there fewer
candidates, in fewer rounds, and without autotune, since nothing is judged by them.

Run: `python -m experiments run choice [--preset full] [--backend triton] [--size 317x4608x3584]`
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np
import torch

import gemm_ref
from experiments.bench import eligibility
from experiments.bench.measure import Bench, Setting
from experiments.bench.rounds import RoundPlan
from experiments.grouping import group_pairs
from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.contenders import Contender, build_ahead, with_blocks
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import PASS
from experiments.studies.choice.row import ChoiceRow
from gemm_ref import choice
from gemm_ref.call.choose import has_vectors
from gemm_ref.call.validate import sms_of
from gemm_ref.inputs import meta_operands

NAME = "choice"
TUNED = "triton"  # the dialect in which Triton's autotune is asked as well
Name = TypeVar("Name")
Benchmark = Callable[..., list[float]]  # (call, quantiles) -> times


@dataclass(frozen=True)
class Effort:
    """How much is spent on a problem."""

    plan: RoundPlan
    within: float = 3.0  # times the least predicted time: what is tried,
    most: int = 8  # and of one tile so many counts of blocks
    autotune: bool = True


JUDGED = {
    DEFAULT: Effort(RoundPlan(min_rounds=5, max_rounds=30, per_contender_s=0.03, total_s=1.5)),
    FULL: Effort(RoundPlan(per_contender_s=0.1, total_s=6.0)),
}
FITTED = replace(JUDGED[DEFAULT], within=1.5, most=4, autotune=False)


@dataclass(frozen=True)
class Try:
    """A candidate at one problem."""

    candidate: choice.Candidate
    predicted_us: float
    is_chosen: bool
    candidates: int  # in all, with those that are not tried


def sizes(preset: str, math: str) -> tuple[tuple[int, int, int], ...]:
    """The problems of a preset in one math mode."""
    return (*(workloads.fitted(math) if preset == FULL else ()), *workloads.unseen(preset, math))


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender takes no part; empty if it does."""
    if request.device == "cpu":
        return "a choice is judged by times, on a GPU"
    if contender.kernel is None:
        return "of the libraries cuBLAS alone takes part, unasked"
    if contender.dialect not in contender.kernel.stage.tiles or not contender.is_default:
        return "only the default variant of a rung that chooses its tile by shape takes part"
    return eligibility.unsuited(contender, request)


def measure(request: Request, chosen: Sequence[Contender], bars: Bars) -> Iterator[ChoiceRow]:
    """A row for each candidate that is tried, at each problem, and for cuBLAS beside them."""
    gpu, sms = torch.cuda.get_device_name(), sms_of(torch.device("cuda"))
    for problem in eligibility.problems(request, sizes(request.preset, request.math or "fp32")):
        effort = effort_at(problem, request.preset)
        setting = Setting(NAME, request.device, plan=effort.plan, row=ChoiceRow)
        tries = {who: each for rung in chosen for who, each in select_tries(rung, problem, sms, effort, gpu).items()}
        bars.begin(f"{problem}: compiling", 1)
        build_ahead({who.kernel: who for who in tries}.values(), torch.cuda.get_device_capability())
        with Bench(setting, list(tries), bars) as bench:
            rows = cast(list[ChoiceRow], list(bench.time(problem)))
        passed = {(row.dialect, row.variant) for row in rows if row.status == PASS}
        able = [who for who in tries if (who.dialect, who.variant) in passed]
        yield from describe_tries(rows, tries, run_autotune(able, problem) if effort.autotune else {})


def effort_at(problem: gemm_ref.Problem, preset: str) -> Effort:
    """That of a problem that tables are fitted on, or of one at which the choice is judged."""
    fitted = (problem.m, problem.n, problem.k) in workloads.fitted(problem.math)
    return FITTED if fitted else JUDGED[preset]


def select_tries(
    rung: Contender, problem: gemm_ref.Problem, sms: int, effort: Effort, gpu: str = ""
) -> dict[Contender, Try]:
    """What is tried of one rung and dialect at a problem, the chosen candidate among them, by contender.

    sms, gpu: as for `gemm_ref.choice.choose`.
    """
    assert rung.kernel
    vectors = has_vectors(rung.dialect, *meta_operands(problem, False)[:2])
    problem = choice.select_phases(rung.kernel.stage, rung.dialect, problem, sms, gpu)
    asked = rung.kernel.stage, rung.dialect, problem, sms, vectors, gpu
    found, taken = choice.predict_all(*asked), choice.choose(*asked)
    least = min(found.values())
    of_tile = group_pairs((each.tile, each) for each, took in found.items() if took <= effort.within * least)
    kept = {taken, *(each for candidates in of_tile.values() for each in _spread(candidates, effort.most))}
    return {
        with_blocks(replace(rung.kernel, variant=each.tile), each.blocks): Try(
            each, took / 1e3, each == taken, len(found)
        )
        for each, took in found.items()
        if each in kept
    }


def _spread(candidates: list[choice.Candidate], most: int) -> list[choice.Candidate]:
    """At most so many candidates of one tile, the counts of their blocks evenly over the logarithms."""
    in_order = sorted(candidates, key=lambda each: each.blocks)
    logs = np.log([each.blocks for each in in_order])
    return [in_order[int(np.abs(logs - at).argmin())] for at in np.linspace(logs[0], logs[-1], most)]


def run_autotune(able: Sequence[Contender], problem: gemm_ref.Problem, device: str = "cuda") -> dict[Contender, float]:
    """What Triton's autotune picks among the candidates of its own dialect, and the seconds that it takes."""
    a, b = gemm_ref.make_inputs(problem, device=device)
    c = torch.empty((problem.m, problem.n), dtype=gemm_ref.MATHS[problem.math].out_dtype, device=device)
    works = {who: functools.partial(who.load(), a, b, out=c) for who in able if who.dialect == TUNED}
    return dict([autotune(works)]) if works else {}


def autotune(works: Mapping[Name, Callable[[], object]], benchmark: Benchmark | None = None) -> tuple[Name, float]:
    """What `triton.autotune` picks among calls without arguments, and the seconds that this takes.

    A launch of a candidate stands in the place of a jit function, so that candidates may be of any kernel. benchmark:
    what times a call; None is Triton's own for the device.
    """
    import triton

    names = list(works)
    configs = [triton.Config({"place": place}) for place in range(len(names))]
    tuner = triton.autotune(configs, key=[], do_bench=benchmark)(_Launches(list(works.values())))
    start = time.perf_counter()
    tuner.run()
    return names[tuner.best_config.kwargs["place"]], time.perf_counter() - start


class _Launches:
    """What the autotuner asks of a jit function."""

    arg_names = ("place",)

    def __init__(self, works: list[Callable[[], object]]) -> None:
        self._works = works

    @staticmethod
    def fn(place: int) -> None:
        """The Python function whose name the autotuner prints."""

    def run(self, *, place: int, **options: object) -> None:
        """Launch one candidate; its own launcher knows the warps and stages that `options` would set."""
        self._works[place]()


def describe_tries(
    rows: Sequence[ChoiceRow], tries: Mapping[Contender, Try], tuned: Mapping[Contender, float]
) -> Iterator[ChoiceRow]:
    """The rows, with what is known of their candidates."""
    names = {(who.dialect, who.variant): who for who in tries}
    for row in rows:
        who = names.get((row.dialect, row.variant))
        if who is None:  # cuBLAS
            yield row
            continue
        each = tries[who]
        yield replace(
            row,
            variant=each.candidate.tile,
            blocks=each.candidate.blocks,
            predicted_us=each.predicted_us,
            chosen=int(each.is_chosen),
            candidates=each.candidates,
            autotune_s=tuned.get(who),
        )
