"""A GPU's streams: torch's current one, and the flags of each, by which the blocks of a launch wait for each other.

Every launch leaves its flags 0, and launches on one stream run one after another: so those of a stream share theirs,
and nobody has to fill them anew.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

import torch

LEAST = 1024  # ints that a stream is given, so that few sizes are kept
MOST_STREAMS = 64  # whose flags are cached; the least recently used ones go first


def stream_of(device: int) -> int:
    """The handle of torch's current stream on a GPU; `torch.cuda.current_stream` takes ten times as long."""
    return torch._C._cuda_getCurrentRawStream(device)


def flags_for(count: int, device: int, stream: int) -> torch.Tensor:
    """At least `count` int32 zeros on a GPU, for a launch on `stream`, its current stream, by its handle.

    They are that stream's: of two launches that may run at the same time, each has its own. In a CUDA graph, which may
    be replayed on any stream, each launch has its own too, set to 0 by the graph. What is returned must be kept until
    the kernel is launched, and no longer: memory goes back to torch in the stream's order. Any number of threads may
    call this.
    """
    if torch.cuda.is_current_stream_capturing():
        return torch.zeros(count, dtype=torch.int32, device=device)
    return _cached_flags(device, stream, max(LEAST, 1 << (count - 1).bit_length()))


@functools.lru_cache(maxsize=MOST_STREAMS)
def _cached_flags(device: int, stream: int, size: int) -> torch.Tensor:
    """Allocated by another thread: the allocations of this one may come from the private pool of a CUDA graph.

    `torch.compile(mode="reduce-overhead")` warms its graphs up in such a pool, without capturing, and raises an error
    if a tensor that it does not know stays there.
    """

    def allocate(current: torch.cuda.Stream) -> torch.Tensor:
        with torch.cuda.stream(current):
            return torch.zeros(size, dtype=torch.int32, device=device)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(allocate, torch.cuda.current_stream(device)).result()
