"""What each rank does for `scaling`: checks every way of a layout, then times all of them in the same rounds.

All ranks do the same in the same order. A time is the longest of any rank's, and every rank is told it, so that all
decide alike how many rounds there are.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import gemm_ref
from experiments.bench import timers
from experiments.bench.eligibility import control_of
from experiments.bench.measure import Entry, MeasuringLoop, TimingProtocol, negate_in_place, share_of_cublas, time_each
from experiments.bench.rounds import RoundPlan
from experiments.bench.telemetry import Conditions
from experiments.bench.verify import CheckResult, describe
from experiments.progress import Bars
from experiments.records import scaling, stats
from experiments.records.contenders import Contender, contenders
from experiments.records.rows import COLLECTIVE, COPIES, FAIL, ONE_CARD, PRODUCT, WARM, Row, ScalingRow
from gemm_ref import Problem
from gemm_ref.baselines.products import fp32_products
from gemm_ref.distributed import layouts
from gemm_ref.distributed.partition import slice_length
from gemm_ref.launch import cdiv

PLAN = RoundPlan(min_rounds=7, min_slow_rounds=5, max_rounds=40, per_contender_s=0.5, total_s=15.0)
WARM_UPS = 3
_SAMPLE = 64, 256  # rows and columns of a rank's part of C that are compared with the oracle

Say = Callable[[object], None]


@dataclass(frozen=True)
class RankTask:
    """One layout of one problem, for contenders by their names; `alone` is what one card computes by itself."""

    experiment: str
    device: str
    layout: str
    scaling: str
    problem: Problem
    alone: Problem
    contenders: tuple[str, ...]
    timed: bool = True

    def __str__(self) -> str:
        return f"{self.problem}: {self.layout}, {self.problem.math}"


def measure(tasks: Sequence[RankTask], say: Say) -> None:
    """Says each task's text, and then its rows."""
    host = dist.new_group(backend="gloo")  # for what ranks tell each other of the measurement itself
    pool = {str(each): each for each in contenders()}
    with fp32_products("ieee"):
        for task in tasks:
            say(str(task))
            with torch.no_grad():
                for row in _Ranks(task, [pool[name] for name in task.contenders], host, say).rows():
                    say(row)
            gc.collect()  # memory that peers map is freed with the last view of it
            if task.device == "cuda":
                torch.cuda.empty_cache()


class _Way(Entry):
    """One way of computing the layout's product, or a part of one, with a contender as the local product."""

    def __init__(self, ranks: _Ranks, contender: Contender, way: str) -> None:
        self.contender, self.way, self._ranks = contender, way, ranks
        self.work = functools.partial(ranks.call, self)
        self.accuracy: gemm_ref.Accuracy | None = None

    def __str__(self) -> str:
        return f"{self.contender}, {self.way}"

    def check(self) -> CheckResult:
        result = self._ranks.check(self)
        self.accuracy = result.accuracy
        return result

    def check_negated(self) -> CheckResult:
        return self._ranks.check_negated(self) if self.way in layouts.WAYS else CheckResult()

    def row(self, **values: Any) -> ScalingRow:
        return self._ranks.row(self, **values)

    def timed_row(self, times_us: Mapping[Any, np.ndarray], conditions: Conditions) -> ScalingRow:
        return self.row(**self._ranks.timed_columns(self, times_us))

    def failed(self, error: Exception) -> CheckResult:
        """Ends this rank, and so all of them: the others wait for it in the same round."""
        raise error


class _Heartbeat(Bars):
    """In the place of progress bars: says that the rank is alive."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def begin(self, step: str, total: int) -> None: ...

    def doing(self, what: str) -> None:
        self._say(None)

    def done(self, parts: int = 1) -> None: ...

    def finish(self) -> None: ...


class _Ranks:
    """One task on this rank."""

    def __init__(self, task: RankTask, chosen: Sequence[Contender], host: dist.ProcessGroup, say: Say) -> None:
        self._task, self._host, self._say = task, host, say
        self._count = dist.get_world_size()
        self._products = {contender: _product(contender) for contender in chosen}
        self._a, self._b, self._is_exact = _inputs(task.problem, task.device)
        self._layout = layouts.make_layout(task.layout, task.problem, next(iter(self._products.values())), task.device)
        self._layout.load(self._a, self._b)

    def rows(self) -> Iterator[Row]:
        """Yields a row for each way of each contender, and for the parts that times are made of."""
        wall_timer = functools.partial(_agreed_wall_us, self._host)
        make_timer = (lambda: AgreedTimer(self._host)) if self._task.device == "cuda" else (lambda: wall_timer)
        loop = MeasuringLoop(TimingProtocol(make_timer, PLAN, time_each(WARM_UPS)), _Heartbeat(self._say))
        ways = []
        for contender, product in self._products.items():
            self._layout.product = product  # it decides what ways there are
            ways += [_Way(self, contender, way) for way in self._layout.ways]
        passed = yield from loop.check(ways, "checking")
        if not self._task.timed:
            yield from (way.row(**asdict(way.accuracy)) for way in passed if way.accuracy)
        elif passed:
            library = next((way.contender for way in passed if way.contender.is_reference), passed[0].contender)
            entries = [*passed, *self._parts(passed, library)]
            self._ways = {(entry.contender, entry.way): entry for entry in entries}
            self._reference = self._ways.get((library, layouts.IN_TURN))
            yield from loop.time(entries, "timing", self._reference)

    def _parts(self, passed: Sequence[_Way], library: Contender) -> Iterator[_Way]:
        """What is timed beside the ways: each local product, both kinds of copies, and the control."""
        able = list(dict.fromkeys(way.contender for way in passed))
        yield from (_Way(self, contender, part) for contender in able for part in (PRODUCT, ONE_CARD))
        for way, name in ((COLLECTIVE, "nccl"), (COPIES, "copy_engines")):  # as contenders of the same elements
            yield _Way(self, Contender(name, "default", name, "", able[0].math, ("cuda",), able[0].load), way)
        if library.is_reference:
            self._products[control_of(library)] = self._products[library]
            yield _Way(self, control_of(library), layouts.IN_TURN)

    def call(self, entry: _Way) -> Any:
        """One call of an entry."""
        layout = self._layout
        if entry.way in (COLLECTIVE, COPIES):
            return layout.collective() if entry.way == COLLECTIVE else layout.copies()
        layout.product = self._products[entry.contender]
        if entry.way == PRODUCT:
            return layout.multiply()
        if entry.way == ONE_CARD:
            a, b, c = self._alone
            return layout.product.gemm(a, b, out=c)
        return layout.ways[entry.way]()

    @functools.cached_property
    def _alone(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The operands of what one card computes, stored as all are, and its C."""
        alone = self._task.alone
        c = torch.empty((alone.m, alone.n), dtype=self._layout.out_dtype, device=self._task.device)
        return self._a[: alone.m, : alone.k].contiguous(), self._b[: alone.k, : alone.n].contiguous(), c

    def check(self, entry: _Way) -> CheckResult:
        """What is wrong with a way on any rank, or the largest error of any rank's part of C."""
        accuracy, wrong = gemm_ref.Accuracy(0.0, 0.0), ""
        try:
            self._layout.c.fill_(float("nan"))
            accuracy = self._compare(entry.work())
        except Exception as error:
            wrong = describe(error)
        of_ranks: list[Any] = [None] * self._count
        dist.all_gather_object(of_ranks, (wrong, accuracy), group=self._host)
        if wrongs := [f"rank {rank}: {wrong}" for rank, (wrong, _) in enumerate(of_ranks) if wrong]:
            return CheckResult(FAIL, "; ".join(wrongs[:2]))
        return CheckResult(accuracy=max((each for _, each in of_ranks), key=lambda each: each.bound_share))

    def check_negated(self, entry: _Way) -> CheckResult:
        """`check` with -A on all ranks."""
        negate_in_place(self._a)
        self._layout.load(self._a, self._b)
        result = self.check(entry)
        negate_in_place(self._a)
        self._layout.load(self._a, self._b)
        return result

    def _compare(self, c: torch.Tensor) -> gemm_ref.Accuracy:
        """Compares a sample of this rank's part of C with the oracle; none of it may be NaN. Raises WrongResult."""
        rows, columns = self._layout.rows, self._layout.columns
        if tuple(c.shape) != (slice_length(rows), slice_length(columns)):
            raise gemm_ref.WrongResult(f"this rank's part of C is {tuple(c.shape)}")
        if not bool(c.isfinite().all()):
            raise gemm_ref.WrongResult("elements of C are not finite, or were never written")
        places = [_spread(each, most) for each, most in zip((rows, columns), _SAMPLE, strict=True)]
        at = [torch.tensor(place, device=c.device) for place in places]
        sample = c[at[0] - rows.start][:, at[1] - columns.start]
        a, b = self._a[places[0]], self._b[:, places[1]]
        math, parts = self._task.problem.math, self._layout.depths
        return gemm_ref.check(sample, a, b, math=math, exact=self._is_exact, parts=parts)

    def timed_columns(self, entry: _Way, times_us: Mapping[Any, np.ndarray]) -> dict[str, Any]:
        """The columns of an entry's row from the times of all, by entry."""
        summary = stats.summarize(times_us[entry])
        columns: dict[str, Any] = asdict(summary)
        if entry.accuracy:
            alone_us = times_us[self._ways[entry.contender, ONE_CARD]]
            columns |= asdict(entry.accuracy) | self._efficiency(times_us[entry], alone_us)
        if entry.way not in (COLLECTIVE, COPIES):
            columns |= {"mode": WARM, "tflops": stats.tflops(self._problem(entry).flops, summary.median_us)}
        if self._reference and entry.way in layouts.WAYS and self._reference.contender.is_reference:
            columns |= share_of_cublas(times_us[entry], times_us[self._reference])
        return columns

    def _problem(self, entry: _Way) -> Problem:
        """What an entry computes, on one card or on all."""
        if entry.way == ONE_CARD:
            return self._task.alone
        if entry.way == PRODUCT:
            c, problem = self._layout.c, self._task.problem
            if self._task.layout == layouts.REDUCE_SCATTER:
                return problem.resized(k=cdiv(problem.k, self._count))
            return problem.resized(m=c.shape[0], n=c.shape[1])
        return self._task.problem

    def _efficiency(self, times_us: np.ndarray, alone_us: np.ndarray) -> dict[str, float]:
        """The speed of a card as a share of one that computes alone: the median of the rounds, and its interval."""
        work = self._task.problem.flops / self._task.alone.flops / self._count
        return stats.speed_ratio(times_us, work * alone_us).columns("efficiency")

    def row(self, entry: _Way, **values: Any) -> ScalingRow:
        """A row about an entry."""
        high, wide = layouts.grid_shape(self._count) if self._task.layout == layouts.GRID else (0, 0)
        about = {
            "layout": self._task.layout,
            "way": entry.way,
            "gpus": self._count,
            "grid": f"{high}x{wide}" if high else "",
            "scaling": self._task.scaling,
            "link_bytes": 0 if entry.way in (PRODUCT, ONE_CARD) else self._layout.link_bytes,
        }
        return ScalingRow.about(self._task.experiment, entry.contender, self._problem(entry), **about, **values)


class AgreedTimer(timers.CudaTimer):
    """Microseconds of one call on all ranks: between two events on each GPU, the longest of them.

    The GPUs synchronise before the first event. Until then each spins for as long as its host needs to launch.
    """

    _MIN_COVER_US, _MAX_COVER_US = 500.0, 20_000.0

    def __init__(self, host: dist.ProcessGroup) -> None:
        super().__init__()
        self._host, self._barrier = host, torch.zeros(1, device="cuda")

    def _elapsed(self, work: timers.Work, cover_us: float) -> tuple[float, float]:
        """Both times of `CudaTimer`, each the largest of any rank."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        _largest(self._host, 0.0)
        start = time.perf_counter()
        torch.cuda._sleep(int(cover_us * self._cycles_per_us))
        dist.all_reduce(self._barrier)
        begin.record()
        work()
        end.record()
        host_us = (time.perf_counter() - start) * 1e6
        end.synchronize()
        elapsed_us, host_us = _largest(self._host, begin.elapsed_time(end) * 1e3, host_us)
        return elapsed_us, host_us


def _agreed_wall_us(host: dist.ProcessGroup, work: timers.Work) -> float:
    """Microseconds of one call by the wall clock: the largest of any rank."""
    _largest(host, 0.0)  # all are here
    start = time.perf_counter()
    work()
    return _largest(host, (time.perf_counter() - start) * 1e6)[0]


def _largest(host: dist.ProcessGroup, *values: float) -> list[float]:
    """Each value's largest on any rank."""
    largest = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=host)
    return largest.tolist()


def _product(contender: Contender) -> layouts.Product:
    gemm, math, is_cublas = contender.load(), contender.math, contender.is_reference
    if contender.dialect and math in gemm_ref.EMULATED:
        return layouts.Product(gemm, lambda b: gemm_ref.split_operand(b, "b", math=math))
    gemm = functools.partial(_cublas, gemm) if is_cublas else gemm
    return layouts.Product(gemm, is_cublas=is_cublas, adds_c=scaling.adds_c(contender.stage, contender.dialect))


def _cublas(
    gemm: Callable[..., object], a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, c: torch.Tensor | None = None
) -> object:
    """The baseline; with `c`, torch's cuBLAS product that is added to it."""
    return gemm(a, b, out=out) if c is None else torch.addmm(c, a, b, out=out)


def _inputs(problem: Problem, device: str) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Returns the whole A and B, the same on every rank, and whether their products are exact."""
    if device == "cpu":
        kind = "one_hot" if gemm_ref.MATHS[problem.math].is_exact("one_hot") else "normal"
        return *gemm_ref.make_inputs(problem, kind), kind == "one_hot"
    gpu = torch.device(device, torch.cuda.current_device())
    dice = torch.Generator(gpu).manual_seed(0)
    options: dict[str, Any] = {"generator": dice, "device": gpu, "dtype": gemm_ref.MATHS[problem.math].dtype}
    return torch.randn(problem.a_shape, **options), torch.randn(problem.b_shape, **options), False


def _spread(piece: slice, most: int) -> list[int]:
    """At most `most` places of a piece, evenly spread, its first and its last among them."""
    return sorted(set(np.linspace(piece.start, piece.stop - 1, min(most, slice_length(piece))).astype(int).tolist()))
