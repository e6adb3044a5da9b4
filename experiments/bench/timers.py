"""Timers: microseconds of one call. MODES are the project's own on a GPU, and the others are how benchmarks take times.

- `cold`: operands that the L2 cache no longer holds. The contenders take turns on sets of A, B and C that add up to at
  least twice the cache (`Rotation`), and each call is given the next set.
- `warm`: the same set again, right after an untimed call on it.
- `graph`: a CUDA graph of several calls on one set, replayed: no launch from the host is part of the time.
- `layers`: a CUDA graph of LAYER_CALLS calls on as many sets, as a model's layers follow each other, replayed.

In `cold` and `warm` a time is that between two CUDA events on torch's current stream around one call. The GPU first
spins for as long as the host needs to put the call in the queue, so the time is the kernel's and not Python's. The
spin touches no memory: flushing the cache by overwriting a buffer instead would leave it full of lines that the timed
kernel must then write back.

The other four are taken as one finds them in benchmarks, mistakes included: the study `timers` compares them with ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
import torch

from experiments.bench.kernel_names import kernels_of
from experiments.records.rows import COLD, DO_BENCH, EVENTS, GRAPH, HOST, LAYERS, OWN_MODES, PROFILER, WARM, WAYS
from gemm_ref.launch import cdiv

Work = Callable[[], object]  # one call of what is timed, with its operands bound
AnySet = TypeVar("AnySet")
Timer = Callable[[Work], float]  # runs it once and returns microseconds

# The threads of a BLAS go on spinning after a call (OpenBLAS for 2^26 cycles) and would take the cores of the next.
_IDLE_S = 0.05
_GRAPH_US = 200.0  # a graph replays about this much work, so that the events' resolution is lost in it
_MAX_GRAPH_CALLS = 100
LAYER_CALLS = 20  # in a graph of LAYERS


def cpu_timer(work: Work) -> float:
    """Wall-clock microseconds of one call, after a pause that lets the threads of the call before it go idle."""
    time.sleep(_IDLE_S)
    return _wall_us(work)


def _wall_us(work: Work) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e6


def launch_timer(work: Work, calls: int) -> float:
    """Host microseconds per call of so many calls in a row, started while the GPU is idle; its queue never fills."""
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(calls):
        work()
    return (time.perf_counter_ns() - start) / calls / 1e3


def elapsed_us(work: Work, calls: int = 1) -> float:
    """Microseconds between two events around so many calls that follow each other."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def back_to_back(work: Work, seconds: float, pause_s: float = 0.0) -> float:
    """Microseconds per call of as many calls in a row as take about `seconds`, after a pause that lets power fall."""
    if pause_s:
        time.sleep(pause_s)
    calls = max(1, round(seconds * 1e6 / elapsed_us(work)))
    return elapsed_us(work, calls) / calls


class Turns(Generic[AnySet]):
    """Sets of what a call is given, which take turns."""

    def __init__(self, sets: Sequence[AnySet]) -> None:
        self._sets = sets
        self._next = 0

    def __len__(self) -> int:
        return len(self._sets)

    def take(self) -> AnySet:
        """The next set."""
        self._next = (self._next + 1) % len(self._sets)
        return self._sets[self._next]


def count_sets(set_bytes: int, cache_bytes: int, least: int = 2) -> int:
    """How many sets of so many bytes add up to `cache_bytes`, and at least `least`; one for `cache_bytes` 0."""
    return max(least, cdiv(cache_bytes, max(1, set_bytes))) if cache_bytes else 1


class Rotation(Turns[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    """Sets of operands with the same values that take turns, so that none is in the L2 cache when its turn comes.

    a (M, K) and b (K, N) are copied to `device` until there are `least` sets and they add up to `cache_bytes`; each set
    has its own C (M, N) of `out_dtype`. There is one set for `cache_bytes` 0.
    """

    def __init__(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        cache_bytes: int,
        out_dtype: torch.dtype | None = None,
        device: str = "cuda",
        least: int = 2,
    ) -> None:
        shape, dtype = (a.shape[0], b.shape[1]), out_dtype or a.dtype
        set_bytes = a.nbytes + b.nbytes + shape[0] * shape[1] * dtype.itemsize
        count = count_sets(set_bytes, cache_bytes, least)
        a, b = a.to(device), b.to(device)
        # Separate tensors, since a slice of a large one would start at an address that is no multiple of 16 bytes.
        pairs = [(a, b), *((a.clone(), b.clone()) for _ in range(count - 1))]
        super().__init__([(*pair, torch.empty(shape, dtype=dtype, device=device)) for pair in pairs])


def cache_bytes(mode: str) -> int:
    """What the sets of a `Rotation` must add up to on the current GPU: twice its L2 cache for modes with a cold one."""
    if mode not in (COLD, LAYERS, PROFILER):
        return 0
    return 2 * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size


class CudaTimer:
    """Microseconds of one call on the GPU between two events, its launch hidden; `warm` makes an untimed call first.

    How long the GPU spins is remembered for each work: twice what the host took the last time.
    """

    _MIN_COVER_US, _MAX_COVER_US = 50.0, 5000.0  # a host that takes longer was interrupted, and is not waited for

    def __init__(self, mode: str = COLD) -> None:
        if mode not in (COLD, WARM):
            raise ValueError(f"CudaTimer times {COLD} and {WARM} calls, not {mode!r}: GraphTimer is for {GRAPH}")
        self._before = mode == WARM
        self._covers_us: dict[Work, float] = {}
        self._cycles_per_us = self._calibrate()

    def __call__(self, work: Work) -> float:
        cover_us = self._covers_us.get(work, self._MIN_COVER_US)
        elapsed_us, host_us = self._elapsed(work, cover_us)
        while host_us > cover_us < self._MAX_COVER_US:
            cover_us *= 2
            elapsed_us, host_us = self._elapsed(work, cover_us)
        # Not what was needed at most: one interruption would make every later call of a problem wait for milliseconds.
        self._covers_us[work] = min(max(2 * host_us, self._MIN_COVER_US), self._MAX_COVER_US)
        return elapsed_us

    @staticmethod
    def _calibrate() -> float:
        """Cycles of the GPU's spin in a microsecond."""
        cycles = 1_000_000
        return cycles / min(elapsed_us(lambda: torch.cuda._sleep(cycles)) for _ in range(3))

    def _elapsed(self, work: Work, cover_us: float) -> tuple[float, float]:
        """Microseconds between the events around `work`, and those that the host took to put it all in the queue.

        Before the first event the GPU spins for `cover_us`.
        """
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(int(cover_us * self._cycles_per_us))
        start = time.perf_counter()
        if self._before:
            work()
        begin.record()
        work()
        end.record()
        host_us = (time.perf_counter() - start) * 1e6
        end.synchronize()
        return begin.elapsed_time(end) * 1e3, host_us


def events_us() -> float:
    """What two events around nothing are apart: part of every `cold` and `warm` time."""
    timer = CudaTimer()
    return float(np.median([timer(lambda: None) for _ in range(50)]))


class GraphTimer:
    """Microseconds of one call, from the replay of a CUDA graph of several; a graph is captured once for each work.

    calls: how many; 0 stands for as many as take _GRAPH_US. mode: whether an untimed replay comes first.
    """

    def __init__(self, calls: int = 0, mode: str = WARM) -> None:
        self._timer, self._calls = CudaTimer(mode), calls
        self._graphs: dict[Work, tuple[torch.cuda.CUDAGraph, int]] = {}

    def __call__(self, work: Work) -> float:
        if work not in self._graphs:
            self._graphs[work] = self._capture(work)
        graph, calls = self._graphs[work]
        return self._timer(graph.replay) / calls

    def _capture(self, work: Work) -> tuple[torch.cuda.CUDAGraph, int]:
        once_us = self._timer(work)  # this call also compiles it
        calls = self._calls or int(min(max(_GRAPH_US / once_us, 1), _MAX_GRAPH_CALLS))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                work()
        return graph, calls


def profiler_us(work: Work) -> float:
    """Microseconds that the kernels of one call ran, by their own time stamps (CUPTI), without gaps between them."""
    return sum(kernel.time_range.elapsed_us() for kernel in kernels_of(work))


def do_bench_us(work: Work) -> float:
    """`triton.testing.do_bench`: events around calls after a memset that clears L2; the median, in microseconds."""
    from triton.testing import do_bench

    return 1e3 * do_bench(work, warmup=5, rep=20, return_mode="median")


def open_events_us(work: Work) -> float:
    """Microseconds between events around one call, whose launch the GPU waits for; nothing is flushed."""
    torch.cuda.synchronize()
    return elapsed_us(work)


def host_clock_us(work: Work) -> float:
    """Microseconds on the host from before one call until the GPU has finished it; nothing is flushed."""
    torch.cuda.synchronize()

    def finished() -> None:
        work()
        torch.cuda.synchronize()

    return _wall_us(finished)


OF_OTHERS: dict[str, Timer] = {
    PROFILER: profiler_us,
    DO_BENCH: do_bench_us,
    EVENTS: open_events_us,
    HOST: host_clock_us,
}


def make_timer(mode: str) -> Timer:
    """A timer of one of WAYS or OWN_MODES for the current GPU. Raises ValueError for another name."""
    if mode not in (*WAYS, *OWN_MODES):
        raise ValueError(f"unknown timing mode {mode!r}: there are {', '.join(OWN_MODES)}")
    if mode in OF_OTHERS:
        return OF_OTHERS[mode]
    if mode == LAYERS:
        return GraphTimer(LAYER_CALLS, COLD)
    return GraphTimer() if mode == GRAPH else CudaTimer(mode)


def missing_for(mode: str) -> str:
    """What keeps a timer from being used on this machine, which has a GPU; empty if nothing does."""
    try:
        if mode in OF_OTHERS:
            OF_OTHERS[mode](lambda: torch.zeros(1, device="cuda"))
    except (ImportError, RuntimeError) as error:
        return f"{mode}: {error}"
    return ""
