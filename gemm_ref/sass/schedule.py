"""What a trip round a main loop takes on a multiprocessor, and what its schedulers wait for: warp by warp, in Python.

Each of four schedulers issues one instruction a clock, of the warp that it issued last while that can go on, else of
the oldest that can. A warp waits for the clocks and counters that the compiler wrote into the machine code (`control`),
for its block's barrier and its copies; an instruction whose registers are not read yet (`ports`) keeps its scheduler.
Shared memory serves one request after the other. A load from global memory takes as long as one that no cache holds.

The latencies were measured on an H200 at 1980 MHz (2026-11-22), each by a loop of its own; none is fitted to a kernel.
Not modelled: the bandwidth of L2 and device memory, the instruction cache, and the pipes behind the schedulers, of
which FFMA has one to itself. So it is for loops that are mostly FFMA.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gemm_ref.sass.control import COUNTERS, ControlCode, controls
from gemm_ref.sass.listing import Instruction, SassKernel
from gemm_ref.sass.mix import bits
from gemm_ref.sass.ports import Banks, bank_reads, loaded

SCHEDULERS = 4
# What keeps a scheduler from issuing
REGISTERS, SHARED, GLOBAL, BARRIER, BEFORE = REASONS = ("registers", "shared", "global", "barrier", "before")

_LOADED, _BYTES = 21, 64  # clocks of a load from shared memory, and bytes a clock that a scheduler's warps then get
_MISSED = 690  # of a load from device memory
_MET, _A_WARP = 13, 2  # of a barrier, and more for each warp of the block
_OTHER, _READ = 20, 12  # until a counter falls: for other results, and for operands of other instructions (estimates)
_TO_SHARED = 4  # from a scheduler to shared memory (an estimate)
_WARM_UP, _COUNTED = 2, 4  # trips before counting begins, and while it lasts
_NEVER = 1 << 60
_TELLING = ("LDG", "LDGSTS", "LDGDEPBAR", "DEPBAR", "BAR")


@dataclass(frozen=True)
class Schedule:
    """Clocks of one scheduler for one warp's trip: `issuing`, and `waiting` by reason."""

    issuing: float
    waiting: Mapping[str, float]

    @property
    def clocks(self) -> float:
        return self.issuing + sum(self.waiting.values())


def controlled(kernel: SassKernel, cubin: bytes) -> SassKernel:
    """The kernel with what its scheduler is told, read from the cubin that it is of."""
    code = zip(kernel.code, controls(cubin, kernel.name), strict=False)  # behind the code there is filling
    return replace(kernel, code=tuple(replace(instruction, control=control) for instruction, control in code))


def simulate(trip: Sequence[Instruction], warps: int, blocks: int, wavefronts: Mapping[str, float]) -> Schedule:
    """What a trip takes when all warps of a multiprocessor go round the loop.

    trip: of `loop.main_trip`, of instructions that have their `control`; warps: of a block; blocks: that the
    multiprocessor holds; wavefronts: of a request, for the opcodes (`LDS.128`) that access shared memory. Raises
    KeyError for one that it lacks, ValueError for a trip without instructions or control.
    """
    steps = [
        _step(instruction, instruction.control, reads, wavefronts)
        for instruction, reads in zip(trip, bank_reads(trip), strict=True)
        if instruction.control
    ]
    if not steps or len(steps) < len(trip):
        raise ValueError("a schedule needs instructions, each with its control: `controlled` reads it")
    return _Multiprocessor(steps, warps, blocks).run()


@dataclass(frozen=True)
class _Step:
    """An instruction of the loop as the scheduler sees it."""

    name: str
    control: ControlCode
    reads: tuple[int, ...]  # of each bank of registers
    served: float = 0.0  # clocks of shared memory
    returned: int = 0  # and on the way back
    writes: tuple[int, ...] = ()  # of each bank, when what it loads is there
    left: int = 0  # groups of copies that may be under way behind a DEPBAR

    @cached_property
    def waits(self) -> bool:
        """Whether it waits for more than the one before it."""
        return bool(self.control.waits) or self.name == "DEPBAR"

    @cached_property
    def is_alone(self) -> bool:
        """Whether nothing else is told of it: no counter, barrier, copy or access. Nearly all of a loop is so."""
        told = self.control.result < COUNTERS or self.control.operands < COUNTERS
        return not (told or self.served or any(self.writes) or self.name in _TELLING)


def _step(instruction: Instruction, control: ControlCode, reads: tuple[int, ...], passes: Mapping[str, float]) -> _Step:
    name = instruction.name
    if name in ("LDS", "LDSM", "STS", "STSM", "LDGSTS") and not instruction.never:
        returned = 32 * bits(instruction) // 8 // _BYTES if name in ("LDS", "LDSM") else 0
        return _Step(name, control, reads, passes[instruction.opcode], returned, loaded(instruction))
    if name == "DEPBAR":
        return _Step(name, control, reads, left=int(instruction.operands.split(",")[1], 16))
    return _Step(name, control, reads, writes=loaded(instruction))


@dataclass
class _Warp:
    """Where a warp is in its loop, and what it waits for."""

    block: int
    ready: int  # no instruction before this clock,
    why: str = BEFORE  # because of this
    done: int = 0  # instructions
    counters: list[tuple[int, str]] = field(default_factory=lambda: [(0, BEFORE)] * COUNTERS)  # 0 from when on, and why
    copied: int = 0  # when the copies that are in no group yet are there
    groups: list[int] = field(default_factory=list)  # when each group of copies is there, the oldest first


class _Multiprocessor:
    def __init__(self, steps: Sequence[_Step], warps: int, blocks: int) -> None:
        self._steps = steps
        # Blocks run apart from each other: each begins where the one before has a part of its trip behind it.
        self._warps = [_Warp(i // warps, i // warps * len(steps) // blocks) for i in range(warps * blocks)]
        self._schedulers = [_Scheduler(own) for s in range(SCHEDULERS) if (own := self._warps[s::SCHEDULERS])]
        self._shared = 0.0  # when shared memory is free
        self._arrived = [0] * blocks  # warps at the barrier
        self._done = 0  # instructions of all warps

    def run(self) -> Schedule:
        """Goes on until the warps have done so many trips, on the average: one that never waits is never passed."""
        a_trip = len(self._steps) * len(self._warps)
        now, since, before = 0, 0, 0
        while self._done < (_WARM_UP + _COUNTED) * a_trip:
            if not since and self._done >= _WARM_UP * a_trip:
                since, before = now, self._done
                for scheduler in self._schedulers:
                    scheduler.waited.clear()
            now = min([self._turn(scheduler, now) for scheduler in self._schedulers])
        trips = (self._done - before) / len(self._steps)
        waiting = {reason: sum(each.waited[reason] for each in self._schedulers) / trips for reason in REASONS}
        return Schedule((now - since) * len(self._schedulers) / trips - sum(waiting.values()), waiting)

    def _turn(self, scheduler: _Scheduler, now: int) -> int:
        """Issue what can be, and say when to look again."""
        if scheduler.issued >= now:
            return scheduler.issued + 1
        soonest = _NEVER
        for warp in (scheduler.last, *scheduler.warps):
            if warp.ready <= now:
                step = self._steps[warp.done % len(self._steps)]
                if step.waits:
                    self._look(warp, step)
            if warp.ready <= now:
                clock = scheduler.banks.begin(step.reads, now)
                scheduler.waited[warp.why] += now - scheduler.issued - 1
                scheduler.waited[REGISTERS] += clock - now
                scheduler.issued, scheduler.last = clock, warp
                self._issue(step, warp, scheduler, clock)
                return clock + 1
            if warp.ready < soonest:
                soonest = warp.ready
        return soonest

    def _look(self, warp: _Warp, step: _Step) -> None:
        """Move a warp's `ready` to when its next instruction can be issued, as far as that is known."""
        waits = [warp.counters[counter] for counter in step.control.waits]
        if step.name == "DEPBAR":
            waits += [(clock, GLOBAL) for clock in warp.groups[: len(warp.groups) - step.left]]
        for clock, why in waits:
            if clock > warp.ready:
                warp.ready, warp.why = clock, why

    def _issue(self, step: _Step, warp: _Warp, scheduler: _Scheduler, now: int) -> None:
        self._done += 1
        warp.done += 1
        warp.ready, warp.why = now + max(1, step.control.stall), BEFORE
        if step.is_alone:
            return
        read, there, why = float(now + _READ), float(now + _OTHER), BEFORE
        if step.served:
            read = self._shared = max(self._shared, now + _TO_SHARED) + step.served
            scheduler.returned = max(scheduler.returned, now + _LOADED, read + _LOADED - _TO_SHARED) + step.returned
            there, why = scheduler.returned, SHARED
        if step.name in ("LDG", "LDGSTS"):
            there, why = now + _MISSED, GLOBAL
        if step.name == "LDGSTS":
            warp.copied = now + _MISSED
        elif step.name == "LDGDEPBAR":
            warp.groups.append(max([warp.copied, *warp.groups[-1:]]))
        elif step.name == "DEPBAR":
            warp.groups = warp.groups[len(warp.groups) - step.left :] if step.left else []
        elif step.name == "BAR":
            self._arrive(warp, now)
        scheduler.banks.arrive(math.ceil(there), step.writes)
        for counter, clock in ((step.control.result, there), (step.control.operands, read)):
            if counter < COUNTERS:
                warp.counters[counter] = max(warp.counters[counter], (math.ceil(clock), why))

    def _arrive(self, warp: _Warp, now: int) -> None:
        """At the barrier of its block."""
        warp.ready = _NEVER
        block = [other for other in self._warps if other.block == warp.block]
        self._arrived[warp.block] += 1
        if self._arrived[warp.block] == len(block):
            self._arrived[warp.block] = 0
            for other in block:
                other.ready, other.why = now + _MET + _A_WARP * len(block), BARRIER


class _Scheduler:
    """One of the four, with its warps, the oldest first."""

    def __init__(self, warps: list[_Warp]) -> None:
        self.warps = warps
        self.last = warps[0]  # the warp that it issued last,
        self.issued = -1  # and when
        self.banks = Banks()
        self.returned = 0.0  # when what shared memory gives its warps is there
        self.waited: Counter[str] = Counter()  # clocks, by reason
