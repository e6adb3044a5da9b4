"""The counts of a kernel: one for each access, or kind of arithmetic, of each source line."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

from gemm_ref.ptx.count.banks import WORD
from gemm_ref.ptx.count.sectors import WARP

WRITTEN, COMPILED = "written", "compiled"  # views: the PTX, and what ptxas made of it
ONCE = "once"  # the space of the distinct global sectors of a launch: each is counted on its first access
_FLOPS = {"fma": 2, "mad": 2, "add": 1, "sub": 1, "mul": 1}


@dataclass(frozen=True)
class Count:
    """One access, or kind of arithmetic, of one source line, summed over the launch."""

    view: str  # WRITTEN or COMPILED
    launch: int  # the number of the launch, from 1
    file: str
    line: int
    op: str  # the instruction's name, in PTX or in machine code
    space: str  # global, shared, local, ONCE, or empty for arithmetic
    array: str  # the name of the tensor or `__shared__` array that is accessed; empty if it has none
    kind: str  # load, store, atomic; async load and async store, the two sides of a cp.async; or flop
    size: int  # bytes per lane
    requests: int = 0  # instructions of a warp with any lane active
    lanes: int = 0
    sectors: int = 0  # of 32 bytes
    wavefronts: int = 0  # of shared memory
    ideal: int = 0  # wavefronts without bank conflicts
    flop: int = 0
    spills: int = 0  # compiled: instructions that ptxas added to this launch's kernel to keep registers in local memory
    unmatched: int = 0  # compiled: bytes by which this launch's accesses of this space and kind differ from the written
    # Where each lane's bytes begin, in its array of global memory or in the block's shared memory, in the last request
    # of those that take most beyond what they would in the best place; None for a lane that takes no part.
    offsets: tuple[int | None, ...] = ()

    @property
    def words(self) -> tuple[int | None, ...]:
        """Of shared memory, `offsets` in words of 4 bytes."""
        return tuple(None if at is None else at // WORD for at in self.offsets) if self.space == "shared" else ()


@functools.cache
def flops_of(name: str) -> int:
    """Return the floating-point operations per lane of an instruction: 2 for a multiply-add, 0 for other instructions.

    A matrix product m x n x k has 2 m n k, shared by the 32 lanes of its warp, or the 128 of a warp group.
    """
    parts = name.split(".")
    if parts[0] == "wgmma" and "mma_async" in parts or parts[0] in ("mma", "wmma") and "mma" in parts:
        shape = next(sizes for part in parts if (sizes := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", part)))
        lanes = 4 * WARP if parts[0] == "wgmma" else WARP
        return 2 * math.prod(map(int, shape.groups())) // lanes
    return _FLOPS.get(parts[0], 0) if parts[-1] in ("f16", "f32", "f64") else 0


def sort_key(count: Count) -> tuple:
    """Return the key by which counts are sorted."""
    return count.launch, count.view != WRITTEN, count.file, count.line, count.op, count.array, count.kind


def unmatched_bytes(found: list[Count]) -> dict[tuple[int, str, str], int]:
    """Return the bytes that lanes access as compiled minus as written, for each launch, space and kind."""
    off: dict[tuple[int, str, str], int] = {}
    for count in found:
        key = (count.launch, count.space, count.kind)
        sign = 1 if count.view == COMPILED else -1
        off[key] = off.get(key, 0) + sign * count.size * count.lanes
    return off
