"""How others take the time of a call, which the experiment `timers` sets beside our ways (`experiments.bench.timers`).

Each is as one finds it in benchmarks, mistakes included: that is what the experiment shows.
"""

from __future__ import annotations

import time

import torch

from experiments.bench.kernel_names import kernels_of
from experiments.bench.timers import Timer, Work, elapsed_us
from experiments.records.rows import DO_BENCH, EVENTS, HOST, PROFILER


def profiler(work: Work) -> float:
    """Microseconds that the kernels of one call ran, by their own stamps (CUPTI), without what is between them."""
    return sum(kernel.time_range.elapsed_us() for kernel in kernels_of(work))


def do_bench(work: Work) -> float:
    """`triton.testing.do_bench`: events around calls after a memset that clears L2; the median, in microseconds."""
    from triton.testing import do_bench

    return 1e3 * do_bench(work, warmup=5, rep=20, return_mode="median")


def events(work: Work) -> float:
    """Microseconds between events around one call, for whose launch the GPU waits; nothing is flushed."""
    torch.cuda.synchronize()
    return elapsed_us(work)


def host_clock(work: Work) -> float:
    """Microseconds on the host from before one call until the GPU has ended it; nothing is flushed."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


TIMERS: dict[str, Timer] = {PROFILER: profiler, DO_BENCH: do_bench, EVENTS: events, HOST: host_clock}


def why_not(way: str) -> str:
    """Why a way cannot be used on this machine, which has a GPU; empty if it can."""
    if way not in TIMERS:
        return ""
    try:
        TIMERS[way](lambda: torch.zeros(1, device="cuda"))
    except (ImportError, RuntimeError) as error:
        return f"{way}: {error}"
    return ""
