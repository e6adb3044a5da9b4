"""The problems of tensor-parallel layers: what each rank holds of A, B and C, and three ways to compute it.

- in turn: the library's collective (NCCL's, or gloo's on a CPU), and then the product, or the other way round;
- fused: torch's operator on symmetric memory, which multiplies with cuBLAS;
- overlapped: what is here is multiplied while the rest is on its way (`transport`), in the order of `chunks.ring`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from gemm_ref.compute import MATHS
from gemm_ref.distributed import transport as transports
from gemm_ref.distributed.chunks import gathered, length, nth, part, pieces, ring, sent
from gemm_ref.distributed.transport import Transport
from gemm_ref.launch import cdiv
from gemm_ref.problem import Problem

IN_TURN, FUSED, OVERLAPPED = "in turn", "fused", "overlapped"
WAYS = (IN_TURN, FUSED, OVERLAPPED)
Way = Callable[[], torch.Tensor]
TILE = 128 * 128  # elements of C that a block of a large kernel computes


@dataclass(frozen=True)
class Product:
    """The local product: `gemm(a, b, out=c)`, and what is made of B once for all its products of a call."""

    gemm: Callable[..., object]
    prepare: Callable[[torch.Tensor], Any] = lambda b: b
    is_cublas: bool = False  # as torch's fused operators multiply
    adds_c: bool = False  # `gemm(a, b, out=c, c=c)` adds the product to c, as it is stored

    def add(self, a: torch.Tensor, b: Any, c: torch.Tensor) -> None:
        """c += a @ b, in one kernel if the product can."""
        if self.adds_c:
            self.gemm(a, b, out=c, c=c)
        else:
            product = torch.empty_like(c)
            self.gemm(a, b, out=product)
            c.add_(product)


class Layout:
    """A problem divided among the ranks of a group. All ranks make it together, `load` it, and call a way of it."""

    columns: slice  # of C, and
    rows: slice  # that `c` is
    c: torch.Tensor
    link_bytes: int  # that this rank receives
    depths: Sequence[slice] = ()  # parts of K whose sums are rounded to C's type before they are added

    def __init__(self, problem: Problem, product: Product, device: str = "cpu", least: int | None = None) -> None:
        """least: elements of C that one local product has if it can; None is what fills the GPU.

        Raises ValueError for a problem without elements or products.
        """
        if not problem.flops:
            raise ValueError(f"there is nothing to divide at {problem}: each of M, N and K must be at least 1")
        self.problem, self.product, self.device = problem, product, device
        self.dtype, self.out_dtype = MATHS[problem.math].dtype, MATHS[problem.math].out_dtype
        if least is None:
            sms = torch.cuda.get_device_properties(device).multi_processor_count if device == "cuda" else 1
            least = sms * TILE
        self._least = least

    def load(self, a: torch.Tensor, b: torch.Tensor) -> None:
        """Keep this rank's parts of the whole A (M, K) and B (K, N)."""
        raise NotImplementedError

    @property
    def ways(self) -> dict[str, Way]:
        """What computes this rank's part of C and returns it, by name; all ranks call the same."""
        return {IN_TURN: self.in_turn, OVERLAPPED: self.overlapped}

    def collective(self) -> None:
        """What `in_turn` asks of the library, alone."""
        raise NotImplementedError

    def copies(self) -> None:
        """The copies of `overlapped` alone, and what ends them."""
        raise NotImplementedError

    def multiply(self) -> None:
        """The local product of `in_turn` alone."""
        raise NotImplementedError

    def in_turn(self) -> torch.Tensor:
        raise NotImplementedError

    def overlapped(self) -> torch.Tensor:
        raise NotImplementedError

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


class AllGather(Layout):
    """All-gather, then product: A by rows and B by columns; each rank has those columns of C."""

    def __init__(self, transport: Transport, problem: Problem, product: Product, **options: Any) -> None:
        super().__init__(problem, product, **options)
        self._at, ranks = transport, transport.ranks
        chunk = cdiv(problem.m, ranks)
        self._mine = part(problem.m, ranks, transport.rank)
        self.rows, self.columns = slice(0, problem.m), part(problem.n, ranks, transport.rank)
        width = length(self.columns)
        self.a = transport.empty((chunk, problem.k), self.dtype)
        self.whole = self._empty(ranks * chunk, problem.k)
        self.b = self._empty(problem.k, width)
        self.c = self._empty(problem.m, width, dtype=self.out_dtype)
        self._chunks = [self.whole[peer * chunk : (peer + 1) * chunk] for peer in range(ranks)]
        self._joined = gathered(problem.m, ranks, transport.rank, cdiv(self._least, max(1, width)))
        self.link_bytes = (ranks - 1) * self.a.own.nbytes

    def load(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a.own[: length(self._mine)].copy_(a[self._mine])
        self.b.copy_(b[:, self.columns])

    @property
    def ways(self) -> dict[str, Way]:
        even = self.problem.m % self._at.ranks == 0 and self.problem.n % self._at.ranks == 0
        fused = self.device == "cuda" and self.product.is_cublas and even
        return super().ways | ({FUSED: self.fused} if fused else {})

    def collective(self) -> None:
        transports.all_gather_single(self.whole, self.a.own, group=self._at.group)

    def copies(self) -> None:
        self._at.offer(self.a)
        for peer in ring(self._at.rank, self._at.ranks):
            self._at.pull(self.a, peer, self._chunks[peer])
        self._at.close(self.a)

    def multiply(self) -> None:
        self.product.gemm(self.whole[: self.problem.m], self.b, out=self.c)

    def in_turn(self) -> torch.Tensor:
        self.collective()
        self.multiply()
        return self.c

    def fused(self) -> torch.Tensor:
        _, (c,) = torch.ops.symm_mem.fused_all_gather_matmul(
            self.a.own, [self.b], 0, self._at.group.group_name, return_A=False
        )
        return c

    def overlapped(self) -> torch.Tensor:
        at, gemm = self._at, self.product.gemm
        at.offer(self.a)
        coming = {peer: at.pull(self.a, peer, self._chunks[peer]) for peer in ring(at.rank, at.ranks)}
        b = self.product.prepare(self.b)
        if length(self._mine):
            gemm(self.a.own[: length(self._mine)], b, out=self.c[self._mine])
        for peers, rows in self._joined:
            for peer in peers:
                coming[peer].wait()
            gemm(self.whole[rows], b, out=self.c[rows])
        at.close(self.a)
        return self.c


class ReduceScatter(Layout):
    """Product, then reduce-scatter: A by columns and B by rows; the ranks' products are added, and each has some rows.

    Overlapped, the sums of the rows of C go round a ring: each rank adds its own product to what the one before it
    pushed, in the product's epilogue, and pushes that to the next; what a rank owns comes to it last. So the order is
    fixed. Rows go in two pieces, one of which is on its way while the other is multiplied. What is sent has C's type,
    as in torch and NCCL.
    """

    def __init__(self, transport: Transport, problem: Problem, product: Product, **options: Any) -> None:
        super().__init__(problem, product, **options)
        self._at, ranks = transport, transport.ranks
        chunk = cdiv(problem.m, ranks)
        self._pieces = pieces(chunk * problem.n, self._least)
        self._piece = cdiv(chunk, self._pieces)
        self.depths = [part(problem.k, ranks, rank) for rank in range(ranks)]
        self.rows, self.columns = part(problem.m, ranks, transport.rank), slice(0, problem.n)
        depth, of_c = length(self.depths[transport.rank]), {"dtype": self.out_dtype}
        self.a, self.b = self._empty(problem.m, depth), self._empty(depth, problem.n)
        self.whole = self._empty(ranks * chunk, problem.n, **of_c).zero_()
        # What the rank before this one pushes, a chunk at each step; that of the last step becomes this rank's C.
        self._sums = transport.empty(((ranks - 1) * self._pieces, self._piece, problem.n), self.out_dtype)
        self._sums.own.zero_()
        self._leaving = self._empty(self._pieces, self._piece, problem.n, **of_c).zero_()
        self._own = self._sums.own[-self._pieces :].flatten(0, 1)[:chunk]
        self.c = self._own[: length(self.rows)]
        self.link_bytes = (ranks - 1) * self._leaving.nbytes

    def load(self, a: torch.Tensor, b: torch.Tensor) -> None:
        depth = self.depths[self._at.rank]
        self.a.copy_(a[:, depth])
        self.b.copy_(b[depth])

    @property
    def ways(self) -> dict[str, Way]:
        even = self.problem.m % self._at.ranks == 0 and self.problem.k % self._at.ranks == 0
        fused = self.device == "cuda" and self.product.is_cublas and even
        return super().ways | ({FUSED: self.fused} if fused else {})

    def collective(self) -> None:
        transports.reduce_scatter_single(self._own, self.whole, group=self._at.group)

    def copies(self) -> None:
        before, after = self._beside
        coming = self._at.accept(self._sums, before)
        parts = [*self._leaving] * (self._at.ranks - 1)
        leaving = [self._at.push(part, self._sums, after, place) for place, part in enumerate(parts)]
        for each in (*coming, *leaving):
            each.wait()

    def multiply(self) -> None:
        self.product.gemm(self.a, self.b, out=self.whole[: self.problem.m])

    def in_turn(self) -> torch.Tensor:
        self.multiply()
        self.collective()
        return self.c

    def fused(self) -> torch.Tensor:
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(self.a, self.b, "sum", 0, self._at.group.group_name)

    def overlapped(self) -> torch.Tensor:
        at, (before, after) = self._at, self._beside
        coming = at.accept(self._sums, before)
        b = self.product.prepare(self.b)
        leaving = []
        for step, owner in enumerate(sent(at.rank, at.ranks)):
            for piece in range(self._pieces):
                sums, place = self._leaving[piece], step * self._pieces + piece
                if step:
                    coming[place - self._pieces].wait()
                    sums = self._sums.own[place - self._pieces]
                self._partial(owner, piece, b, sums, adds=step > 0)
                if owner != at.rank:
                    leaving.append(at.push(sums, self._sums, after, place))
        for each in leaving:
            each.wait()
        return self.c

    @property
    def _beside(self) -> tuple[int, int]:
        """The ranks before and after this one on the ring."""
        return (self._at.rank - 1) % self._at.ranks, (self._at.rank + 1) % self._at.ranks

    def _partial(self, owner: int, piece: int, b: Any, sums: torch.Tensor, adds: bool) -> None:
        """This rank's part of the sum in a piece of the rows of C that `owner` has, stored in or added to `sums`."""
        chunk = part(self.problem.m, self._at.ranks, owner)
        rows = nth(length(chunk), self._piece, piece)
        if not length(rows):
            return
        a, sums = self.a[chunk][rows], sums[: length(rows)]
        if adds:
            self.product.add(a, b, sums)
        else:
            self.product.gemm(a, b, out=sums)


class Grid(Layout):
    """C on a grid of ranks: each has one block of it, for products that fit no single card.

    The ranks of a grid row share the rows of A that they need, each holding some of them; those of a grid column share
    the columns of B, likewise. So K is never divided, and sums are those of one card. Overlapped, the rows of A come
    first and are multiplied with the columns of B that are here; then the columns of B come, meeting the whole of A.
    """

    def __init__(self, across: Transport, down: Transport, problem: Problem, product: Product, **options: Any) -> None:
        """across: the ranks of this grid row; down: those of this grid column."""
        super().__init__(problem, product, **options)
        self._across, self._down = across, down
        self.rows, self.columns = part(problem.m, down.ranks, down.rank), part(problem.n, across.ranks, across.rank)
        height, width = cdiv(problem.m, down.ranks), cdiv(problem.n, across.ranks)
        self.c = self._empty(length(self.rows), length(self.columns), dtype=self.out_dtype)
        # Columns of B are stored apart, as they are sent, so that they lie one after another in no matrix.
        self._b_chunk = cdiv(width, down.ranks)
        self._b = down.empty((problem.k, self._b_chunk), self.dtype)
        self._bs = self._empty(down.ranks, problem.k, self._b_chunk)
        self._a_chunk = cdiv(height, across.ranks)
        self._a = across.empty((self._a_chunk, problem.k), self.dtype)
        self._as = self._empty(across.ranks, self._a_chunk, problem.k)
        self.link_bytes = (across.ranks - 1) * self._a.own.nbytes + (down.ranks - 1) * self._b.own.nbytes

    def load(self, a: torch.Tensor, b: torch.Tensor) -> None:
        a, b = a[self.rows], b[:, self.columns]
        mine, own = self._rows_of(self._across.rank), self._columns_of(self._down.rank)
        self._a.own[: length(mine)].copy_(a[mine])
        self._b.own[:, : length(own)].copy_(b[:, own])

    def collective(self) -> None:
        transports.all_gather_single(self._as.flatten(0, 1), self._a.own, group=self._across.group)
        transports.all_gather_single(self._bs.flatten(0, 1), self._b.own, group=self._down.group)

    def copies(self) -> None:
        self._begin()
        self._end()

    def multiply(self) -> None:
        for peer in range(self._down.ranks):
            self._times(slice(0, length(self.rows)), peer, self._bs[peer])

    def in_turn(self) -> torch.Tensor:
        self.collective()
        self.multiply()
        return self.c

    def overlapped(self) -> torch.Tensor:
        of_a, of_b = self._begin()
        down, mine = self._down.rank, self._rows_of(self._across.rank)
        own = self.product.prepare(self._b.own[:, : length(self._columns_of(down))])
        self._multiply(self._a.own[: length(mine)], own, mine, down)
        for peer, arrival in of_a.items():
            arrival.wait()
            rows = self._rows_of(peer)
            self._multiply(self._as[peer, : length(rows)], own, rows, down)
        if of_b:
            self._as[self._across.rank].copy_(self._a.own)
        for peer, arrival in of_b.items():
            arrival.wait()
            self._times(slice(0, length(self.rows)), peer, self._bs[peer])
        self._end()
        return self.c

    def _begin(self) -> tuple[dict[int, transports.Arrival], dict[int, transports.Arrival]]:
        """What was asked of the grid row, and of the grid column."""
        across, down = self._across, self._down
        across.offer(self._a)
        down.offer(self._b)
        of_a = {peer: across.pull(self._a, peer, self._as[peer]) for peer in ring(across.rank, across.ranks)}
        of_b = {peer: down.pull(self._b, peer, self._bs[peer]) for peer in ring(down.rank, down.ranks)}
        return of_a, of_b

    def _end(self) -> None:
        self._across.close(self._a)
        self._down.close(self._b)

    def _rows_of(self, peer: int) -> slice:
        """Of the block's rows, those that a rank of the grid row holds of A."""
        return nth(length(self.rows), self._a_chunk, peer)

    def _columns_of(self, peer: int) -> slice:
        """Of the block's columns, those that a rank of the grid column holds of B."""
        return nth(length(self.columns), self._b_chunk, peer)

    def _times(self, rows: slice, peer: int, b: torch.Tensor) -> None:
        """Rows of the whole A with what came of B from one rank."""
        b = b[:, : length(self._columns_of(peer))]
        self._multiply(self._as.flatten(0, 1)[rows], self.product.prepare(b), rows, peer)

    def _multiply(self, a: torch.Tensor, b: Any, rows: slice, peer: int) -> None:
        columns = self._columns_of(peer)
        if length(rows) and length(columns):
            self.product.gemm(a, b, out=self.c[rows, columns])


ALL_GATHER, REDUCE_SCATTER, GRID = "all-gather", "reduce-scatter", "grid"
LAYOUTS = (ALL_GATHER, REDUCE_SCATTER, GRID)


def sides(ranks: int) -> tuple[int, int]:
    """The grid of so many ranks that is nearest to a square: its rows and columns, no more rows than columns."""
    high = max(side for side in range(1, ranks + 1) if ranks % side == 0 and side * side <= ranks)
    return high, ranks // high


def grown(one: Problem, layout: str, ranks: int) -> Problem:
    """A problem so much larger that each rank's product is `one`: the side grows along which it is divided."""
    if layout == ALL_GATHER:
        return one.resized(n=one.n * ranks)
    if layout == REDUCE_SCATTER:
        return one.resized(k=one.k * ranks)
    high, wide = sides(ranks)
    return one.resized(m=one.m * high, n=one.n * wide)


def make(name: str, problem: Problem, product: Product, device: str, least: int | None = None) -> Layout:
    """One of LAYOUTS over all ranks, whose default group must exist; all of them call this.

    Raises ValueError for a problem without elements or products, and where there is one rank.
    """
    if dist.get_world_size() < 2:
        raise ValueError("a product is divided among two ranks or more, and there is one")
    options: dict[str, Any] = {"device": device, "least": least}
    if name == GRID:
        return Grid(*transports.grid(*sides(dist.get_world_size()), device), problem, product, **options)
    kind = {ALL_GATHER: AllGather, REDUCE_SCATTER: ReduceScatter}[name]
    return kind(transports.connect(dist.group.WORLD, device), problem, product, **options)
