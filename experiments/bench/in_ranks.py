"""What one rank does for `scaling`: checks each way of a layout, then times all of them in the same rounds.

All ranks do the same in the same order. A time is the longest of any rank's, and every rank is told it, so that all
decide alike how many rounds there are.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

import gemm_ref
from experiments.bench import rounds, timers, timing
from experiments.bench.verify import describe
from experiments.records import scaling, stats
from experiments.records.contenders import Contender, contenders
from experiments.records.controls import CONTROL
from experiments.records.rows import COLLECTIVE, COPIES, FAIL, ONE_CARD, PRODUCT, WARM, ScalingRow
from gemm_ref import Problem
from gemm_ref.baselines.products import fp32_products
from gemm_ref.distributed import layouts
from gemm_ref.distributed.partition import slice_length

PLAN = rounds.Plan(least=7, least_slow=5, most=40, each_s=0.5, total_s=15.0)
WARM_UPS = 3
_SAMPLE = 64, 256  # rows and columns of a rank's part of C that are compared with the oracle

Say = Callable[[object], None]


@dataclass(frozen=True)
class Case:
    """One layout of one problem, for contenders by their names; `alone` is what one card computes beside it."""

    experiment: str
    device: str
    layout: str
    scaling: str
    problem: Problem
    alone: Problem
    chosen: tuple[str, ...]
    timed: bool = True

    def __str__(self) -> str:
        return f"{self.problem}: {self.layout}, {self.problem.math}"


class Turn(NamedTuple):
    """Who takes part in the rounds."""

    contender: Contender
    way: str


def measure(cases: Sequence[Case], say: Say) -> None:
    """Say each case's text, and then its rows."""
    host = dist.new_group(backend="gloo")  # for what ranks tell each other of the measurement itself
    pool = {str(each): each for each in contenders()}
    with fp32_products("ieee"):
        for case in cases:
            say(str(case))
            with torch.no_grad():
                for row in _Measured(case, [pool[name] for name in case.chosen], host, say).rows():
                    say(row)
            gc.collect()  # memory that peers map is freed with the last view of it
            if case.device == "cuda":
                torch.cuda.empty_cache()


class _Measured:
    def __init__(self, case: Case, chosen: Sequence[Contender], host: dist.ProcessGroup, say: Say) -> None:
        self._case, self._host, self._say = case, host, say
        self._ranks = dist.get_world_size()
        self._products = {contender: _product(contender) for contender in chosen}
        self._a, self._b, self._exact = _inputs(case.problem, case.device)
        first = next(iter(self._products.values()))
        self._layout = layouts.make_layout(case.layout, case.problem, first, case.device)
        self._layout.load(self._a, self._b)

    def rows(self) -> Iterator[ScalingRow]:
        """A row for each way of each contender, and for the parts that times are made of."""
        works: dict[Turn, timers.Work] = {}
        accuracy: dict[Turn, gemm_ref.Accuracy] = {}
        for contender, product in self._products.items():
            self._layout.product = product
            for way in self._layout.ways:
                turn = Turn(contender, way)
                works[turn] = functools.partial(self._call, turn)
                wrong, accuracy[turn] = self._check(works[turn])
                self._say(None)
                if wrong:
                    yield self._row(turn, status=FAIL, detail=wrong)
                    del works[turn]
                elif not self._case.timed:
                    yield self._row(turn, **asdict(accuracy[turn]))
        if self._case.timed:
            yield from self._timed(works, accuracy)

    def _timed(
        self, works: dict[Turn, timers.Work], accuracy: Mapping[Turn, gemm_ref.Accuracy]
    ) -> Iterator[ScalingRow]:
        able = list(dict.fromkeys(turn.contender for turn in works))
        if not able:
            return
        for turn in (Turn(contender, way) for contender in able for way in (PRODUCT, ONE_CARD)):
            works[turn] = functools.partial(self._call, turn)
        for way, name, move in (
            (COLLECTIVE, "nccl", self._layout.collective),
            (COPIES, "copy_engines", self._layout.copies),
        ):  # without a product, but as contenders of the same elements
            library = Contender(name, "default", name, "", able[0].math, ("cuda",), able[0].load)
            works[Turn(library, way)] = move
        library = next((each for each in able if timing.is_reference(each)), able[0])
        reference = Turn(library, layouts.IN_TURN)
        if timing.is_reference(library):  # against itself
            control = Turn(replace(library, stage=CONTROL, backend=CONTROL), layouts.IN_TURN)
            self._products[control.contender] = self._products[library]
            works[control] = functools.partial(self._call, control)
        on_cpu = functools.partial(_on_cpu, self._host)
        timer: timers.Timer = AgreedTimer(self._host) if self._case.device == "cuda" else on_cpu
        for work in works.values():
            for _ in range(WARM_UPS):
                timer(work)
            self._say(None)
        times = rounds.interleave(works, timer, PLAN, reference, after_each=lambda _: self._say(None))
        for turn, times_us in times.items():
            summary = stats.summarize(times_us)
            values: dict[str, Any] = asdict(summary)
            if turn in accuracy:
                values |= asdict(accuracy[turn])
                values |= self._efficiency(times_us, times[Turn(turn.contender, ONE_CARD)])
            if turn.way not in (COLLECTIVE, COPIES):
                values |= {"mode": WARM, "tflops": stats.tflops(self._problem(turn).flops, summary.median_us)}
            if turn.way in layouts.WAYS and timing.is_reference(library):
                values |= timing.beside(times_us, times[reference])
            yield self._row(turn, **values)

    def _call(self, turn: Turn) -> Any:
        """One call of what takes part."""
        layout = self._layout
        layout.product = self._products[turn.contender]
        if turn.way == PRODUCT:
            return layout.multiply()
        if turn.way == ONE_CARD:
            a, b, c = self._alone
            return layout.product.gemm(a, b, out=c)
        return layout.ways[turn.way]()

    @functools.cached_property
    def _alone(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The operands of what one card computes, stored as all are, and its C."""
        alone = self._case.alone
        c = torch.empty((alone.m, alone.n), dtype=self._layout.out_dtype, device=self._case.device)
        return self._a[: alone.m, : alone.k].contiguous(), self._b[: alone.k, : alone.n].contiguous(), c

    def _check(self, work: timers.Work) -> tuple[str, gemm_ref.Accuracy]:
        """What is wrong with a way on any rank, if anything, and the accuracy of this rank's part of C."""
        found, wrong = gemm_ref.Accuracy(0.0, 0.0), ""
        try:
            self._layout.c.fill_(float("nan"))
            found = self._compared(work())
        except Exception as error:
            wrong = describe(error)
        told: list[Any] = [None] * self._ranks
        dist.all_gather_object(told, (wrong, found), group=self._host)
        wrongs = [f"rank {rank}: {wrong}" for rank, (wrong, _) in enumerate(told) if wrong]
        most = max((each for _, each in told), key=lambda each: each.bound_share)
        return "; ".join(wrongs[:2]), most

    def _compared(self, c: torch.Tensor) -> gemm_ref.Accuracy:
        """Raises WrongResult. A sample of the part is compared with the oracle; none of it may be NaN."""
        rows, columns = self._layout.rows, self._layout.columns
        if tuple(c.shape) != (slice_length(rows), slice_length(columns)):
            raise gemm_ref.WrongResult(f"this rank's part of C is {tuple(c.shape)}")
        if not bool(c.isfinite().all()):
            raise gemm_ref.WrongResult("elements of C are not finite, or were never written")
        picked = [_spread(each, most) for each, most in zip((rows, columns), _SAMPLE, strict=True)]
        of_c = [
            torch.tensor(at, device=c.device) - each.start for at, each in zip(picked, (rows, columns), strict=True)
        ]
        a, b = self._a[picked[0]], self._b[:, picked[1]]
        math, parts = self._case.problem.math, self._layout.depths
        return gemm_ref.check(c[of_c[0]][:, of_c[1]], a, b, math=math, exact=self._exact, parts=parts)

    def _problem(self, turn: Turn) -> Problem:
        """What a turn computes, on one card or on all."""
        if turn.way == ONE_CARD:
            return self._case.alone
        if turn.way == PRODUCT:
            c, whole = self._layout.c, self._case.problem
            if self._case.layout == layouts.REDUCE_SCATTER:
                return whole.resized(k=-(-whole.k // self._ranks))
            return whole.resized(m=c.shape[0], n=c.shape[1])
        return self._case.problem

    def _efficiency(self, times_us: np.ndarray, alone_us: np.ndarray) -> dict[str, float]:
        """The speed of a card as a share of one that is alone: the median of the rounds, and its interval."""
        work = self._case.problem.flops / self._case.alone.flops / self._ranks
        return stats.speed_ratio(times_us, work * alone_us).columns("efficiency")

    def _row(self, turn: Turn, **values: Any) -> ScalingRow:
        high, wide = layouts.grid_shape(self._ranks) if self._case.layout == layouts.GRID else (0, 0)
        about = {
            "layout": self._case.layout,
            "way": turn.way,
            "gpus": self._ranks,
            "grid": f"{high}x{wide}" if high else "",
            "scaling": self._case.scaling,
            "link_bytes": 0 if turn.way in (PRODUCT, ONE_CARD) else self._layout.link_bytes,
        }
        return ScalingRow.about(self._case.experiment, turn.contender, self._problem(turn), **about, **values)


class AgreedTimer(timers.CudaTimer):
    """Microseconds of one call on all ranks: between two events on each GPU, the longest of them.

    The GPUs meet before the first event. Until then each spins for as long as its host needs to launch.
    """

    _LEAST_COVER_US, _MOST_COVER_US = 500.0, 20_000.0

    def __init__(self, host: dist.ProcessGroup) -> None:
        super().__init__()
        self._host, self._met = host, torch.zeros(1, device="cuda")

    def _elapsed(self, work: timers.Work, cover_us: float) -> tuple[float, float]:
        """The most of any rank, of each."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        _most(self._host, 0.0)
        start = time.perf_counter()
        torch.cuda._sleep(int(cover_us * self._cycles_per_us))
        dist.all_reduce(self._met)
        begin.record()
        work()
        end.record()
        host_us = (time.perf_counter() - start) * 1e6
        end.synchronize()
        elapsed_us, host_us = _most(self._host, begin.elapsed_time(end) * 1e3, host_us)
        return elapsed_us, host_us


def _on_cpu(host: dist.ProcessGroup, work: timers.Work) -> float:
    """As `AgreedTimer`, by the wall clock."""
    _most(host, 0.0)  # all are here
    start = time.perf_counter()
    work()
    return _most(host, (time.perf_counter() - start) * 1e6)[0]


def _most(host: dist.ProcessGroup, *values: float) -> list[float]:
    """Of each value the largest of any rank."""
    found = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX, group=host)
    return found.tolist()


def _product(contender: Contender) -> layouts.Product:
    gemm, math, is_cublas = contender.load(), contender.math, timing.is_reference(contender)
    if contender.dialect and math in gemm_ref.EMULATED:
        return layouts.Product(gemm, lambda b: gemm_ref.split_operand(b, "b", math=math))
    gemm = functools.partial(_cublas, gemm) if is_cublas else gemm
    return layouts.Product(gemm, is_cublas=is_cublas, adds_c=scaling.adds_c(contender.stage, contender.dialect))


def _cublas(
    gemm: Callable[..., object], a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, c: torch.Tensor | None = None
) -> object:
    """The baseline, and what torch has of cuBLAS for a product that is added."""
    return gemm(a, b, out=out) if c is None else torch.addmm(c, a, b, out=out)


def _inputs(problem: Problem, device: str) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """The whole A and B, the same on every rank, and whether products of them are exact."""
    if device == "cpu":
        kind = "one_hot" if gemm_ref.MATHS[problem.math].is_exact("one_hot") else "normal"
        return *gemm_ref.make_inputs(problem, kind), kind == "one_hot"
    gpu = torch.device(device, torch.cuda.current_device())
    dice = torch.Generator(gpu).manual_seed(0)
    options: dict[str, Any] = {"generator": dice, "device": gpu, "dtype": gemm_ref.MATHS[problem.math].dtype}
    return torch.randn(problem.a_shape, **options), torch.randn(problem.b_shape, **options), False


def _spread(piece: slice, most: int) -> list[int]:
    """So many places of a piece, its first and its last among them."""
    return sorted(set(np.linspace(piece.start, piece.stop - 1, min(most, slice_length(piece))).astype(int).tolist()))
