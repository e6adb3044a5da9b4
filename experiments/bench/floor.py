"""The least time that a GPU needs for a product: a shorter time is that of something else.

Work on another stream, a memoised result, fewer bits than were requested, and events that were tampered with all look
fast, and at some point faster than the hardware allows.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from experiments.bench import datasheets
from experiments.records.rows import COLD, FAIL, Row, TimedRow
from gemm_ref.compute import MATHS
from gemm_ref.distributed.layouts import WAYS
from gemm_ref.problem import Problem

AnyRow = TypeVar("AnyRow", bound=Row)


def judge(row: AnyRow, environment: dict) -> AnyRow:
    """The row unchanged, or, if its time is less than its GPU needs, a failure without a time.

    environment: the GPU that it was taken on. Rows of the CPU, and of what is no product, are not judged.
    """
    if not isinstance(row, TimedRow) or not row.mode or row.median_us is None or not row.m * row.n * row.k:
        return row
    problem = Problem(row.m, row.n, row.k, row.math)
    reason = too_fast(row.median_us, problem, row.mode, environment, cards_of(row))
    return reject(row, FAIL, reason) if reason else row


def reject(row: AnyRow, status: str, detail: str) -> AnyRow:
    """The row as a failure: it keeps what it is about, and loses all that was measured."""
    measured: dict[str, Any] = {each.name: None for each in fields(row) if each.default is None}
    kept = {name: getattr(row, name) for name in measured.keys() & set(row.KEY)}
    verdict = {"verdict": ""} if hasattr(row, "verdict") else {}
    return replace(row, status=status, detail=detail, **measured | kept | verdict)


def cards_of(row: Any) -> int:
    """Returns how many GPUs computed the product that a row is about."""
    return row.gpus if getattr(row, "way", "") in WAYS else 1


def too_fast(us: float, problem: Problem, mode: str, environment: dict, cards: int = 1) -> str:
    """Why nothing on this GPU, or on so many, can have computed the product in so many microseconds.

    Empty where something can.
    """
    gpu, sheet = environment["gpu"] or {}, datasheets.find(environment["device"])
    math = MATHS[problem.math]
    needs = [(0.0, "")]  # microseconds, and why
    if rate := datasheets.by_clock(problem.math, gpu):
        least = problem.flops / cards / rate / 1e6
        needs.append((least, f"its multiply-adds take {least:.4g} us at the highest clock, {rate:.0f} TFLOP/s"))
    if mode == COLD and sheet:
        # The sets of operands that take turns are twice the L2 cache at least, which so has half of one at most.
        read = (problem.m + problem.n) * problem.k * math.dtype.itemsize / 2
        rate = sheet.figures["dram"]
        least = read / rate / 1e6
        needs.append((least, f"half of A and B takes {least:.4g} us to be read, at {rate:g} TB/s"))
    least, because = max(needs)
    if us >= least:
        return ""
    return (
        f"{us:.4g} us were measured, and {because}: the timer did not see all of the work "
        "(on another stream?), or the work was not done in each call"
    )
