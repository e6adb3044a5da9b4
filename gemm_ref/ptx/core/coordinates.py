"""Linear numbers of threads and blocks, and their coordinates."""

from __future__ import annotations


def coordinates(linear, extent: tuple[int, int, int]) -> tuple:
    """x, y, z of a linear index, x fastest: the order in which threads form warps."""
    return linear % extent[0], linear // extent[0] % extent[1], linear // (extent[0] * extent[1])
