"""The schedules on made-up GPUs whose copies come as late as they may: what does not wait for one computes with NaN.

Each rank is a thread. Kernels are done when they are called; a copy, when its arrival is waited for, or its stream, or
when a peer waits for the word that follows it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._C import _distributed_c10d as c10d
from torch.distributed import _symmetric_memory

import gemm_ref
from gemm_ref import Problem
from gemm_ref.distributed import transport
from gemm_ref.distributed.layouts import AllGather, Grid, Product, ReduceScatter
from gemm_ref.distributed.transport import CopyEngines
from tests.gemm_ref.distributed.in_ranks import in_torch

RANKS, HIGH, WIDE = 4, 2, 2
here = threading.local()


class Group:
    """Ranks that meet."""

    def __init__(self, members):
        self.members, self.barrier = list(members), threading.Barrier(len(members), timeout=20)
        self.buffers: dict[int, dict[int, torch.Tensor]] = {}
        self.words: dict[int, torch.Tensor] = {}
        self.streams: dict[int, list[Stream]] = {}

    def rendezvous(self, own):
        here.calls = getattr(here, "calls", 0) + 1
        self.buffers.setdefault(here.calls, {})[here.rank] = own
        self.words.setdefault(here.rank, torch.zeros(64, dtype=torch.int64))
        self.streams[here.rank] = here.streams
        self.barrier.wait()
        return Handle(self, [self.buffers[here.calls][member] for member in self.members])


class Handle:
    def __init__(self, group, buffers):
        self._group, self._buffers = group, buffers

    def get_buffer(self, rank, sizes, dtype):
        assert self._buffers[rank].shape == sizes and self._buffers[rank].dtype == dtype
        return self._buffers[rank]

    def barrier(self, channel, timeout_ms):
        assert timeout_ms > 0 == channel
        self._group.barrier.wait()

    def get_signal_pad(self, rank, sizes, dtype):
        assert dtype == torch.uint32 and sizes[0] % len(self._buffers) == 0
        return self._group.words[self._group.members[rank]][: sizes[0]]

    def wait_signal(self, rank, channel, timeout_ms):
        """Of each channel there is a word for every rank that signals."""
        words, place = self._group.words[here.rank], channel * len(self._buffers) + rank
        deadline = time.monotonic() + timeout_ms / 1e3
        while not words[place]:
            assert channel > 0 and time.monotonic() < deadline
            for stream in self._group.streams[self._group.members[rank]]:
                stream.finish()
            time.sleep(0)
        words[place] = 0


class Stream:
    """What is to be done, and waits to be waited for."""

    def __init__(self):
        self.waiting, self._lock = [], threading.RLock()
        here.streams = [*getattr(here, "streams", []), self]

    def wait_stream(self, other):
        other.finish()

    def finish(self, index=None):
        with self._lock:
            for place, act in enumerate(self.waiting[: None if index is None else index + 1]):
                self.waiting[place] = lambda: None
                act()


@contextlib.contextmanager
def on(stream):
    here.stream = stream
    yield


class Late(CopyEngines):
    def _copy(self, source, target):
        assert source.is_contiguous() and target.is_contiguous() and source.dtype == target.dtype
        self._stream.waiting.append(lambda: target.copy_(source))
        index = len(self._stream.waiting) - 1
        return lambda: self._stream.finish(index)


class Symmetric:
    @staticmethod
    def empty_strided_p2p(sizes, steps, dtype, device):
        assert device == torch.device("cuda", 0)
        return torch.empty_strided(sizes, steps, dtype=dtype).fill_(float("nan"))

    @staticmethod
    def stream_write_value32(words, offset, value):
        here.stream.waiting.append(lambda: words[offset].fill_(value))


@pytest.fixture
def gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(c10d, "_SymmetricMemory", Symmetric)
    monkeypatch.setattr(_symmetric_memory, "rendezvous", lambda own, group: group.rendezvous(own))
    monkeypatch.setattr(transport.dist, "get_rank", lambda group: group.members.index(here.rank))
    monkeypatch.setattr(transport.dist, "get_world_size", lambda group: len(group.members))


def on_all(name: str, problem: Problem) -> torch.Tensor:
    """C, put together from what each rank computes in its second call, after a first with other operands."""
    a, b = gemm_ref.make_inputs(problem, "integers")
    everyone = Group(range(RANKS))
    rows = [Group(range(i * WIDE, (i + 1) * WIDE)) for i in range(HIGH)]
    columns = [Group(range(j, RANKS, WIDE)) for j in range(WIDE)]
    c = torch.full((problem.m, problem.n), float("nan"))

    def compute(rank):
        here.rank, here.streams, product = rank, [], Product(in_torch)
        if name == "grid":
            found = Grid(Late(rows[rank // WIDE]), Late(columns[rank % WIDE]), problem, product, min_elements=1)
        else:
            kind = {"all-gather": AllGather, "reduce-scatter": ReduceScatter}[name]
            found = kind(Late(everyone), problem, product, min_elements=1)
        for factor in (2, 1):
            found.load(factor * a, b)
            found.c.fill_(float("nan"))
            c[found.rows, found.columns] = found.overlapped()

    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(compute, range(RANKS)))
    return c


@pytest.mark.parametrize("problem", (Problem(33, 31, 37), Problem(64, 48, 32)), ids=str)
@pytest.mark.parametrize("name", ("all-gather", "reduce-scatter", "grid"))
def test_nothing_is_multiplied_or_overwritten_before_its_copy(gpus, name, problem):
    a, b = gemm_ref.make_inputs(problem, "integers")
    assert torch.equal(on_all(name, problem), gemm_ref.gemm(a, b).float())
