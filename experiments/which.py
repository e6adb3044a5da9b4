"""The kernel that a default call takes on a GPU that is not here, its predicted time and the nearest measured one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import torch

import cuda_kernels
import triton_kernels
from experiments.bench.provenance import gpu_slug
from experiments.console import print_table
from experiments.publish.numbers import format_fixed, format_number, format_percent, format_precise
from experiments.records import frames, store
from experiments.records.rows import COLD, PASS
from gemm_ref import DIALECTS, Problem, clock
from gemm_ref.call import Plan
from gemm_ref.call.choose import choose
from gemm_ref.call.execute import Entry, execute
from gemm_ref.call.layout import COPIES
from gemm_ref.call.validate import validate
from gemm_ref.epilogue import Extras
from gemm_ref.operands import as_layout
from gemm_ref.rung import DEFAULT_VARIANT

_STUDIES = ("shapes", "squares", "tensor_cores")  # which time default calls with cold caches
_PACKAGES = {"cuda": cuda_kernels, "triton": triton_kernels}  # by backend


@dataclass(frozen=True)
class Measured:
    """The published time at the nearest measured problem."""

    problem: str
    microseconds: float
    of_cublas: float  # speed as a share of that of cuBLAS, or of its SGEMM for an emulated compute type


@dataclass(frozen=True)
class Time:
    """The predicted time of a call, and what holds its longest kernel back for which share of that kernel's time."""

    microseconds: float
    interval_us: tuple[float, float]
    tflops: float
    limit: str
    limit_share: float


@dataclass(frozen=True)
class Candidate:
    """The kernel of a default call in one dialect, with its time or the reason why that is not predicted."""

    dialect: str
    stage: str = ""
    tile: str = ""
    blocks: int | None = None  # None where the grid follows from the sizes
    omitted: str = ""  # from the time: what the call launches before the kernel
    time: Time | None = None
    refusal: str = ""
    nearest: Measured | None = None  # of the same rung


@dataclass(frozen=True)
class Answer:
    """What is predicted and measured of a problem; the fastest dialect is first."""

    problem: str
    math: str
    gpu: str
    candidates: list[Candidate]
    cublas: Measured | None


def answer(problem: Problem, gpu: clock.Gpu) -> Answer:
    """Predicts the default call in each dialect, and finds the nearest published rows of the GPU."""
    card = gpu_slug(gpu.name)
    rows = read_measured(card, problem.math)
    found = [_predict(problem, dialect, card, rows) for dialect in DIALECTS]
    found.sort(key=lambda each: each.time.microseconds if each.time else np.inf)
    return Answer(str(problem), problem.math, gpu.name, found, find_nearest(rows[rows["backend"] == "cublas"], problem))


def read_measured(card: str, math: str) -> pd.DataFrame:
    """Returns a compute type's timed rows, the newest first, with cold caches and with B as a default call has it."""
    parts = [frames.timed(store.read(store.PUBLISHED.parent / card, study), math) for study in _STUDIES]
    rows = pd.concat([frames.shown(part) if "b_layout" in part else part for part in parts], ignore_index=True)
    return rows[(rows["mode"] == COLD) & (rows["status"] == PASS)].sort_values("run", ascending=False, kind="stable")


def find_nearest(rows: pd.DataFrame, problem: Problem) -> Measured | None:
    """Returns the first of the rows whose sizes have the least sum of squared logarithmic ratios to the problem's."""
    if rows.empty:
        return None
    ratios = rows[list(frames.SIZES)] / [problem.m, problem.n, problem.k]
    row = rows.loc[(np.log(ratios.astype(float)) ** 2).sum(axis=1).idxmin()]
    return Measured("x".join(str(row[name]) for name in frames.SIZES), float(row["median_us"]), float(row["vs_cublas"]))


def show(found: Answer) -> None:
    """Prints a row for each dialect, then one for cuBLAS."""
    reference, rows = frames.reference(found.math), []
    for each in found.candidates:
        kernel = f"{each.stage} {each.tile}" + (f", {each.blocks} blocks" if each.blocks else "")
        cells = f"not predicted: {each.refusal}", "", ""
        if time := each.time:
            text = f"{format_number(time.microseconds)} µs ({' to '.join(map(format_number, time.interval_us))})"
            text += f", without {each.omitted}" * bool(each.omitted)
            cells = text, format_number(time.tflops), f"{time.limit}, {format_percent(time.limit_share, 0)}"
        rows.append((DIALECTS[each.dialect].title, kernel.strip(), *cells, *_cells(each.nearest)))
    columns = ("", "kernel", "predicted", "TFLOP/s", "held back by", "nearest measured", f"of {reference}")
    rows.append((reference, "", "", "", "", *_cells(found.cublas)))
    print_table(f"{found.problem} in {found.math} on an {found.gpu}", columns, rows)


def _cells(row: Measured | None) -> tuple[str, str]:
    time = f"{row.problem}: {format_precise(row.microseconds)} µs" if row else ""
    return time, format_fixed(row.of_cublas, 2) if row else ""


def _predict(problem: Problem, dialect: str, card: str, rows: pd.DataFrame) -> Candidate:
    found = Candidate(dialect)
    try:
        plan = _plan(*clock.zeros(problem), problem.math, dialect, card, DEFAULT_VARIANT)
        rung, tile = plan.implementation.stage.id, plan.implementation.variant
        copied = [name for name, copy in (("A", plan.copy_a), ("B", plan.copy_b)) if copy in COPIES]
        omitted = "splitting A and B" if plan.split else f"copying {' and '.join(copied)}" if copied else ""
        own = rows[(rows["dialect"] == dialect) & (rows["stage"] == rung)]
        found = Candidate(dialect, rung, tile, plan.blocks, omitted, nearest=find_nearest(own, problem))
        time = clock.predict(partial(_run, math=problem.math, dialect=dialect, card=card, tile=tile), problem, card)
        return replace(found, time=Time(time.microseconds, time.interval_us, time.tflops, *time.limit))
    except Exception as error:  # whatever stops one dialect says nothing of the others
        reason = re.sub(r"\b_Z\w+: ", "", str(error).partition("\n")[0])  # without the kernel's mangled name
        return replace(found, refusal=reason or type(error).__name__)


def _plan(a: torch.Tensor, b: torch.Tensor, math: str, dialect: str, card: str, tile: str) -> Plan:
    """The plan that a call makes on the GPU; the default variant as `tile` selects one for the sizes."""
    plan, gpu = validate(a, b, stage=None, dialect=dialect, variant=tile, math=math), clock.read(card)
    plan = replace(plan, sms=gpu.multiprocessors, gpu=gpu.name)
    return choose(plan, a, as_layout(b, frames.LAYOUT[math]), None, Extras())


def _run(a: torch.Tensor, b: torch.Tensor, math: str, dialect: str, card: str, tile: str) -> torch.Tensor:
    """Computes a @ b on the reference GPU as the call on the GPU would; the tile stays where K is a sample's."""
    plan, b = _plan(a, b, math, dialect, card, tile), as_layout(b, frames.LAYOUT[math])
    return execute(Entry(), plan, _PACKAGES[DIALECTS[dialect].backend].prepare, a, b, None, a, Extras())
