"""Which share of the bytes that miss L1 comes from device memory: what blocks that run together share is read once."""

from __future__ import annotations

import math

from gemm_ref.clock.sample import Sample
from gemm_ref.launch import cdiv
from gemm_ref.ptx.count.sectors import SECTOR

_USABLE = 0.8  # of L2, for operands: C and what is evicted early take the rest (an assumption)


def memory_share(sample: Sample, together: int, scale: float, l2_bytes: float) -> float:
    """The share of bytes past L1 that L2 has to fetch from device memory, while so many blocks run together.

    A block reads a panel of each of its two largest arrays, which are `scale` times as large as in the sample. Blocks
    that run together lie side by side: along the dimension of the grid that has a block for each panel of one array,
    or else in a square. What they read is in L2 while they do; where both arrays fit there, each byte is fetched once.
    """
    panels = [(len(sectors) * SECTOR, sample.sizes[name]) for name, sectors in sample.sectors.items() if sectors]
    panels = sorted(panels, reverse=True)[:2]
    if not panels:
        return 1.0
    blocks = math.prod(sample.launch.grid)
    asked = sum(own for own, _ in panels)
    if scale * sum(size for _, size in panels) <= _USABLE * l2_bytes or len(panels) == 1:
        return min(1.0, sum(size for _, size in panels) / (blocks * asked))
    first, second = (max(1, cdiv(size, own)) for own, size in panels)
    together = min(together, blocks)
    width, height, _ = sample.launch.grid
    if height > 1:  # x is along the array with about so many panels
        along_first = abs(first - width) <= abs(second - width)
        fast = min(width, together)
    else:
        along_first, fast = True, max(math.isqrt(together), cdiv(together, second))
    slow = cdiv(together, fast)
    across = (fast, slow) if along_first else (slow, fast)
    read = sum(min(count, of) * own for count, of, (own, _) in zip(across, (first, second), panels, strict=True))
    return min(1.0, read / (together * asked))


def least_us(sample: Sample, scale: float, bytes_per_us: float) -> float:
    """The microseconds in which device memory gives each byte of the arrays that a kernel reads, none of it cached."""
    read = sum(sample.sizes[name] for name, sectors in sample.sectors.items() if sectors)
    return scale * read / bytes_per_us
