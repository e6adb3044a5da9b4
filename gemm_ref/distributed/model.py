"""Predicts the time of a layout on several GPUs from the links' latency and bandwidth and the product's speed.

In turn is a collective and a product. Overlapped follows the schedule of `layouts` step by step: chunks arrive one
after another, and each is multiplied once it has arrived and the previous product is done. torch's fused operators join
no chunks but multiply on two streams, so that the next chunk fills what one leaves idle; all-gather first copies a
rank's own chunk to where its peers read it, and reduce-scatter adds all parts in a kernel at the end
(`torch.distributed._symmetric_memory`). What all copies take before the first byte is mostly a barrier, which the first
product waits for too. Between hosts the links are a network's: a collective sends each byte to a host once, over all of
the host's adapters, while a rank that copies by itself has one adapter for all its copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.compute import MATHS
from gemm_ref.distributed import layouts
from gemm_ref.distributed.layouts import ALL_GATHER, GRID, LAYOUTS, REDUCE_SCATTER, TILE
from gemm_ref.distributed.partition import count_pieces, group_peers, peer_order, rank_slice, slice_length
from gemm_ref.launch import cdiv
from gemm_ref.problem import Problem

SUM_GB_PER_S = 1450.0  # of torch's kernel that adds parts: 201 MB read and written in 139 us (docs/scaling.md)
START_US = 5.0  # of an empty kernel, on an H100 and on an H200 (`start_ns` of `gemm_ref.choice`)


@dataclass(frozen=True)
class Link:
    """The time until data is received: a part before the first message, a part per message, and a part per byte."""

    start_us: float
    latency_us: float
    gb_per_s: float

    def messages_us(self, messages: int, received_bytes: float) -> float:
        """Microseconds for messages one after another, `received_bytes` together, without `start_us`."""
        return messages * self.latency_us + _transfer_us(received_bytes, self.gb_per_s)

    @classmethod
    def fit(cls, measured: Iterable[tuple[int, int, float, float]]) -> dict[int, Link]:
        """Fit links to (ranks, messages, bytes, microseconds), by number of ranks; no part is negative.

        By least squares of the relative errors. Each number of ranks has its own bandwidth: NCCL's among 4 GPUs is a
        quarter more than among 2. Start and latency are common to all; for a single number of ranks, all is start.

        Raises ValueError where nothing was measured.
        """
        from scipy.optimize import nnls

        points = list(measured)
        if not points:
            raise ValueError("a link is fitted to measured copies, and there are none")
        counts = sorted({ranks for ranks, *_ in points})
        equations = [
            [1.0, messages * (len(counts) > 1), *(received * (ranks == count) for count in counts)]
            for ranks, messages, received, _ in points
        ]
        times = np.array([us for *_, us in points], dtype=float)
        (start, latency, *us_per_byte), _ = nnls(np.array(equations) / times[:, None], np.ones(len(times)))
        return {
            count: cls(float(start), float(latency), 1e-3 / us if us else float("inf"))
            for count, us in zip(counts, us_per_byte, strict=True)
        }


@dataclass(frozen=True)
class Speed:
    """The product's time on one GPU as a function of its operations, by linear interpolation of measured times.

    Operations are those of complete waves, in which all SMs multiply, since a partial wave takes as long. Storing C
    comes on top: of two products with as many operations, the one with the smaller K takes longer. Outside the measured
    range the rate is that of the nearest point, but for START_US. No product is faster than reading A and B and writing
    C at `read_gb_per_s`.
    """

    flops: Sequence[float]  # ascending
    us: Sequence[float]  # without storing C
    read_gb_per_s: float = float("inf")
    wave: int = 1  # elements of C that all SMs compute at once, with the smallest tile that the kernel has

    @classmethod
    def fit(
        cls, measured: Iterable[tuple[Problem, float]], read_gb_per_s: float = float("inf"), wave: int = 1
    ) -> Speed:
        """From (product, microseconds); of several with as many operations, the median."""
        times: dict[float, list[float]] = {}
        for problem, us in measured:
            times.setdefault(_wave_flops(problem, wave), []).append(us - _transfer_us(problem.c_bytes, read_gb_per_s))
        if not times:
            raise ValueError("a speed is fitted to measured products, and there are none")
        return cls(sorted(times), [float(np.median(times[flops])) for flops in sorted(times)], read_gb_per_s, wave)

    def product_us(self, problem: Problem) -> float:
        """Microseconds of one product."""
        if not problem.flops:
            return 0.0
        flops = _wave_flops(problem, self.wave)
        time = float(np.interp(flops, self.flops, self.us)) * max(1.0, flops / self.flops[-1])
        if flops < self.flops[0]:
            start = min(START_US, self.us[0])
            time = start + (self.us[0] - start) * flops / self.flops[0]
        return max(time + self.memory_us(problem.c_bytes), self.memory_us(problem.min_bytes))

    def memory_us(self, transferred_bytes: float) -> float:
        """Microseconds to read and write so many bytes of the GPU's own memory."""
        return _transfer_us(transferred_bytes, self.read_gb_per_s)


def _transfer_us(transferred_bytes: float, gb_per_s: float) -> float:
    return transferred_bytes / gb_per_s / 1e3


def grid_products(block: Problem, grid_rows: int) -> list[Problem]:
    """The products that make up a rank's block of the grid: one per rank of its grid column, which holds part of B."""
    return [block.resized(n=slice_length(rank_slice(block.n, grid_rows, peer))) for peer in range(grid_rows)]


def _wave_flops(problem: Problem, wave: int) -> float:
    """The operations of a product whose C is rounded up to complete waves."""
    return 2.0 * problem.k * cdiv(problem.m * problem.n, wave) * wave


@dataclass(frozen=True)
class Network:
    """Between hosts: one adapter per GPU."""

    gpus_per_host: int
    adapter: Link


@dataclass(frozen=True)
class Model:
    """One kind of local product on one kind of host; links are by layout and by number of ranks."""

    speed: Speed
    collective: dict[str, dict[int, Link]]
    copies: dict[str, dict[int, Link]]
    sms: int
    network: Network | None = None  # None: all GPUs are linked as those of one host
    adds_c: bool = True  # the product adds to C in its epilogue
    grid_speed: Speed | None = None  # where it writes columns of C and prepares each part of B; None: `speed`

    def predict_us(self, layout: str, way: str, problem: Problem, ranks: int) -> float:
        """Microseconds of a problem of any size; on one rank those of the product alone.

        Raises ValueError for another layout than LAYOUTS.
        """
        if layout not in LAYOUTS:
            raise ValueError(f"unknown layout {layout!r}: there are {', '.join(LAYOUTS)}")
        if ranks == 1:
            return self.speed.product_us(problem)
        if way == layouts.IN_TURN:
            return self._in_turn(layout, problem, ranks)
        if layout == GRID:
            return self._grid(problem, ranks)
        fused = way == layouts.FUSED
        if layout == ALL_GATHER:
            return self._all_gather(problem, ranks, fused)
        return self._fused_reduce_scatter(problem, ranks) if fused else self._ring_reduce_scatter(problem, ranks)

    def efficiency(self, layout: str, way: str, one: Problem, ranks: int, weak: bool) -> float:
        """A GPU's speed as a share of one alone; the ranks divide `one`, or in weak scaling each computes as much."""
        problem = layouts.scale_weakly(one, layout, ranks) if weak else one
        shares = 1 if weak else ranks
        return self.speed.product_us(one) / shares / self.predict_us(layout, way, problem, ranks)

    def _in_turn(self, layout: str, problem: Problem, ranks: int) -> float:
        m, n, k = problem.m, problem.n, problem.k
        if layout == ALL_GATHER:
            chunks, products = [(ranks, cdiv(m, ranks) * _row_bytes(problem))], [problem.resized(n=cdiv(n, ranks))]
        elif layout == REDUCE_SCATTER:
            chunk = problem.resized(m=cdiv(m, ranks))
            chunks, products = [(ranks, chunk.c_bytes)], [problem.resized(k=cdiv(k, ranks))]
        else:
            rows, columns = layouts.grid_shape(ranks)
            products = grid_products(problem.resized(m=cdiv(m, rows), n=cdiv(n, columns)), rows)
            first = products[0]
            chunks = [(columns, cdiv(first.m, columns) * _row_bytes(first)), (rows, first.n * _row_bytes(first))]
        link = _nearest(self.collective[layout], ranks)
        product_us = (self._speed_on_grid if layout == GRID else self.speed).product_us
        collectives = (self._collective(link, members, chunk_bytes) for members, chunk_bytes in chunks)
        return sum(map(product_us, products)) + link.start_us + sum(collectives)

    def _collective(self, link: Link, ranks: int, chunk_bytes: float) -> float:
        inside = link.messages_us(ranks - 1, (ranks - 1) * chunk_bytes)
        if self.network is None or ranks <= self.network.gpus_per_host:
            return inside
        adapter, gpus = self.network.adapter, self.network.gpus_per_host
        return max(inside, adapter.messages_us(cdiv(ranks, gpus) - 1, (ranks - gpus) * chunk_bytes / gpus))

    def _copy(self, layout: str, ranks: int, peer: int, chunk_bytes: float) -> float:
        """One chunk to or from a peer of rank 0, without the start of the link."""
        if self.network is None or peer < self.network.gpus_per_host:
            return _nearest(self.copies[layout], ranks).messages_us(1, chunk_bytes)
        return self.network.adapter.messages_us(1, chunk_bytes)

    def _start(self, layout: str, ranks: int) -> float:
        """Before the first copy."""
        return _nearest(self.copies[layout], ranks).start_us

    def _all_gather(self, problem: Problem, ranks: int, fused: bool) -> float:
        local = problem.resized(n=cdiv(problem.n, ranks))
        chunk_bytes = cdiv(problem.m, ranks) * _row_bytes(problem)
        start = arrived = self._start(ALL_GATHER, ranks) + (self.speed.memory_us(2 * chunk_bytes) if fused else 0.0)
        arrivals = {}
        for peer in peer_order(0, ranks):
            arrived += self._copy(ALL_GATHER, ranks, peer, chunk_bytes)
            arrivals[peer] = arrived
        done = start + self._rows(local, rank_slice(problem.m, ranks, 0), fused)
        for peers, rows in group_peers(problem.m, ranks, 0, 1 if fused else cdiv(self.sms * TILE, local.n)):
            done = max(done, arrivals[peers[-1]]) + self._rows(local, rows, fused)
        return max(done, arrived)

    def _rows(self, product: Problem, rows: slice, fused: bool) -> float:
        """Some rows of a product; fused, they share the GPU with as many others on torch's second stream."""
        running = product.resized(m=min(slice_length(rows) * (2 if fused else 1), product.m))
        return self.speed.product_us(running) * slice_length(rows) / max(1, running.m)

    def _ring_reduce_scatter(self, problem: Problem, ranks: int) -> float:
        """The ring: in each step a rank receives as much as it pushes, since all ranks do the same.

        Between hosts its pace is that of the link to the last rank, which is on another host.
        """
        chunk = problem.resized(m=cdiv(problem.m, ranks), k=cdiv(problem.k, ranks))
        count = count_pieces(chunk.m * chunk.n, self.sms * TILE)
        piece = chunk.resized(m=cdiv(chunk.m, count))
        adding = self.speed.memory_us(piece.c_bytes * (1 if self.adds_c else 3))  # beyond what the product transfers
        done = free = self._start(REDUCE_SCATTER, ranks)
        previous, arrivals = [0.0] * count, [0.0] * count  # by piece, of the previous step and of this one
        for step in range(ranks):
            for index in range(count):
                done = max(done, previous[index]) + self.speed.product_us(piece) + (adding if step else 0.0)
                free = arrivals[index] = max(free, done) + self._copy(REDUCE_SCATTER, ranks, ranks - 1, piece.c_bytes)
            previous = list(arrivals)
        return done

    def _fused_reduce_scatter(self, problem: Problem, ranks: int) -> float:
        """torch's: a part is copied to its owner behind a barrier, and a kernel adds all parts behind the last one.

        A barrier is half of the start of all-gather's copies, which begin and end with one.
        """
        local, chunk = problem.resized(k=cdiv(problem.k, ranks)), problem.resized(m=cdiv(problem.m, ranks))
        barrier = self._start(ALL_GATHER, ranks) / 2
        done = arrived = barrier
        for peer in peer_order(0, ranks):
            done += self._rows(local, rank_slice(problem.m, ranks, peer), fused=True)
            arrived = max(arrived, done) + barrier + self._copy(REDUCE_SCATTER, ranks, peer, chunk.c_bytes)
        done += self._rows(local, rank_slice(problem.m, ranks, 0), fused=True)
        return max(arrived, done) + barrier + _transfer_us((ranks + 1) * chunk.c_bytes, SUM_GB_PER_S)

    def _grid(self, problem: Problem, ranks: int) -> float:
        rows, columns = layouts.grid_shape(ranks)
        product_us = self._speed_on_grid.product_us
        products = grid_products(problem.resized(m=cdiv(problem.m, rows), n=cdiv(problem.n, columns)), rows)
        first = products[0]
        chunk = cdiv(first.m, columns)  # rows of A
        arrived = self._start(GRID, ranks)
        done = arrived + product_us(first.resized(m=chunk))
        for peer in peer_order(0, columns):
            arrived += self._copy(GRID, ranks, peer, chunk * _row_bytes(first))
            done = max(done, arrived) + product_us(first.resized(m=slice_length(rank_slice(first.m, columns, peer))))
        for peer in peer_order(0, rows):
            arrived += self._copy(GRID, ranks, peer * columns, first.n * _row_bytes(first))
            done = max(done, arrived) + product_us(products[peer])
        return done

    @property
    def _speed_on_grid(self) -> Speed:
        return self.grid_speed or self.speed


def _row_bytes(problem: Problem) -> int:
    """The size of a row of A, or of a column of B."""
    return problem.k * MATHS[problem.math].dtype.itemsize


def _nearest(links: dict[int, Link], ranks: int) -> Link:
    """The links of the measured number of ranks that is nearest."""
    return links[min(links, key=lambda count: (abs(count - ranks), count))]
