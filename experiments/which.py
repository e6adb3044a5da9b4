"""The kernel that a default call takes on a GPU that is not here, its predicted time and the nearest measured one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from experiments.bench import predictions
from experiments.bench.provenance import gpu_slug
from experiments.console import out, print_table, tell
from experiments.publish.numbers import format_fixed, format_number, format_percent, format_precise
from experiments.records import frames, store
from experiments.records.rows import COLD, PASS
from gemm_ref import DIALECTS, Problem, clock

_STUDIES = ("shapes", "squares", "tensor_cores")  # which time default calls with cold caches


@dataclass(frozen=True)
class Measured:
    """The published time at the nearest measured problem."""

    problem: str
    microseconds: float
    of_cublas: float  # speed as a share of that of cuBLAS, or of its SGEMM for an emulated compute type


@dataclass(frozen=True)
class Time:
    """The predicted time of a call with all that it launches; what holds its longest kernel back, for which share."""

    microseconds: float
    interval_us: tuple[float, float]
    tflops: float
    limit: str
    limit_share: float
    is_wait: bool  # whether the limit is waited for, and not a busy resource
    copies: str  # in front of the kernel; empty without any
    copies_us: float
    kernels: int  # that are launched behind the copies: a second one adds the sums of a split K


@dataclass(frozen=True)
class Candidate:
    """The kernel of a default call in one dialect, with its time or the reason why that is not predicted."""

    dialect: str
    stage: str = ""
    tile: str = ""  # its name
    tile_sizes: tuple[int, int] = (0, 0)  # rows and columns of C
    blocks: int | None = None  # None where the grid follows from the sizes
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
    rows = pd.concat(map(frames.shown, parts), ignore_index=True)
    return rows[(rows["mode"] == COLD) & (rows["status"] == PASS)].sort_values("run", ascending=False, kind="stable")


def find_nearest(rows: pd.DataFrame, problem: Problem) -> Measured | None:
    """Returns the row that is nearest to the problem (`frames.nearest`); None without rows."""
    row = frames.nearest(rows, problem)
    if row is None:
        return None
    return Measured("x".join(str(row[name]) for name in frames.SIZES), float(row["median_us"]), float(row["vs_cublas"]))


def show(found: Answer) -> None:
    """Prints a row for each dialect, then one for cuBLAS; below the table, what a call launches beside its kernel."""
    reference, rows, notes = frames.reference(found.math), [], []
    for each in found.candidates:
        title = DIALECTS[each.dialect].title
        kernel = f"{each.stage} {each.tile} ({'x'.join(map(str, each.tile_sizes))})" if each.stage else ""
        kernel += f", {each.blocks} blocks" if each.blocks else ""
        cells = f"not predicted: {each.refusal}", "", ""
        if time := each.time:
            text = f"{format_number(time.microseconds)} µs ({' to '.join(map(format_number, time.interval_us))})"
            if time.copies:
                notes.append(f"{title}: {format_number(time.copies_us)} µs of it are for {time.copies}")
            if time.kernels > 1:
                notes.append(f"{title}: {time.kernels} kernels, of which the last adds the parts of C")
            cells = text, format_number(time.tflops), f"{time.limit}, {format_percent(time.limit_share, 0)}"
        rows.append((title, kernel, *cells, *_cells(each.nearest)))
    columns = ("", "kernel", "predicted", "TFLOP/s", "held back by", "nearest measured", f"of {reference}")
    rows.append((reference, "", "", "", "", *_cells(found.cublas)))
    print_table(f"{found.problem} in {found.math} on an {found.gpu}", columns, rows)
    for note in notes:
        tell(note, out)


def _cells(row: Measured | None) -> tuple[str, str]:
    time = f"{row.problem}: {format_precise(row.microseconds)} µs" if row else ""
    return time, format_fixed(row.of_cublas, 2) if row else ""


def _predict(problem: Problem, dialect: str, card: str, rows: pd.DataFrame) -> Candidate:
    found = Candidate(dialect)
    try:
        plan = predictions.plan_call(problem, card, dialect)
        item = plan.implementation
        if plan.in_place_of:
            rows, problem = read_measured(card, item.math), replace(problem, math=item.math)
        own = rows[(rows["dialect"] == dialect) & (rows["stage"] == item.stage.id)]
        sizes = item.config.BLOCK_M, item.config.BLOCK_N
        found = Candidate(dialect, item.stage.id, item.variant, sizes, plan.blocks, nearest=find_nearest(own, problem))
        its = predictions.predict(item, problem, card)
        about = predictions.describe_copies(plan), sum(its.copies_us), len(its.launches)
        time = Time(its.microseconds, its.interval_us, its.tflops, *its.limit, *about)
        return replace(found, time=time)
    except Exception as error:  # whatever stops one dialect says nothing of the others
        reason = re.sub(r"\b_Z\w+: ", "", str(error).partition("\n")[0])  # without the kernel's mangled name
        return replace(found, refusal=reason or type(error).__name__)
