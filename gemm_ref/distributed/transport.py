"""How a rank reaches the memory of its peers: by copy engines on GPUs, by messages between processes on a CPU.

Both serve one schedule. Memory that peers may reach is allocated by all of them together (`empty`). What is in it is
`offer`ed, each rank `pull`s what it needs, and `close` ends that; or it is made free by `accept`, and then a peer
`push`es to its places, whose arrivals are waited for one by one. On a GPU all of these are put into queues, and none
waits on the host.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed as dist

BARRIER_MS = 40_000  # after which a GPU gives up on a peer

# torch 2.13 has new names for both, and warns of the old ones.
all_gather_single: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Arrival(Protocol):
    """A copy that was begun."""

    def wait(self) -> object:
        """What is called after this sees the copy: on a GPU in the current stream, on a CPU in this process."""


@dataclass(frozen=True)
class Shared:
    """Memory of one shape on every rank of a group, which all of them may reach."""

    own: torch.Tensor
    of: Sequence[torch.Tensor] = ()  # that of each rank, where it can be addressed
    handle: Any = None


class Transport(Protocol):
    """What a schedule needs of the ranks of a group."""

    group: dist.ProcessGroup
    rank: int
    ranks: int

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Shared:
        """Memory that peers may reach; all ranks of the group call it, with the same shape."""

    def offer(self, shared: Shared) -> None:
        """Let peers pull what was written to `shared` before this call."""

    def pull(self, shared: Shared, peer: int, out: torch.Tensor) -> Arrival:
        """Begin to copy the peer's `shared` to `out`, of the same shape."""

    def close(self, shared: Shared) -> None:
        """What is called after this, on any rank, sees all copies of all ranks since `offer`."""

    def accept(self, shared: Shared, peer: int) -> Sequence[Arrival]:
        """Let one peer push to every place of `shared`, whose own contents are read no more; the arrival at each.

        All ranks call this, each for the one that pushes to it.
        """

    def push(self, part: torch.Tensor, shared: Shared, peer: int, place: int) -> Arrival:
        """Begin to copy `part` to the peer's `shared` [place], in order; it may be overwritten after the arrival."""


class Messages:
    """Between processes, each with memory of its own: a pull is the peer's message, and a push one's own."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.rank, self.ranks = group, dist.get_rank(group), dist.get_world_size(group)
        self._begun: list[Arrival] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Shared:
        return Shared(torch.empty(tuple(shape), dtype=dtype))

    def offer(self, shared: Shared) -> None:
        for peer in self._peers():
            self._kept(dist.isend(shared.own, group=self.group, group_dst=peer))

    def pull(self, shared: Shared, peer: int, out: torch.Tensor) -> Arrival:
        return self._kept(dist.irecv(out, group=self.group, group_src=peer))

    def close(self, shared: Shared) -> None:
        for each in self._begun:
            each.wait()
        self._begun.clear()

    def accept(self, shared: Shared, peer: int) -> Sequence[Arrival]:
        return [_Once(dist.irecv(place, group=self.group, group_src=peer)) for place in shared.own]

    def push(self, part: torch.Tensor, shared: Shared, peer: int, place: int) -> Arrival:
        return _Once(dist.isend(part, group=self.group, group_dst=peer))

    def _peers(self) -> list[int]:
        return [peer for peer in range(self.ranks) if peer != self.rank]

    def _kept(self, begun: Any) -> Arrival:
        self._begun.append(_Once(begun))
        return self._begun[-1]


@dataclass
class _Once:
    """A message that may be waited for more than once."""

    work: Any
    over: bool = False

    def wait(self) -> None:
        if not self.over:
            self.work.wait()
            self.over = True


@dataclass
class CopyEngines:
    """Between the GPUs of one host, through torch's symmetric memory: peers' memory is mapped, and copies take no SM.

    Copies run on a stream of their own. Nothing there is a kernel, since one that fills every SM would keep it waiting:
    what was pushed is told to the peer by the stream itself, which writes a word to the peer's memory. Barriers and
    waits for such a word, a kernel of one block each, are on the current stream, between products.
    """

    group: dist.ProcessGroup
    rank: int = field(init=False)
    ranks: int = field(init=False)

    def __post_init__(self) -> None:
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self._stream = torch.cuda.Stream()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Shared:
        from torch._C._distributed_c10d import _SymmetricMemory
        from torch.distributed._symmetric_memory import rendezvous

        device = torch.device("cuda", torch.cuda.current_device())
        # As torch takes workspaces: an allocation by itself. `get_buffer` counts from its start.
        steps = torch.empty(tuple(shape), device="meta").stride()
        own = _SymmetricMemory.empty_strided_p2p(tuple(shape), steps, dtype, device)
        handle = rendezvous(own, self.group)
        return Shared(own, [handle.get_buffer(peer, own.shape, dtype) for peer in range(self.ranks)], handle)

    def offer(self, shared: Shared) -> None:
        shared.handle.barrier(channel=0, timeout_ms=BARRIER_MS)
        self._stream.wait_stream(torch.cuda.current_stream())

    def pull(self, shared: Shared, peer: int, out: torch.Tensor) -> Arrival:
        return self._copy(shared.of[peer], out)

    def close(self, shared: Shared) -> None:
        torch.cuda.current_stream().wait_stream(self._stream)
        shared.handle.barrier(channel=0, timeout_ms=BARRIER_MS)

    def accept(self, shared: Shared, peer: int) -> Sequence[Arrival]:
        self.offer(shared)
        return [_Told(shared.handle, peer, _channel(place)) for place in range(len(shared.own))]

    def push(self, part: torch.Tensor, shared: Shared, peer: int, place: int) -> Arrival:
        self._stream.wait_stream(torch.cuda.current_stream())  # that computes the part
        done = self._copy(part, shared.of[peer][place])
        self._tell(shared, peer, place)
        return done

    def _tell(self, shared: Shared, peer: int, place: int) -> None:
        """Have the stream write where the peer waits for this place, once what is before it in the stream is done."""
        from torch._C._distributed_c10d import _SymmetricMemory

        # Words for barriers and signals: of each channel one for every rank that may signal.
        words = shared.handle.get_signal_pad(peer, ((_channel(place) + 1) * self.ranks,), torch.uint32)
        with torch.cuda.stream(self._stream):
            _SymmetricMemory.stream_write_value32(words, _channel(place) * self.ranks + self.rank, 1)

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> Arrival:
        done = torch.cuda.Event()
        with torch.cuda.stream(self._stream):
            target.copy_(source)  # both contiguous and of one dtype: a copy, and no kernel
            done.record()
        return done


def _channel(place: int) -> int:
    """By which the arrival at a place is told; 0 is that of the barriers."""
    return place + 1


@dataclass(frozen=True)
class _Told:
    """A word in this GPU's memory that a peer writes once; whoever waits for it resets it."""

    handle: Any
    peer: int
    channel: int

    def wait(self) -> None:
        self.handle.wait_signal(self.peer, self.channel, BARRIER_MS)


@functools.cache
def connect(group: dist.ProcessGroup, device: str) -> Transport:
    """The transport for tensors on a device, "cpu" or "cuda"."""
    return CopyEngines(group) if device == "cuda" else Messages(group)


@functools.cache
def grid(high: int, wide: int, device: str) -> tuple[Transport, Transport]:
    """Of a grid of all ranks, row by row: the transports within this rank's row, and within its column."""
    rank = dist.get_rank()
    rows = [dist.new_group([i * wide + j for j in range(wide)]) for i in range(high)]
    columns = [dist.new_group([i * wide + j for i in range(high)]) for j in range(wide)]
    return connect(rows[rank // wide], device), connect(columns[rank % wide], device)
