"""The row of instructions.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class InstructionRow(Row):
    """One kernel as machine code. The counts are of one trip through its main loop, for one thread."""

    KEY: ClassVar[tuple[str, ...]] = (*Row.KEY, "arch")
    arch: str  # "sm_90a"
    registers: int | None = None  # of a thread
    stack_bytes: int | None = None  # of a thread, in local memory
    spill_bytes: int | None = None  # of a thread: what all loads and stores of local memory in the text move
    shared_bytes: int | None = None  # of a block, static and dynamic
    threads: int | None = None  # of a block
    blocks_per_sm: int | None = None  # that fit a multiprocessor at once, and
    occupancy: float | None = None  # the share of its warps that they fill
    limited_by: str = ""  # what runs out first, with commas
    instructions: int | None = None  # in the trip; the columns below are parts of it, as in `gemm_ref.sass.mix`
    ffma: int | None = None
    ffma2: int | None = None
    mma: int | None = None
    lds_32: int | None = None
    lds_64: int | None = None
    lds_128: int | None = None
    ldsm: int | None = None
    sts_32: int | None = None
    sts_64: int | None = None
    sts_128: int | None = None
    stsm: int | None = None
    ldg_32: int | None = None
    ldg_64: int | None = None
    ldg_128: int | None = None
    ldgsts_32: int | None = None
    ldgsts_64: int | None = None
    ldgsts_128: int | None = None
    stg: int | None = None
    integer: int | None = None
    barrier: int | None = None
    control: int | None = None
    spill: int | None = None
    other: int | None = None
    flop_per_trip: float | None = None
    k_per_trip: float | None = None  # steps along K
    ffma_share: float | None = None  # of the instructions, FFMA2 and MMA with it
    integer_share: float | None = None
    ffma_per_lds_byte: float | None = None  # multiply-adds a byte that the thread gets from shared memory
    even_reads: int | None = None  # of registers with even numbers, where the trip has FFMA and on sm_90a alone,
    odd_reads: int | None = None  # and with odd ones
    port_clocks: int | None = None  # the least of a scheduler for one warp's trip, as in `gemm_ref.sass.ports`
    clocks: float | None = None  # what it takes, of fp32 on sm_90a, as `gemm_ref.clock.loop` executes the trip;
    wait_registers: float | None = None  # of these it waits for registers,
    wait_shared: float | None = None  # for shared memory,
    wait_global: float | None = None  # for loads and copies from global memory,
    wait_barrier: float | None = None  # for its block,
    wait_before: float | None = None  # and for the instructions before


REASONS = ("registers", "shared", "global", "barrier", "before")  # of `wait_REASON`
