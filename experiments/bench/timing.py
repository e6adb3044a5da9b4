"""One problem, timed: every contender is checked, then the right ones take turns, and each becomes a row.

What all timed experiments share. Nothing wrong is ever timed. On a GPU an A-against-A control takes part beside the
reference: cuBLAS a second time; where it is not SAME, tables and plots mark the problem (`records.controls`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

import gemm_ref
from experiments.bench import other_timers, rounds, timers
from experiments.bench.kernel_names import kernel_names
from experiments.bench.telemetry import Conditions, Telemetry, summarize
from experiments.bench.verify import Case, DeviceLost, Verdict, load, refusal, verify
from experiments.progress import Bars
from experiments.records import stats
from experiments.records.contenders import Contender, Gemm, contenders
from experiments.records.controls import CONTROL
from experiments.records.frames import LAYOUT
from experiments.records.request import Request
from experiments.records.rows import COLD, SKIPPED, TimedRow

CPU_PLAN = rounds.Plan(least=3, least_slow=3, most=10, precision=0.02, each_s=0.7, total_s=5.0)
CPU_LIMIT_S = 5.0  # for one call
LOOP_FLOPS_PER_S = 4e8  # seen at 1024, where a column of B no longer fits the caches; for predicting a run only
BLAS_FLOPS_PER_S_A_THREAD = 1e10
# One-hot inputs prove the arithmetic of every element; past this many products the normal inputs alone are checked,
# since the same kernel has passed one-hot inputs at smaller sizes and some take 20 s a call.
ONE_HOT_MOST_PRODUCTS = 2**40

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # A, B and C
Able = dict[Contender, tuple[Gemm, gemm_ref.Accuracy]]  # what passed: its callable and how accurate it was


@dataclass(frozen=True)
class Setting:
    """How an experiment times."""

    experiment: str
    device: str  # "cpu" or "cuda"
    mode: str = COLD  # on a GPU
    plan: rounds.Plan = rounds.Plan()  # on a GPU
    row: type[TimedRow] = TimedRow  # what its rows are
    limit_s: float = float("inf")  # a rung is left out where, by its speed so far, one call would take longer
    advice: str = ""  # what is said to who misses it


def unsuited(contender: Contender, request: Request) -> str:
    """Why the contender is not timed on this device, at these sizes or in its math mode; empty if it is."""
    for problem in request.problems:
        if problem.flops == 0:
            return f"there is nothing to time at size {problem}"
    if contender.math != (request.math or "fp32"):
        return f"{contender.math} is timed only if --math asks for it"
    if request.device == "cuda":
        return ""
    if not contender.is_baseline:
        return "the rungs are timed only on a GPU"
    return "" if request.device in contender.devices else f"{contender.backend} needs a GPU"


def unsuited_in_its_mode(contender: Contender, request: Request) -> str:
    """As `unsuited`, in every math mode: each that no --math leaves out is timed by itself (`by_math`)."""
    return unsuited(contender, replace(request, math=contender.math))


def by_math(request: Request, chosen: Sequence[Contender]) -> Iterator[tuple[Request, list[Contender]]]:
    """The contenders of one math mode after the other, with the request for that mode alone."""
    for math in gemm_ref.MATHS:
        if own := [contender for contender in chosen if contender.math == math]:
            yield replace(request, math=math), own


def problems(request: Request, sizes: Iterable[tuple[int, int, int]]) -> list[gemm_ref.Problem]:
    """The problems that were asked for, else those of `sizes`, in the math that is timed, with B as LAYOUT has it."""
    math = request.math or "fp32"
    found = request.problems or [gemm_ref.Problem(*each) for each in sizes]
    return [replace(problem, math=math, b_layout=LAYOUT[math]) for problem in found]


def too_slow_on_cpu(contender: Contender, problem: gemm_ref.Problem) -> Verdict | None:
    """SKIPPED, with how long it would take, where a CPU baseline would take more than some seconds."""
    rate = LOOP_FLOPS_PER_S if contender.backend == "cpu" else BLAS_FLOPS_PER_S_A_THREAD * torch.get_num_threads()
    seconds = problem.flops / rate
    if seconds <= CPU_LIMIT_S:
        return None
    return Verdict(SKIPPED, f"one call would take about {seconds:.0f} s, and the limit is {CPU_LIMIT_S:.0f} s")


def is_reference(contender: Contender) -> bool:
    """Whether it is what others' speed is given as a share of; in emulated modes that is cuBLAS' SGEMM."""
    return contender.backend == "cublas"


def field(chosen: Sequence[Contender], device: str) -> list[Contender]:
    """Who is timed when `chosen` are asked for: on a GPU, cuBLAS of the same math and its control beside them."""
    if device != "cuda":
        return list(chosen)
    everyone = with_references(chosen)
    controls = [replace(each, stage=CONTROL, backend=CONTROL) for each in everyone if is_reference(each)]
    return [*everyone, *controls]


def with_references(chosen: Sequence[Contender]) -> list[Contender]:
    """`chosen`, and cuBLAS of the same math where it is not among them."""
    maths = {contender.math for contender in chosen}
    references = [each for each in contenders() if is_reference(each) and each.math in maths]
    return [*chosen, *(each for each in references if each not in chosen)]


def check(
    title: str,
    chosen: Sequence[Contender],
    judge: Callable[[Contender, Gemm], Verdict],
    row: Callable[[Contender, Verdict], TimedRow],
    able: Able,
    bars: Bars,
) -> Iterator[TimedRow]:
    """Rows of what is wrong, broken or left out; the others are put into `able`.

    Raises DeviceLost after the row of a contender that left the GPU unusable.
    """
    bars.begin(title, len(chosen))
    for contender in chosen:
        bars.doing(str(contender))
        fn, verdict = load(contender)
        verdict = verdict or judge(contender, fn)
        if verdict.accuracy:
            able[contender] = (fn, verdict.accuracy)
        else:
            yield row(contender, verdict)
        if verdict.lost:
            raise DeviceLost(verdict.lost)
        bars.done()


class Bench:
    """Times problem after problem in one setting; a context manager, as it reads the GPU's clocks meanwhile."""

    def __init__(self, setting: Setting, chosen: Sequence[Contender], bars: Bars) -> None:
        self._setting, self._field, self._bars = setting, field(chosen, setting.device), bars
        self._telemetry = Telemetry()
        self._flops_per_us: dict[Contender, float] = {}

    def __enter__(self) -> Bench:
        if self._setting.device == "cuda":
            self._telemetry.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._telemetry.__exit__(*error)

    def time(self, problem: gemm_ref.Problem) -> Iterator[TimedRow]:
        """A row for each contender at one problem.

        Raises DeviceLost after the row of a contender that left the GPU unusable, and rounds.Interrupted for a
        KeyboardInterrupt, after the rows that the finished rounds give.
        """
        kinds = ("one_hot", "normal") if problem.flops // 2 <= ONE_HOT_MOST_PRODUCTS else ("normal",)
        cases = [Case.make(problem, kind) for kind in kinds]
        able: Able = {}
        yield from self._check(cases, able)
        for home, time_there in (("cuda", self._time_on_gpu), ("cpu", self._time_on_cpu)):
            here = {contender: entry for contender, entry in able.items() if home_of(contender) == home}
            if here:
                yield from time_there(cases[-1], here)
        if self._setting.device == "cuda":
            torch.cuda.empty_cache()  # the next problem's sets are of other sizes

    def _check(self, cases: Sequence[Case], able: Able) -> Iterator[TimedRow]:
        problem = cases[0].problem
        homes = {home_of(contender) for contender in self._field}
        placed = {home: [(case.a.to(home), case.b.to(home), case) for case in cases] for home in homes}

        def judge(contender: Contender, fn: Gemm) -> Verdict:
            return self._leave_out(contender, problem) or _verify(contender, fn, placed[home_of(contender)])

        def row(contender: Contender, verdict: Verdict) -> TimedRow:
            return self._row(contender, problem, **verdict.columns)

        yield from check(f"{problem}: checking", self._field, judge, row, able, self._bars)

    def _leave_out(self, contender: Contender, problem: gemm_ref.Problem) -> Verdict | None:
        """SKIPPED, with the reason, where the contender cannot run here or would take too long."""
        if home_of(contender) == "cpu":
            return too_slow_on_cpu(contender, problem)
        seconds = problem.flops / self._flops_per_us.get(contender, float("inf")) / 1e6
        if seconds <= self._setting.limit_s:
            return refusal(contender, self._setting.device)
        why = f"one call would take about {seconds:.2g} s, and the limit is {self._setting.limit_s:g} s"
        return Verdict(SKIPPED, why + self._setting.advice)

    def _time_on_gpu(self, case: Case, able: Able) -> Iterator[TimedRow]:
        mode, problem = self._setting.mode, case.problem
        timer = other_timers.TIMERS.get(mode) or timers.make_timer(mode)
        rotation = timers.Rotation(case.a, case.b, timers.cache_bytes(mode), gemm_ref.MATHS[problem.math].out_dtype)
        works = {contender: bind(fn, rotation) for contender, (fn, _) in able.items()}
        reference = next(filter(is_reference, works), None)
        rounds.warm_up(works[reference or next(iter(works))], timer, self._telemetry.settled)
        names = {contender: kernel_names(works[contender]) for contender in works if contender.is_baseline}
        with self._telemetry.window() as samples:
            times, interrupted = self._rounds(works, timer, self._setting.plan, reference, f"{problem}: timing, {mode}")
        conditions = summarize(samples)
        for contender, times_us in times.items():
            row = self._timed_row(problem, contender, able[contender][1], times_us, times.get(reference), conditions)
            row = replace(row, mode=mode, kernel=names.get(contender, ""))
            yield row if interrupted else self._still_right(row, contender, able, rotation.take(), case)
        if interrupted:
            raise interrupted

    def _time_on_cpu(self, case: Case, able: Able) -> Iterator[TimedRow]:
        a, b, c = case.a, case.b, torch.empty((case.problem.m, case.problem.n), dtype=case.a.dtype)
        works = {contender: functools.partial(fn, a, b, out=c) for contender, (fn, _) in able.items()}
        text = f"{case.problem}: timing on the CPU"
        times, interrupted = self._rounds(works, timers.cpu_timer, CPU_PLAN, None, text)
        for contender, times_us in times.items():
            row = self._timed_row(case.problem, contender, able[contender][1], times_us, None, Conditions())
            yield row if interrupted else self._still_right(row, contender, able, (a, b, c), case)
        if interrupted:
            raise interrupted

    def _still_right(self, row: TimedRow, contender: Contender, able: Able, operands: Operands, case: Case) -> TimedRow:
        """The row, unless a call after the timed ones, with -A in the place of A, is wrong: then that, without a time.

        So whoever hands out what an earlier call has computed, by address, is found. Raises DeviceLost.
        """
        a, b, c = operands
        turn_signs(a)
        verdict = verify(contender, _negated(able[contender][0], c), a, b, case)
        turn_signs(a)
        if verdict.lost:
            raise DeviceLost(verdict.lost)
        if verdict.accuracy:
            return row
        detail = f"right until it was timed, then, with -A in the place of A: {verdict.detail}"
        return replace(self._row(contender, case.problem, status=verdict.status, detail=detail), mode=row.mode)

    def _rounds(self, works, timer: timers.Timer, plan: rounds.Plan, reference, text: str):
        """The times of `rounds.interleave`, and the interruption that cut them short, if one did."""
        self._bars.begin(text, plan.most * len(works))

        def after_each(name: Contender) -> None:
            self._bars.doing(str(name))
            self._bars.done()

        try:
            return rounds.interleave(works, timer, plan, reference, after_each=after_each), None
        except rounds.Interrupted as early:
            return early.times, early
        finally:
            self._bars.finish()

    def _timed_row(
        self,
        problem: gemm_ref.Problem,
        contender: Contender,
        accuracy: gemm_ref.Accuracy,
        times_us: np.ndarray,
        reference_us: np.ndarray | None,
        conditions: Conditions,
    ) -> TimedRow:
        summary = stats.summarize(times_us)
        self._flops_per_us[contender] = problem.flops / summary.median_us
        values = asdict(summary) | asdict(conditions)
        if reference_us is not None:
            values |= beside(times_us, reference_us)
        tflops = stats.tflops(problem.flops, summary.median_us)
        return self._row(contender, problem, tflops=tflops, **asdict(accuracy), **values)

    def _row(self, contender: Contender, problem: gemm_ref.Problem, **values: Any) -> TimedRow:
        if "b_layout" in self._setting.row.columns():
            values["b_layout"] = problem.b_layout
        return self._setting.row.about(self._setting.experiment, contender, problem, **values)


def beside(times_us: np.ndarray, reference_us: np.ndarray) -> dict[str, Any]:
    """The speed as a share of the reference's in the rounds that timed both, and the verdict, by column."""
    ratio = stats.speed_ratio(times_us, reference_us)
    shorter_us = min(stats.summarize(each).median_us for each in (times_us, reference_us))
    return ratio.columns("vs_cublas") | {"verdict": stats.verdict(ratio, stats.margin_for(shorter_us))}


def bind(fn: Gemm, rotation: timers.Rotation) -> timers.Work:
    """One call on the next set of operands."""

    def work() -> None:
        a, b, c = rotation.take()
        fn(a, b, out=c)

    return work


def _negated(fn: Gemm, c: torch.Tensor) -> Gemm:
    """`fn` called with this C, which holds NaN until then; its result with other signs."""

    def call(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.neg(fn(a, b, out=c.fill_(float("nan"))), out=out)

    return call


def turn_signs(x: torch.Tensor) -> None:
    """Each element becomes its negative, in place, fp8 too."""
    bits = x.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[x.itemsize])
    bits.bitwise_xor_(torch.iinfo(bits.dtype).min)


def home_of(contender: Contender) -> str:
    """Where it is timed: rungs on the GPU, baselines at home."""
    return contender.devices[0] if contender.is_baseline else "cuda"


def _verify(contender: Contender, fn: Gemm, cases: Sequence[tuple[torch.Tensor, torch.Tensor, Case]]) -> Verdict:
    """The first verdict that is not a pass, else the last. cases: operands where the contender runs, and their case."""
    for a, b, case in cases:
        verdict = verify(contender, fn, a, b, case)
        if not verdict.accuracy:
            return verdict
    return verdict
