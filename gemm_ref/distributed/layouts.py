"""The problems of tensor-parallel layers: what each rank holds of A, B and C, and three ways to compute it.

- in turn: the library's collective (NCCL's, or gloo's on a CPU), and then the product, or the other way round;
- fused: torch's operator on symmetric memory, which multiplies with cuBLAS;
- overlapped: a rank multiplies what it has while the rest is being copied (`transport`), in `partition.peer_order`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from gemm_ref.compute import MATHS
from gemm_ref.distributed import transport as transports
from gemm_ref.distributed.partition import (
    chunk_slice,
    count_pieces,
    group_peers,
    peer_order,
    rank_slice,
    reduce_scatter_order,
    slice_length,
)
from gemm_ref.distributed.transport import Transport, Wait
from gemm_ref.launch import cdiv
from gemm_ref.problem import Problem

IN_TURN, FUSED, OVERLAPPED = "in turn", "fused", "overlapped"
WAYS = (IN_TURN, FUSED, OVERLAPPED)
Way = Callable[[], torch.Tensor]
TILE = 128 * 128  # elements of C that a block of a large kernel computes


@dataclass(frozen=True)
class Product:
    """The local product: `gemm(a, b, out=c)`, and `prepare`, which is applied to B once for all products of a call."""

    gemm: Callable[..., object]
    prepare: Callable[[torch.Tensor], Any] = lambda b: b
    is_cublas: bool = False  # torch's fused operators multiply with cuBLAS too
    adds_c: bool = False  # `gemm(a, b, out=c, c=c)` adds the product to c, in the dtype of c

    def add(self, a: torch.Tensor, b: Any, c: torch.Tensor) -> None:
        """c += a @ b, in one kernel if the product can."""
        if self.adds_c:
            self.gemm(a, b, out=c, c=c)
        else:
            product = torch.empty_like(c)
            self.gemm(a, b, out=product)
            c.add_(product)


class Layout(abc.ABC):
    """A problem divided among the ranks of a group. All ranks make it together, `load` it, and call one of `ways`."""

    columns: slice  # of C, and
    rows: slice  # that `c` holds
    c: torch.Tensor
    link_bytes: int  # that this rank receives
    depths: Sequence[slice] = ()  # parts of K whose sums are rounded to C's type before they are added
    has_fused_operator = False  # whether torch has an operator for this layout, at these sizes

    def __init__(
        self, problem: Problem, product: Product, device: str = "cpu", min_elements: int | None = None
    ) -> None:
        """min_elements: elements of C that one local product has if possible; None is what fills the GPU.

        Raises ValueError for a problem without elements or products.
        """
        if not problem.flops:
            raise ValueError(f"there is nothing to divide at {problem}: each of M, N and K must be at least 1")
        self.problem, self.product, self.device = problem, product, device
        self.dtype, self.out_dtype = MATHS[problem.math].dtype, MATHS[problem.math].out_dtype
        if min_elements is None:
            sms = torch.cuda.get_device_properties(device).multi_processor_count if device == "cuda" else 1
            min_elements = sms * TILE
        self._min_elements = min_elements

    @property
    def ways(self) -> dict[str, Way]:
        """Functions that compute this rank's part of C and return it, by name; all ranks call the same."""
        fused = self.has_fused_operator and self.device == "cuda" and self.product.is_cublas
        return {IN_TURN: self.in_turn, OVERLAPPED: self.overlapped} | ({FUSED: self.fused} if fused else {})

    @abc.abstractmethod
    def load(self, a: torch.Tensor, b: torch.Tensor) -> None:
        """Copy this rank's parts of the whole A (M, K) and B (K, N)."""

    @abc.abstractmethod
    def collective(self) -> None:
        """The library's collective of `in_turn` alone."""

    @abc.abstractmethod
    def copies(self) -> None:
        """The copies of `overlapped` alone, and what ends them."""

    @abc.abstractmethod
    def multiply(self) -> None:
        """The local product of `in_turn` alone."""

    def in_turn(self) -> torch.Tensor:
        self.collective()
        self.multiply()
        return self.c

    def fused(self) -> torch.Tensor:
        raise NotImplementedError(f"torch has no fused operator for {type(self).__name__}")

    @abc.abstractmethod
    def overlapped(self) -> torch.Tensor:
        """Multiply what is here while the rest is being copied."""

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


class AllGather(Layout):
    """All-gather, then product: A by rows and B by columns; each rank computes its columns of C."""

    def __init__(self, transport: Transport, problem: Problem, product: Product, **options: Any) -> None:
        super().__init__(problem, product, **options)
        self._transport, ranks = transport, transport.ranks
        chunk = cdiv(problem.m, ranks)
        self._own_rows = rank_slice(problem.m, ranks, transport.rank)
        self.rows, self.columns = slice(0, problem.m), rank_slice(problem.n, ranks, transport.rank)
        width = slice_length(self.columns)
        self.a = transport.allocate((chunk, problem.k), self.dtype)
        self._whole_a = self._empty(ranks * chunk, problem.k)
        self.b = self._empty(problem.k, width)
        self.c = self._empty(problem.m, width, dtype=self.out_dtype)
        self._chunks = self._whole_a.split(chunk)
        self._groups = group_peers(problem.m, ranks, transport.rank, cdiv(self._min_elements, max(1, width)))
        self.link_bytes = (ranks - 1) * self.a.local.nbytes
        self.has_fused_operator = problem.m % ranks == 0 and problem.n % ranks == 0

    def load(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a.local[: slice_length(self._own_rows)].copy_(a[self._own_rows])
        self.b.copy_(b[:, self.columns])

    def collective(self) -> None:
        transports.all_gather_single(self._whole_a, self.a.local, group=self._transport.group)

    def copies(self) -> None:
        self._begin_pulls()
        self._transport.end_pulls(self.a)

    def multiply(self) -> None:
        self.product.gemm(self._whole_a[: self.problem.m], self.b, out=self.c)

    def fused(self) -> torch.Tensor:
        _, (c,) = torch.ops.symm_mem.fused_all_gather_matmul(
            self.a.local, [self.b], 0, self._transport.group.group_name, return_A=False
        )
        return c

    def overlapped(self) -> torch.Tensor:
        waits = self._begin_pulls()
        b = self.product.prepare(self.b)
        if own_rows := slice_length(self._own_rows):
            self.product.gemm(self.a.local[:own_rows], b, out=self.c[self._own_rows])
        for peers, rows in self._groups:
            for peer in peers:
                waits[peer]()
            self.product.gemm(self._whole_a[rows], b, out=self.c[rows])
        self._transport.end_pulls(self.a)
        return self.c

    def _begin_pulls(self) -> dict[int, Wait]:
        self._transport.begin_pulls(self.a)
        return _pull_from_all(self._transport, self.a, self._chunks)


class ReduceScatter(Layout):
    """Product, then reduce-scatter: A by columns and B by rows; the ranks' products are added, and each owns some rows.

    Overlapped, the sums of the rows of C go round a ring: each rank adds its own product to what its predecessor
    pushed, in the product's epilogue, and pushes the sum to its successor; a rank's own part comes last. So the order
    of the additions is fixed. Rows go in two pieces, one of which is copied while the other is multiplied. What is sent
    has C's type, as in torch and NCCL.
    """

    def __init__(self, transport: Transport, problem: Problem, product: Product, **options: Any) -> None:
        super().__init__(problem, product, **options)
        self._transport, rank, ranks = transport, transport.rank, transport.ranks
        self._predecessor, self._successor = (rank - 1) % ranks, (rank + 1) % ranks
        chunk = cdiv(problem.m, ranks)
        self._pieces = count_pieces(chunk * problem.n, self._min_elements)
        self._piece = cdiv(chunk, self._pieces)  # rows
        self.depths = [rank_slice(problem.k, ranks, each) for each in range(ranks)]
        self._depth = self.depths[rank]
        self.rows, self.columns = rank_slice(problem.m, ranks, rank), slice(0, problem.n)
        self.a = self._empty(problem.m, slice_length(self._depth))
        self.b = self._empty(slice_length(self._depth), problem.n)
        self._whole_c = self._empty(ranks * chunk, problem.n, dtype=self.out_dtype).zero_()
        # What the predecessor pushes, a chunk per step; the chunk of the last step becomes this rank's C.
        self._sums = transport.allocate(((ranks - 1) * self._pieces, self._piece, problem.n), self.out_dtype)
        self._sums.local.zero_()
        self._first_sums = self._empty(self._pieces, self._piece, problem.n, dtype=self.out_dtype).zero_()
        self._own_chunk = self._sums.local[-self._pieces :].flatten(0, 1)[:chunk]
        self.c = self._own_chunk[: slice_length(self.rows)]
        self.link_bytes = (ranks - 1) * self._first_sums.nbytes
        self.has_fused_operator = problem.m % ranks == 0 and problem.k % ranks == 0

    def load(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a.copy_(a[:, self._depth])
        self.b.copy_(b[self._depth])

    def collective(self) -> None:
        transports.reduce_scatter_single(self._own_chunk, self._whole_c, group=self._transport.group)

    def copies(self) -> None:
        transport = self._transport
        arrivals = transport.accept_pushes(self._sums, self._predecessor)
        parts = [*self._first_sums] * (transport.ranks - 1)
        pushes = [transport.push(part, self._sums, self._successor, slot) for slot, part in enumerate(parts)]
        for wait in (*arrivals, *pushes):
            wait()

    def multiply(self) -> None:
        self.product.gemm(self.a, self.b, out=self._whole_c[: self.problem.m])

    def in_turn(self) -> torch.Tensor:
        self.multiply()
        self.collective()
        return self.c

    def fused(self) -> torch.Tensor:
        group = self._transport.group.group_name
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(self.a, self.b, "sum", 0, group)

    def overlapped(self) -> torch.Tensor:
        transport = self._transport
        arrivals = transport.accept_pushes(self._sums, self._predecessor)
        b = self.product.prepare(self.b)
        pushes = []
        for step, owner in enumerate(reduce_scatter_order(transport.rank, transport.ranks)):
            for piece in range(self._pieces):
                sums, slot = self._first_sums[piece], step * self._pieces + piece
                if step:
                    arrivals[slot - self._pieces]()
                    sums = self._sums.local[slot - self._pieces]
                self._multiply_piece(owner, piece, b, sums, adds=step > 0)
                if owner != transport.rank:
                    pushes.append(transport.push(sums, self._sums, self._successor, slot))
        for wait in pushes:
            wait()
        return self.c

    def _multiply_piece(self, owner: int, piece: int, b: Any, sums: torch.Tensor, adds: bool) -> None:
        """Store in `sums`, or add to them, this rank's product for a piece of the rows of C that `owner` owns."""
        chunk = rank_slice(self.problem.m, self._transport.ranks, owner)
        rows = chunk_slice(slice_length(chunk), self._piece, piece)
        if not slice_length(rows):
            return
        a, sums = self.a[chunk][rows], sums[: slice_length(rows)]
        if adds:
            self.product.add(a, b, sums)
        else:
            self.product.gemm(a, b, out=sums)


class Grid(Layout):
    """C on a grid of ranks: each computes one block of it, for products that fit no single card.

    The ranks of a grid row share the rows of A that they need, each holding some of them; those of a grid column share
    the columns of B, likewise. So K is never divided, and sums are those of one card. Overlapped, the rows of A come
    first and are multiplied with the columns of B that are here; then the columns of B come, for the whole of A.
    """

    def __init__(self, across: Transport, down: Transport, problem: Problem, product: Product, **options: Any) -> None:
        """across: the ranks of this grid row; down: those of this grid column."""
        super().__init__(problem, product, **options)
        self._across, self._down = across, down
        self.rows = rank_slice(problem.m, down.ranks, down.rank)
        self.columns = rank_slice(problem.n, across.ranks, across.rank)
        self._height, self._width = slice_length(self.rows), slice_length(self.columns)
        self.c = self._empty(self._height, self._width, dtype=self.out_dtype)
        # Chunks of B's columns are stored one after another, as they are sent, and not as one matrix.
        self._b_chunk = cdiv(cdiv(problem.n, across.ranks), down.ranks)
        self._b = down.allocate((problem.k, self._b_chunk), self.dtype)
        self._b_chunks = self._empty(down.ranks, problem.k, self._b_chunk)
        self._a_chunk = cdiv(cdiv(problem.m, down.ranks), across.ranks)
        self._a = across.allocate((self._a_chunk, problem.k), self.dtype)
        self._a_chunks = self._empty(across.ranks, self._a_chunk, problem.k)
        self.link_bytes = (across.ranks - 1) * self._a.local.nbytes + (down.ranks - 1) * self._b.local.nbytes

    def load(self, a: torch.Tensor, b: torch.Tensor) -> None:
        rows, columns = self._rows_of(self._across.rank), self._columns_of(self._down.rank)
        self._a.local[: slice_length(rows)].copy_(a[self.rows][rows])
        self._b.local[:, : slice_length(columns)].copy_(b[:, self.columns][:, columns])

    def collective(self) -> None:
        transports.all_gather_single(self._a_chunks.flatten(0, 1), self._a.local, group=self._across.group)
        transports.all_gather_single(self._b_chunks.flatten(0, 1), self._b.local, group=self._down.group)

    def copies(self) -> None:
        self._begin_pulls()
        self._end_pulls()

    def multiply(self) -> None:
        for peer in range(self._down.ranks):
            self._multiply_all_rows(peer)

    def overlapped(self) -> torch.Tensor:
        waits_a, waits_b = self._begin_pulls()
        rank, rows = self._down.rank, self._rows_of(self._across.rank)
        b = self.product.prepare(self._b.local[:, : slice_length(self._columns_of(rank))])
        self._multiply(self._a.local[: slice_length(rows)], b, rows, rank)
        for peer, wait in waits_a.items():
            wait()
            rows = self._rows_of(peer)
            self._multiply(self._a_chunks[peer, : slice_length(rows)], b, rows, rank)
        if waits_b:
            self._a_chunks[self._across.rank].copy_(self._a.local)
        for peer, wait in waits_b.items():
            wait()
            self._multiply_all_rows(peer)
        self._end_pulls()
        return self.c

    def _begin_pulls(self) -> tuple[dict[int, Wait], dict[int, Wait]]:
        """Pull chunks of A from the grid row and of B from the grid column; the waits by peer."""
        self._across.begin_pulls(self._a)
        self._down.begin_pulls(self._b)
        waits_a = _pull_from_all(self._across, self._a, self._a_chunks)
        return waits_a, _pull_from_all(self._down, self._b, self._b_chunks)

    def _end_pulls(self) -> None:
        self._across.end_pulls(self._a)
        self._down.end_pulls(self._b)

    def _rows_of(self, peer: int) -> slice:
        """The rows of this rank's block whose A a peer in the grid row holds."""
        return chunk_slice(self._height, self._a_chunk, peer)

    def _columns_of(self, peer: int) -> slice:
        """The columns of this rank's block whose B a peer in the grid column holds."""
        return chunk_slice(self._width, self._b_chunk, peer)

    def _multiply_all_rows(self, peer: int) -> None:
        """Multiply all rows of A with the columns of B that came from one peer."""
        b = self._b_chunks[peer][:, : slice_length(self._columns_of(peer))]
        rows = slice(0, self._height)
        self._multiply(self._a_chunks.flatten(0, 1)[rows], self.product.prepare(b), rows, peer)

    def _multiply(self, a: torch.Tensor, b: Any, rows: slice, peer: int) -> None:
        columns = self._columns_of(peer)
        if slice_length(rows) and slice_length(columns):
            self.product.gemm(a, b, out=self.c[rows, columns])


def _pull_from_all(transport: Transport, shared: transports.Shared, chunks: Sequence[torch.Tensor]) -> dict[int, Wait]:
    """Begin to copy every peer's `shared` to the chunk of its rank; the waits by peer, in the order of the copies."""
    peers = peer_order(transport.rank, transport.ranks)
    return {peer: transport.pull(shared, peer, chunks[peer]) for peer in peers}


ALL_GATHER, REDUCE_SCATTER, GRID = "all-gather", "reduce-scatter", "grid"
LAYOUTS = (ALL_GATHER, REDUCE_SCATTER, GRID)


def grid_shape(ranks: int) -> tuple[int, int]:
    """The rows and columns of the grid of ranks that is nearest to a square, with no more rows than columns."""
    rows = max(side for side in range(1, ranks + 1) if ranks % side == 0 and side * side <= ranks)
    return rows, ranks // rows


def scale_weakly(local: Problem, layout: str, ranks: int) -> Problem:
    """The problem whose part on each rank is `local`: the side grows along which the layout divides it."""
    if layout == ALL_GATHER:
        return local.resized(n=local.n * ranks)
    if layout == REDUCE_SCATTER:
        return local.resized(k=local.k * ranks)
    rows, columns = grid_shape(ranks)
    return local.resized(m=local.m * rows, n=local.n * columns)


def make_layout(name: str, problem: Problem, product: Product, device: str, min_elements: int | None = None) -> Layout:
    """One of LAYOUTS over all ranks of the default group, which must exist; every rank calls this.

    Raises ValueError for a problem without elements or products, and for fewer than two ranks.
    """
    if dist.get_world_size() < 2:
        raise ValueError(f"a layout divides a product among two ranks or more; there is {dist.get_world_size()}")
    options: dict[str, Any] = {"device": device, "min_elements": min_elements}
    if name == GRID:
        across, down = transports.connect_grid(*grid_shape(dist.get_world_size()), device)
        return Grid(across, down, problem, product, **options)
    kind = {ALL_GATHER: AllGather, REDUCE_SCATTER: ReduceScatter}[name]
    return kind(transports.connect(dist.group.WORLD, device), problem, product, **options)
