"""The row of memory.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class AccessRow(Row):
    """What one source line of a kernel asks of memory by one kind of access; a kernel has many such rows.

    All numbers are sums over the launch. `space` once: the distinct sectors of a tensor that the launch touches at all.
    """

    KEY: ClassVar[tuple[str, ...]] = Row.KEY  # a kernel is counted whole: its lines may have moved since the last time
    view: str = ""  # written: as the PTX says; compiled: with the widths of the machine code
    launch: int = 0  # of the kernels that one call starts, from 1
    file: str = ""
    line: int = 0
    op: str = ""  # the instruction, in PTX or in machine code
    space: str = ""  # global, shared, local, once; empty for arithmetic
    array: str = ""  # a tensor's name, or that of a shared array where the kernel names it
    kind: str = ""  # load, store, async load and async store (the sides of a cp.async), atomic; flop
    lane_bytes: int = 0
    requests: int = 0  # of a warp
    lanes: int = 0
    sectors: int = 0  # of 32 bytes
    wavefronts: int = 0
    ideal: int = 0  # wavefronts without bank conflicts
    flop: int = 0
    spills: int = 0  # compiled: instructions that keep registers in local memory, in the launch's kernel
    unmatched: int = 0  # compiled: bytes asked for beyond the written ones by all of the launch's accesses of this kind
    words: str = ""  # shared: the first word of each lane, - for one that takes no part, in the worst request
