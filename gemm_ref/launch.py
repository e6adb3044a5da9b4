"""A launch of a kernel, as both machines take it: how many blocks of how many threads, and what they are given."""

from __future__ import annotations

import functools
from dataclasses import dataclass

REFERENCE_SMS = 132  # multiprocessors of the GPU that the reference GPU stands for, an H200


def cdiv(a: int, b: int) -> int:
    """How many tiles of size `b` cover `a` elements (0 for a = 0)."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The smallest multiple of b that is at least a."""
    return cdiv(a, b) * b


@dataclass(frozen=True)
class Launch:
    """A CUDA launch: `grid` and `block` as (x, y, z), dynamic shared memory in bytes.

    `then` is the launch of a second kernel that finishes the work: the first writes up to `partials` floats of
    device memory, sums of the `parts` that K or the tiles are divided into, and the second adds them. `partly` names
    the matrices of which it leaves a part to the other launch. Where `shared_tiles` of
    the tiles are shared, the kernel adds them itself, and its blocks wait for each other by `flags`, words that are 0
    before and after. `cluster` is how many neighbouring blocks along x, y
    and z make up a cluster. A kernel that is launched `early` may start before the one in front of it has ended, where
    the GPU can, and waits for it by itself. `loaders` of a block's threads load for the others, and do not multiply.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    partials: int = 0
    flags: int = 0
    shared_tiles: int = 0
    parts: int = 0
    partly: tuple[str, ...] = ()
    then: Launch | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)
    loaders: int = 0
    early: bool = False

    @functools.cached_property  # the reference GPU asks at each access to memory
    def threads(self) -> int:
        """Threads in one block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def num_warps(self) -> int:
        """Warps in one block: what the Triton and Gluon twins are given as `num_warps`."""
        return cdiv(self.threads, 32)
