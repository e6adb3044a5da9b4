"""Predicted times of the registry's kernels, as a call launches them; kept while all that they follow from is the same.

A call that copies operands first, or splits them, has the time of that in its prediction: the bytes read and written at
the bandwidth of device memory that the study `roofs` measured for a copy, and an empty kernel's time for each launch.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch

from experiments.bench import provenance
from experiments.records import cache, frames
from gemm_ref import DIALECTS, Implementation, Problem, clock
from gemm_ref.call import Plan
from gemm_ref.call.choose import choose
from gemm_ref.call.execute import Entry, execute
from gemm_ref.call.layout import COPIES
from gemm_ref.call.validate import validate
from gemm_ref.compute import MATHS
from gemm_ref.epilogue import Extras
from gemm_ref.operands import as_layout
from gemm_ref.rung import DEFAULT_VARIANT
from gemm_ref.sass.occupancy import Occupancy

_BYTES_PER_US = 1e6  # of 1 TB/s
# Of K as many slices are executed, and so many elements at least: four times as much changes times by 3% at most, but
# that of s03 and s11 in CUDA by 7% (4096, fp32).
_SLICES, _LEAST_SAMPLE_K = 16, 256


@dataclass(frozen=True)
class Copies:
    """What a call launches in front of its kernel."""

    what: str = ""  # empty where there is nothing
    microseconds: float = 0.0


@dataclass(frozen=True)
class Predicted:
    """A call's time."""

    copies: Copies
    kernels: clock.Prediction

    @property
    def microseconds(self) -> float:
        return self.copies.microseconds + self.kernels.microseconds

    @property
    def interval_us(self) -> tuple[float, float]:
        """Between which times nine in ten calls were found."""
        low, high = self.kernels.interval_us
        return low + self.copies.microseconds, high + self.copies.microseconds

    @property
    def tflops(self) -> float:
        return self.kernels.problem.flops / self.microseconds / 1e6


def plan_call(
    problem: Problem, card: str, dialect: str, stage: str | None = None, variant: str = DEFAULT_VARIANT
) -> Plan:
    """The plan of a call on a GPU of `clock`; stage: the rung, or None for the default of the problem's compute type.

    Raises ValueError as a call does.
    """
    return _plan(*clock.zeros(problem), problem.math, card, dialect, stage, variant)


def _plan(
    a: torch.Tensor, b: torch.Tensor, math: str, card: str, dialect: str, stage: str | None, variant: str
) -> Plan:
    plan, gpu = validate(a, b, stage=stage, dialect=dialect, variant=variant, math=math), clock.read(card)
    plan = replace(plan, sms=gpu.multiprocessors, gpu=gpu.name)
    return choose(plan, a, as_layout(b, frames.LAYOUT[math]), None, Extras())


def _copies_of(plan: Plan, card: str) -> Copies:
    """What a call with this plan copies or splits first, and for how long."""
    problem, mode, gpu = plan.problem, MATHS[plan.problem.math], clock.read(card)
    elements = {"A": problem.m * problem.k, "B": problem.n * problem.k}
    if plan.split:
        copied, launches, moved = list(elements), len(elements), 4 + mode.parts * mode.part_dtype.itemsize
    else:
        copied = [name for name, copy in (("A", plan.copy_a), ("B", plan.copy_b)) if copy in COPIES]
        launches, moved = min(1, len(copied)), 2 * mode.dtype.itemsize  # one launch copies both
    if not copied:
        return Copies()
    total = sum(elements[name] for name in copied) * moved
    microseconds = launches * gpu.launch["empty"] + total / (gpu.roof["dram_copy"] * _BYTES_PER_US)
    return Copies(f"{'splitting' if plan.split else 'copying'} {' and '.join(copied)}", microseconds)


def predict(item: Implementation, problem: Problem, card: str, fresh: bool = False) -> Predicted:
    """The time of a call of a kernel, whose default variant takes the tile that the problem selects.

    fresh: not that of an earlier run. Raises as `clock.predict` does, and what a compiler raises.
    """
    if not fresh and (kept := read(item, problem, card)):
        return kept
    plan = plan_call(problem, card, item.dialect, item.stage.id, item.variant)
    depth = plan.implementation.config.depth(MATHS[item.math].part_dtype.itemsize)
    run, sample_k = functools.partial(_run, plan, card), max(_LEAST_SAMPLE_K, _SLICES * depth)
    found = Predicted(_copies_of(plan, card), clock.predict(run, problem, card, sample_k))
    cache.save(*_entry(item, problem, card), json.dumps(asdict(found)).encode())
    return found


def read(item: Implementation, problem: Problem, card: str) -> Predicted | None:
    """What `predict` returned in an earlier run of the same sources; None where there is no such run."""
    content = json.loads(cache.load(*_entry(item, problem, card)) or "null")
    if content is None:
        return None
    prediction = content["kernels"]
    launches = [
        clock.LaunchTime(**each | {"held": Occupancy(**each["held"]), "places": _lines(each["places"])})
        for each in prediction["launches"]
    ]
    whole = prediction | {"problem": Problem(**prediction["problem"]), "launches": tuple(launches)}
    return Predicted(Copies(**content["copies"]), clock.Prediction(**whole))


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
    plan, package = replace(plan, blocks=full.blocks), importlib.import_module(DIALECTS[item.dialect].package)
    return execute(Entry(), plan, package.prepare, a, as_layout(b, frames.LAYOUT[item.math]), None, a, Extras())


@functools.cache
def _digest(package: str, stage: str) -> str:
    return cache.digest_rung(["gemm_ref", "experiments/bench", package], stage, list(provenance.versions().values()))
