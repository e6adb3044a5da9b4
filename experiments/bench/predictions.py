"""Predicted times of the registry's kernels, as a call launches them; kept while what they follow from is the same."""

from __future__ import annotations

import functools
import importlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch

from experiments.bench import provenance
from experiments.records import cache, frames, workloads
from gemm_ref import DIALECTS, Implementation, Problem, clock
from gemm_ref.call import Plan
from gemm_ref.call.choose import choose
from gemm_ref.call.execute import Entry, execute
from gemm_ref.call.layout import COPIES
from gemm_ref.call.validate import validate
from gemm_ref.clock.gpu import cards
from gemm_ref.compute import MATHS
from gemm_ref.epilogue import Extras
from gemm_ref.launch import cdiv
from gemm_ref.rung import DEFAULT_VARIANT
from gemm_ref.sass.occupancy import Occupancy

# Of K as many slices are executed, and so many elements at least: four times as much changes times by 3% at most, but
# that of s03 and s11 in CUDA by 7% (4096, fp32).
_SLICES, _LEAST_SAMPLE_K = 16, 256


def plan_call(
    problem: Problem, card: str, dialect: str, stage: str | None = None, variant: str = DEFAULT_VARIANT
) -> Plan:
    """The plan of a call on a GPU of `clock`; stage: the rung, or None for the default of the problem's compute type.

    Raises ValueError as a call does.
    """
    return _plan(*clock.zeros(_laid_out(problem)), problem.math, card, dialect, stage, variant)


def _plan(
    a: torch.Tensor, b: torch.Tensor, math: str, card: str, dialect: str, stage: str | None, variant: str
) -> Plan:
    plan, gpu = validate(a, b, stage=stage, dialect=dialect, variant=variant, math=math), clock.read(card)
    plan = replace(plan, sms=gpu.multiprocessors, gpu=gpu.name)
    return choose(plan, a, b, None, Extras())


def _laid_out(problem: Problem) -> Problem:
    """The problem with B as a default call has it."""
    return replace(problem, b_layout=frames.LAYOUT[problem.math])


def describe_copies(plan: Plan) -> str:
    """Returns in words what a call with this plan copies or splits first; empty where it does neither."""
    if plan.split:
        return "splitting A and B"
    copied = [name for name, copy in (("A", plan.copy_a), ("B", plan.copy_b)) if copy in COPIES]
    return f"copying {' and '.join(copied)}" if copied else ""


def predict(item: Implementation, problem: Problem, card: str, fresh: bool = False) -> clock.Prediction:
    """The time of a call of a kernel, whose default variant takes the tile that the problem selects.

    fresh: not that of an earlier run. Raises as `clock.predict` does, and what a compiler raises.
    """
    if not fresh and (kept := read(item, problem, card)):
        return kept
    plan = plan_call(problem, card, item.dialect, item.stage.id, item.variant)
    found = clock.predict(functools.partial(_run, plan, card), _laid_out(problem), card, _sample_k(plan))
    cache.save(*_entry(item, problem, card), json.dumps(asdict(found)).encode())
    return found


def _sample_k(plan: Plan) -> int:
    """A K of which a block computes as many slices as it takes to tell what more of them take."""
    item, config = plan.implementation, plan.implementation.config
    rows, columns = config.sides(plan.problem)
    shares = cdiv(math.prod(plan.launch.grid), cdiv(rows, config.BLOCK_M) * cdiv(columns, config.BLOCK_N))  # of K
    return shares * max(_LEAST_SAMPLE_K, _SLICES * config.depth(MATHS[item.math].part_dtype.itemsize))


def at_tables(item: Implementation) -> tuple[Problem, str]:
    """The problem and the card at which a kernel is predicted where one is shown: the tables' size, the first card."""
    return Problem(*workloads.cube(workloads.LARGEST), item.math, frames.LAYOUT[item.math]), next(iter(cards()))


def read(item: Implementation, problem: Problem, card: str) -> clock.Prediction | None:
    """What `predict` returned in an earlier run of the same sources; None where there is no such run."""
    content = json.loads(cache.load(*_entry(item, problem, card)) or "null")
    if content is None:
        return None
    launches = [
        clock.LaunchTime(**each | {"held": Occupancy(**each["held"]), "places": _lines(each["places"])})
        for each in content["launches"]
    ]
    made = {"problem": Problem(**content["problem"]), "launches": tuple(launches)}
    return clock.Prediction(**content | made | {"copies_us": tuple(content["copies_us"])})


def _lines(kept: Sequence[dict]) -> tuple[clock.Line, ...]:
    return tuple(clock.Line(**each | {"callers": tuple(each["callers"])}) for each in kept)


def _entry(item: Implementation, problem: Problem, card: str) -> tuple[str, str]:
    """The name and the digest of an entry of the cache."""
    name = "-".join(("prediction", card, item.stage.id, item.dialect, item.variant, item.math, str(problem)))
    return name, _digest(DIALECTS[item.dialect].package, item.stage.id)


def _run(full: Plan, card: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Computes a @ b on the reference GPU as the call on the GPU would; tile and blocks are those of the full K."""
    item = full.implementation
    plan = _plan(a, b, item.math, card, item.dialect, item.stage.id, item.variant)
    plan, package = plan.with_blocks(full.blocks), importlib.import_module(DIALECTS[item.dialect].package)
    return execute(Entry(), plan, package.prepare, a, b, None, a, Extras())


@functools.cache
def _digest(package: str, stage: str) -> str:
    return cache.digest_rung(["gemm_ref", "experiments/bench", package], stage, list(provenance.versions().values()))
