"""Which share of the bytes that miss L1 comes from device memory: what blocks that run together share is read once."""

from __future__ import annotations

import math

from gemm_ref.clock.sample import Sample
from gemm_ref.launch import cdiv
from gemm_ref.ptx.count.sectors import SECTOR

_USABLE = 0.8  # of L2, for operands: C and what is evicted early take the rest (an assumption)


def memory_share(sample: Sample, together: int, l2_bytes: float) -> float:
    """The share of bytes past L1 that L2 has to fetch from device memory, while so many blocks run together.

    A block reads a panel of each of its two largest arrays. Blocks that run together lie side by side: along the
    dimension of the grid that has a block for each panel of one array, or else in a square. What they read is in L2
    while they do; where both arrays fit there, each byte is fetched once in all.
    """
    panels = [(len(sectors) * SECTOR, sample.sizes[name]) for name, sectors in sample.sectors.items() if sectors]
    panels = sorted(panels, reverse=True)[:2]
    if not panels:
        return 1.0
    blocks = math.prod(sample.launch.grid)
    asked = blocks * sum(own for own, _ in panels)
    if sum(size for _, size in panels) <= _USABLE * l2_bytes or len(panels) == 1:
        return min(1.0, sum(size for _, size in panels) / asked)
    counts = [max(1, cdiv(size, own)) for own, size in panels]
    together = min(together, blocks)
    width = min(together, sample.launch.grid[0]) if sample.launch.grid[1] > 1 else math.isqrt(together)
    other = cdiv(together, max(1, width))
    fast, slow = (0, 1) if abs(counts[0] - sample.launch.grid[0]) <= abs(counts[1] - sample.launch.grid[0]) else (1, 0)
    read = min(width, counts[fast]) * panels[fast][0] + min(other, counts[slow]) * panels[slow][0]
    return min(1.0, read / (together * sum(own for own, _ in panels)))
