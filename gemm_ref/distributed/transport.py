"""How a rank reaches the memory of its peers: by copy engines on GPUs, by messages between processes on a CPU."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

BARRIER_MS = 40_000  # after which a GPU gives up on a peer

# torch 2.13 has new names for both, and warns of the old ones.
all_gather_single: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# Waits for a copy that was begun: on a GPU it makes the current stream wait, on a CPU this process.
Wait = Callable[[], object]


@dataclass(frozen=True)
class Shared:
    """Memory of one shape on every rank of a group, which all of them can reach."""

    local: torch.Tensor
    mapped: Sequence[torch.Tensor] = ()  # every rank's, where it can be addressed
    handle: Any = None


class Transport(abc.ABC):
    """Copies between the ranks of a group; all ranks allocate shared memory together, with the same shape.

    Either each rank pulls what it needs between `begin_pulls` and `end_pulls`, or it opens its memory by
    `accept_pushes` and waits for each arrival. On a GPU every call only enqueues work: none makes the host wait.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.rank, self.ranks = group, dist.get_rank(group), dist.get_world_size(group)

    @abc.abstractmethod
    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Shared:
        """Allocate memory of one shape on all ranks, uninitialised."""

    @abc.abstractmethod
    def begin_pulls(self, shared: Shared) -> None:
        """Let peers pull what was written to `shared` before this call."""

    @abc.abstractmethod
    def pull(self, shared: Shared, peer: int, out: torch.Tensor) -> Wait:
        """Begin to copy the peer's `shared` to `out`, of the same shape."""

    @abc.abstractmethod
    def end_pulls(self, shared: Shared) -> None:
        """Wait for all pulls of all ranks since `begin_pulls`."""

    @abc.abstractmethod
    def accept_pushes(self, shared: Shared, peer: int) -> Sequence[Wait]:
        """Let one peer push to every slot of `shared`, whose contents are no longer read; returns a wait per slot.

        All ranks call this, each for the rank that pushes to it.
        """

    @abc.abstractmethod
    def push(self, part: torch.Tensor, shared: Shared, peer: int, slot: int) -> Wait:
        """Begin to copy `part` to a slot of the peer's `shared`, in order; after the wait `part` may be overwritten."""


class Messages(Transport):
    """Between processes, each with its own memory: the peer of a pull, and the rank of a push, sends a message."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self._pending: list[Wait] = []

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Shared:
        return Shared(torch.empty(tuple(shape), dtype=dtype))

    def begin_pulls(self, shared: Shared) -> None:
        peers = [peer for peer in range(self.ranks) if peer != self.rank]
        self._pending += [_wait_once(dist.isend(shared.local, group=self.group, group_dst=peer)) for peer in peers]

    def pull(self, shared: Shared, peer: int, out: torch.Tensor) -> Wait:
        self._pending.append(_wait_once(dist.irecv(out, group=self.group, group_src=peer)))
        return self._pending[-1]

    def end_pulls(self, shared: Shared) -> None:
        for wait in self._pending:
            wait()
        self._pending.clear()

    def accept_pushes(self, shared: Shared, peer: int) -> Sequence[Wait]:
        return [_wait_once(dist.irecv(slot, group=self.group, group_src=peer)) for slot in shared.local]

    def push(self, part: torch.Tensor, shared: Shared, peer: int, slot: int) -> Wait:
        return _wait_once(dist.isend(part, group=self.group, group_dst=peer))


def _wait_once(work: Any) -> Wait:
    """torch's wait for a message, which may be called once only, as a function that may be called again."""
    return functools.cache(work.wait)


class CopyEngines(Transport):
    """Between the GPUs of one host, through torch's symmetric memory: peers' memory is mapped, and copies take no SM.

    Copies run on their own stream, which launches no kernel, because a kernel that fills every SM would delay it: after
    a push the stream itself writes a word to the peer's memory. Barriers and waits for such a word, each a kernel of
    one block, are on the current stream, between products.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self._stream = torch.cuda.Stream()

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Shared:
        from torch._C._distributed_c10d import _SymmetricMemory
        from torch.distributed._symmetric_memory import rendezvous

        device = torch.device("cuda", torch.cuda.current_device())
        # As torch takes workspaces: an allocation by itself, because `get_buffer` counts from its start.
        strides = torch.empty(tuple(shape), device="meta").stride()
        local = _SymmetricMemory.empty_strided_p2p(tuple(shape), strides, dtype, device)
        handle = rendezvous(local, self.group)
        return Shared(local, [handle.get_buffer(peer, local.shape, dtype) for peer in range(self.ranks)], handle)

    def begin_pulls(self, shared: Shared) -> None:
        shared.handle.barrier(channel=0, timeout_ms=BARRIER_MS)
        self._stream.wait_stream(torch.cuda.current_stream())

    def pull(self, shared: Shared, peer: int, out: torch.Tensor) -> Wait:
        return self._copy(shared.mapped[peer], out)

    def end_pulls(self, shared: Shared) -> None:
        torch.cuda.current_stream().wait_stream(self._stream)
        shared.handle.barrier(channel=0, timeout_ms=BARRIER_MS)

    def accept_pushes(self, shared: Shared, peer: int) -> Sequence[Wait]:
        self.begin_pulls(shared)
        # Each wait resets its word, so that the next push to the slot can set it again.
        channels = [_channel(slot) for slot in range(len(shared.local))]
        return [functools.partial(shared.handle.wait_signal, peer, channel, BARRIER_MS) for channel in channels]

    def push(self, part: torch.Tensor, shared: Shared, peer: int, slot: int) -> Wait:
        self._stream.wait_stream(torch.cuda.current_stream())  # until `part` is computed
        wait = self._copy(part, shared.mapped[peer][slot])
        self._signal(shared, peer, slot)
        return wait

    def _signal(self, shared: Shared, peer: int, slot: int) -> None:
        """Make the copy stream write the word that the peer waits for, after the copies before it in the stream."""
        from torch._C._distributed_c10d import _SymmetricMemory

        # Words for barriers and signals: each channel has one for every rank that may signal.
        words = shared.handle.get_signal_pad(peer, ((_channel(slot) + 1) * self.ranks,), torch.uint32)
        with torch.cuda.stream(self._stream):
            _SymmetricMemory.stream_write_value32(words, _channel(slot) * self.ranks + self.rank, 1)

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> Wait:
        done = torch.cuda.Event()
        with torch.cuda.stream(self._stream):
            target.copy_(source)  # both contiguous and of one dtype: a copy engine does it, not a kernel
            done.record()
        return done.wait


def _channel(slot: int) -> int:
    """The channel that signals the arrival at a slot; channel 0 belongs to the barriers."""
    return slot + 1


@functools.cache
def connect(group: dist.ProcessGroup, device: str) -> Transport:
    """The transport for tensors on a device, "cpu" or "cuda"."""
    return CopyEngines(group) if device == "cuda" else Messages(group)


@functools.cache
def connect_grid(rows: int, columns: int, device: str) -> tuple[Transport, Transport]:
    """The transports within this rank's row and within its column, of a grid of all ranks in row-major order."""
    rank = dist.get_rank()
    row_groups = [dist.new_group([i * columns + j for j in range(columns)]) for i in range(rows)]
    column_groups = [dist.new_group([i * columns + j for i in range(rows)]) for j in range(columns)]
    return connect(row_groups[rank // columns], device), connect(column_groups[rank % columns], device)
