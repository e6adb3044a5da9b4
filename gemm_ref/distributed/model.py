"""How long a way of a layout takes on so many GPUs, from the links' latency and bandwidth and the product's speed.

In turn is a collective and a product. Overlapped is the schedule of `layouts`, carried out on paper: chunks arrive one
after another, and each is multiplied once it is here and what came before is done. torch's fused operators join no
chunks but multiply on two streams, so that the next chunk fills what one leaves idle; all-gather first copies a rank's
own chunk to where its peers read it, and reduce-scatter adds all parts in a kernel at the end
(`torch.distributed._symmetric_memory`). What all copies take before the first byte is mostly a barrier, which the first
product waits for too. Past one host the links are a network's: a collective sends each byte to a host once, over all of
the host's adapters, while a rank that copies by itself has one adapter for all that it copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.compute import MATHS
from gemm_ref.distributed.chunks import gathered, length, part, pieces, ring
from gemm_ref.distributed.layouts import (
    ALL_GATHER,
    FUSED,
    GRID,
    IN_TURN,
    LAYOUTS,
    OVERLAPPED,
    REDUCE_SCATTER,
    TILE,
    grown,
    sides,
)
from gemm_ref.launch import cdiv
from gemm_ref.problem import Problem

SUM_GB_PER_S = 1450.0  # of torch's kernel that adds parts: 201 MB read and written in 139 us (docs/scaling.md)
START_US = 5.0  # of a kernel that does nothing, on an H100 and on an H200 (`start_ns` of `gemm_ref.choice`)


@dataclass(frozen=True)
class Link:
    """What a rank receives takes so long before its first message, for each message, and for its bytes."""

    start_us: float
    latency_us: float
    gb_per_s: float

    def begun_us(self, messages: int, received: float) -> float:
        """Microseconds from the start on, for so many messages, one after another, of so many bytes together."""
        return messages * self.latency_us + _moved_us(received, self.gb_per_s)

    @classmethod
    def fit(cls, measured: Iterable[tuple[int, int, float, float]]) -> dict[int, Link]:
        """From (ranks, messages, bytes, microseconds), by count of ranks; no part is negative.

        By least squares of the relative errors. Each count has a bandwidth of its own: among 4 GPUs NCCL's is a quarter
        more than among 2. Start and latency are the same for all; of one count alone, all is start.

        Raises ValueError where nothing was measured.
        """
        from scipy.optimize import nnls

        points = list(measured)
        if not points:
            raise ValueError("a link is fitted to measured copies, and there are none")
        counts = sorted({ranks for ranks, *_ in points})
        of_each = [
            [1.0, messages * (len(counts) > 1), *(received * (ranks == count) for count in counts)]
            for ranks, messages, received, _ in points
        ]
        times = np.array([us for *_, us in points], dtype=float)
        (start, latency, *by_byte), _ = nnls(np.array(of_each) / times[:, None], np.ones(len(times)))
        return {
            count: cls(float(start), float(latency), 1e-3 / each if each else float("inf"))
            for count, each in zip(counts, by_byte, strict=True)
        }


@dataclass(frozen=True)
class Speed:
    """The product's time on one GPU, by its operations: measured ones, and straight lines between them.

    Counted are the operations of whole waves, in which all SMs multiply, since the last one takes as long whatever is
    left for it. C is stored after that: of as many operations, those of a smaller K take longer. Past the measured ones
    the rate is that of the nearest, but for what every kernel takes (START_US). `read_gb_per_s`: no product reads A and
    B and writes C any faster.
    """

    flops: Sequence[float]  # ascending
    us: Sequence[float]  # but for storing C
    read_gb_per_s: float = float("inf")
    wave: int = 1  # elements of C that all SMs compute at once, with the smallest tile that the kernel has

    @classmethod
    def of(cls, measured: Iterable[tuple[Problem, float]], read_gb_per_s: float = float("inf"), wave: int = 1) -> Speed:
        """From (product, microseconds); of several with as many operations, the median."""
        found: dict[float, list[float]] = {}
        for problem, us in measured:
            found.setdefault(_in_waves(problem, wave), []).append(us - _moved_us(problem.c_bytes, read_gb_per_s))
        if not found:
            raise ValueError("a speed is that of measured products, and there are none")
        return cls(sorted(found), [float(np.median(found[flops])) for flops in sorted(found)], read_gb_per_s, wave)

    def time(self, problem: Problem) -> float:
        """Microseconds of one product."""
        if not problem.flops:
            return 0.0
        own, flops, us = _in_waves(problem, self.wave), self.flops, self.us
        time = float(np.interp(own, flops, us)) * max(1.0, own / flops[-1])
        if own < flops[0]:
            start = min(START_US, us[0])
            time = start + (us[0] - start) * own / flops[0]
        return max(time + self.moving(problem.c_bytes), self.moving(problem.min_bytes))

    def moving(self, read_and_written: float) -> float:
        """Microseconds for so many bytes of a GPU's own memory."""
        return _moved_us(read_and_written, self.read_gb_per_s)


def _moved_us(moved: float, gb_per_s: float) -> float:
    return moved / gb_per_s / 1e3


def blocks(local: Problem, high: int) -> list[Problem]:
    """The products of a rank of the grid, all together `local`: one for what each rank of its grid column has of B."""
    return [local.resized(n=length(part(local.n, high, peer))) for peer in range(high)]


def _in_waves(problem: Problem, wave: int) -> float:
    """The operations of a product whose C is filled up to whole waves."""
    return 2.0 * problem.k * cdiv(problem.m * problem.n, wave) * wave


@dataclass(frozen=True)
class Network:
    """Between hosts: one adapter for each GPU."""

    gpus_per_host: int
    adapter: Link


@dataclass(frozen=True)
class Model:
    """One kind of local product on one kind of host; links are by layout and by count of ranks."""

    speed: Speed
    collective: dict[str, dict[int, Link]]
    copies: dict[str, dict[int, Link]]
    sms: int
    network: Network | None = None  # None: all GPUs are linked as those of one host
    adds_c: bool = True  # the product adds to C in its epilogue
    on_grid: Speed | None = None  # where it writes columns of C, and prepares each part of B by itself; None: as others

    def us(self, layout: str, way: str, problem: Problem, ranks: int) -> float:
        """Microseconds of a problem of any size; on one rank those of the product alone.

        Raises ValueError for another layout than LAYOUTS.
        """
        if layout not in LAYOUTS:
            raise ValueError(f"unknown layout {layout!r}: there are {', '.join(LAYOUTS)}")
        if ranks == 1:
            return self.speed.time(problem)
        if way == IN_TURN:
            return self._in_turn(layout, problem, ranks)
        if layout == GRID:
            return self._grid(problem, ranks)
        if layout == ALL_GATHER:
            return self._all_gather(problem, ranks, fused=way == FUSED)
        return self._reduce_scatter(problem, ranks) if way == OVERLAPPED else self._parts_added(problem, ranks)

    def efficiency(self, layout: str, way: str, one: Problem, ranks: int, weak: bool) -> float:
        """The speed of a GPU as a share of one that is alone; `one` is divided, or in weak scaling what each has."""
        problem = grown(one, layout, ranks) if weak else one
        shares = 1 if weak else ranks
        return self.speed.time(one) / shares / self.us(layout, way, problem, ranks)

    def _in_turn(self, layout: str, problem: Problem, ranks: int) -> float:
        m, n, k = problem.m, problem.n, problem.k
        size, out = self._bytes(problem)
        if layout == ALL_GATHER:
            moved, products = [(ranks, cdiv(m, ranks) * k * size)], [problem.resized(n=cdiv(n, ranks))]
        elif layout == REDUCE_SCATTER:
            moved, products = [(ranks, cdiv(m, ranks) * n * out)], [problem.resized(k=cdiv(k, ranks))]
        else:
            high, wide = sides(ranks)
            products = blocks(problem.resized(m=cdiv(m, high), n=cdiv(n, wide)), high)
            moved = [(wide, cdiv(products[0].m, wide) * k * size), (high, products[0].n * k * size)]
        link = _nearest(self.collective[layout], ranks)
        time = (self._grid_speed if layout == GRID else self.speed).time
        return sum(map(time, products)) + link.start_us + sum(self._collective(link, *of) for of in moved)

    def _collective(self, link: Link, ranks: int, chunk: float) -> float:
        inside = link.begun_us(ranks - 1, (ranks - 1) * chunk)
        if self.network is None or ranks <= self.network.gpus_per_host:
            return inside
        adapter, gpus = self.network.adapter, self.network.gpus_per_host
        return max(inside, adapter.begun_us(cdiv(ranks, gpus) - 1, (ranks - gpus) * chunk / gpus))

    def _copy(self, layout: str, ranks: int, peer: int, chunk: float) -> float:
        """Of one chunk to or from a peer of rank 0, once it has begun."""
        if self.network is None or peer < self.network.gpus_per_host:
            return _nearest(self.copies[layout], ranks).begun_us(1, chunk)
        return self.network.adapter.begun_us(1, chunk)

    def _start(self, layout: str, ranks: int) -> float:
        """Before the first copy."""
        return _nearest(self.copies[layout], ranks).start_us

    def _all_gather(self, problem: Problem, ranks: int, fused: bool) -> float:
        whole, (size, _) = problem.resized(n=cdiv(problem.n, ranks)), self._bytes(problem)
        chunk = cdiv(problem.m, ranks) * problem.k * size
        begun = arrived = self._start(ALL_GATHER, ranks) + (self.speed.moving(2 * chunk) if fused else 0.0)
        here = {}
        for peer in ring(0, ranks):
            arrived += self._copy(ALL_GATHER, ranks, peer, chunk)
            here[peer] = arrived
        done = begun + self._rows(whole, part(problem.m, ranks, 0), fused)
        for peers, rows in gathered(problem.m, ranks, 0, 1 if fused else cdiv(self.sms * TILE, whole.n)):
            done = max(done, here[peers[-1]]) + self._rows(whole, rows, fused)
        return max(done, arrived)

    def _rows(self, whole: Problem, rows: slice, fused: bool) -> float:
        """Some rows of a product, by themselves or beside as many others, on torch's other stream."""
        beside = whole.resized(m=min(length(rows) * (2 if fused else 1), whole.m))
        return self.speed.time(beside) * length(rows) / max(1, beside.m)

    def _reduce_scatter(self, problem: Problem, ranks: int) -> float:
        """The ring: what a rank pushes at one step is what it gets then too, since all do the same.

        Past a host it goes at the pace of the link to the last rank, which is another host's.
        """
        depth, (_, out), chunk = cdiv(problem.k, ranks), self._bytes(problem), cdiv(problem.m, ranks)
        count = pieces(chunk * problem.n, self.sms * TILE)
        piece = problem.resized(m=cdiv(chunk, count), k=depth)
        moved = piece.m * piece.n * out
        adding = self.speed.moving(moved * (1 if self.adds_c else 3))  # what is read and written beside the product
        done = free = self._start(REDUCE_SCATTER, ranks)
        before, here = [0.0] * count, [0.0] * count  # when each piece came, at the step before and at this one
        for step in range(ranks):
            for index in range(count):
                done = max(done, before[index]) + self.speed.time(piece) + (adding if step else 0.0)
                free = here[index] = max(free, done) + self._copy(REDUCE_SCATTER, ranks, ranks - 1, moved)
            before = list(here)
        return done

    def _parts_added(self, problem: Problem, ranks: int) -> float:
        """torch's: a part is copied to its owner behind a barrier, and a kernel adds all of them behind the last.

        A barrier is half of what all-gather's copies take beside their bytes, which begin and end with one.
        """
        whole, (_, out) = problem.resized(k=cdiv(problem.k, ranks)), self._bytes(problem)
        chunk, barrier = cdiv(problem.m, ranks) * problem.n * out, self._start(ALL_GATHER, ranks) / 2
        done = sent_last = barrier
        for peer in ring(0, ranks):
            done += self._rows(whole, part(problem.m, ranks, peer), fused=True)
            sent_last = max(sent_last, done) + barrier + self._copy(REDUCE_SCATTER, ranks, peer, chunk)
        done += self._rows(whole, part(problem.m, ranks, 0), fused=True)
        return max(sent_last, done) + barrier + _moved_us((ranks + 1) * chunk, SUM_GB_PER_S)

    def _grid(self, problem: Problem, ranks: int) -> float:
        high, wide = sides(ranks)
        (size, _), time = self._bytes(problem), self._grid_speed.time
        products = blocks(problem.resized(m=cdiv(problem.m, high), n=cdiv(problem.n, wide)), high)
        first = products[0]
        rows = cdiv(first.m, wide)
        arrived = self._start(GRID, ranks)
        done = arrived + time(first.resized(m=rows))
        for peer in ring(0, wide):
            arrived += self._copy(GRID, ranks, peer, rows * first.k * size)
            done = max(done, arrived) + time(first.resized(m=length(part(first.m, wide, peer))))
        for peer in ring(0, high):
            arrived += self._copy(GRID, ranks, peer * wide, first.n * first.k * size)
            done = max(done, arrived) + time(products[peer])
        return done

    @property
    def _grid_speed(self) -> Speed:
        return self.on_grid or self.speed

    @staticmethod
    def _bytes(problem: Problem) -> tuple[int, int]:
        """Of an element of A and B, and of one of C."""
        return MATHS[problem.math].dtype.itemsize, MATHS[problem.math].out_dtype.itemsize


def _nearest(links: dict[int, Link], ranks: int) -> Link:
    """Those of as many ranks, or else of the nearest count that was measured."""
    return links[min(links, key=lambda count: (abs(count - ranks), count))]
