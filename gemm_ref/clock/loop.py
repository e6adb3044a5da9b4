"""What a trip round a main loop takes on a multiprocessor, and what its schedulers wait for.

The simulation is that of `machine`, for warps that go round one loop. The latencies were measured on an H200 at 1980
MHz (2026-11-22), each by a loop of its own; none is fitted to a kernel. A load from global memory takes as long as one
that no cache holds. Not modelled are the bandwidth of L2 and device memory, the instruction cache, and the pipes behind
the schedulers, of which FFMA has one to itself: this is for loops that are mostly FFMA.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemm_ref.clock.machine import BARRIER, BEFORE, GLOBAL, REGISTERS, SHARED, Multiprocessor, Rates, Step
from gemm_ref.clock.steps import is_plain, with_waits
from gemm_ref.sass.listing import Instruction
from gemm_ref.sass.mix import bits
from gemm_ref.sass.ports import bank_reads, loaded

REASONS = (REGISTERS, SHARED, GLOBAL, BARRIER, BEFORE)  # why a scheduler of such a loop does not issue
_MISSED = 690  # clocks of a load from device memory
_RESULT, _READ = 20, 12  # clocks until a counter falls: for other results, and for operands (estimates)
_TO_SHARED = 4  # clocks from a scheduler to shared memory (an estimate)
_RATES = Rates(
    l2_bytes=math.inf,
    stored_bytes=math.inf,
    memory_bytes=math.inf,
    memory_latency=_MISSED - _TO_SHARED,
    l1_latency=0,
    shared_latency=21 - _TO_SHARED,
    return_bytes=64,
    to_shared=_TO_SHARED,
    barrier=(13, 2),
    queue=math.inf,
)
_WARM_UP, _COUNTED = 2, 4  # trips before counting begins, and while it lasts


@dataclass(frozen=True)
class Schedule:
    """Clocks of one scheduler for one warp's trip: `issuing`, and `waiting` by reason."""

    issuing: float
    waiting: Mapping[str, float]

    @property
    def clocks(self) -> float:
        """All clocks of the trip."""
        return self.issuing + sum(self.waiting.values())


def simulate(trip: Sequence[Instruction], warps: int, blocks: int, wavefronts: Mapping[str, float]) -> Schedule:
    """Returns what a trip takes when all warps of a multiprocessor go round the loop.

    trip: of `loop.main_trip`, of instructions that have their `control`; warps: of a block; blocks: that the
    multiprocessor holds; wavefronts: of a request, for the opcodes (`LDS.128`) that access shared memory. Raises
    KeyError for an opcode that it lacks, ValueError for a trip without instructions or control.
    """
    if not trip or not all(instruction.control for instruction in trip):
        raise ValueError("a schedule needs instructions, each with its control: `controlled` reads it")
    steps = [
        _step(place, instruction, reads, wavefronts)
        for place, (instruction, reads) in enumerate(zip(trip, bank_reads(trip), strict=True))
    ]
    return _Loop(steps, warps, blocks).measure()


def _step(place: int, instruction: Instruction, reads: tuple[int, ...], wavefronts: Mapping[str, float]) -> Step:
    name, control = instruction.name, instruction.control
    assert control is not None
    step = Step(place, name, control.stall, control.result, control.operands, control.waits, reads, latency=_RESULT)
    step = replace(step, released=_READ, writes=loaded(instruction))
    if name in ("LDS", "LDSM", "STS", "STSM", "LDGSTS") and not instruction.never:
        step = replace(step, served=wavefronts[instruction.opcode], released=0.0)  # until it has been served
    if name in ("LDS", "LDSM") and step.served:
        step = replace(step, returned=32 * bits(instruction) / 8)
    elif name == "LDGSTS":  # each of its requests misses
        step = replace(step, kind="copy", is_global=True, missed=1.0, unit=1.0)
    elif name == "LDG":
        step = replace(step, is_global=True, latency=_MISSED)
    step = with_waits(step, instruction)
    return replace(step, is_plain=is_plain(step))


class _Loop(Multiprocessor):
    """A multiprocessor whose warps go round a loop without end."""

    def __init__(self, steps: Sequence[Step], warps: int, blocks: int) -> None:
        trips = (_WARM_UP + _COUNTED) * warps * blocks  # as many as one warp takes if all others wait for it
        super().__init__(_RATES, [([*steps] * trips, ())] * warps, blocks)
        self._length = len(steps)
        for warp in self._warps:  # blocks run apart from each other
            warp.ready = warp.block * len(steps) // blocks

    def measure(self) -> Schedule:
        """Goes on until the warps have done so many trips, on the average: one that never waits is never passed."""
        a_trip = self._length * len(self._warps)
        now = since = before = 0
        while (done := sum([warp.done for warp in self._warps])) < (_WARM_UP + _COUNTED) * a_trip:
            if not since and done >= _WARM_UP * a_trip:
                since, before = now, done
                for scheduler in self._schedulers:
                    scheduler.waited.clear()
            now = min([self._turn(scheduler, now) for scheduler in self._schedulers])
        trips = (done - before) / self._length
        waited: defaultdict[str, float] = defaultdict(float)
        for scheduler in self._schedulers:
            for (reason, _), clocks in scheduler.waited.items():
                waited[reason] += clocks / trips
        waiting = {reason: waited[reason] for reason in REASONS}
        return Schedule((now - since) * len(self._schedulers) / trips - sum(waiting.values()), waiting)
