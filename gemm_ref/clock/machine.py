"""A multiprocessor in time: four schedulers that issue warps' instructions, and the pipes and memories behind them.

Each scheduler issues one instruction a clock, of the warp that it issued last while that can go on, else of the oldest
that can. A warp waits for the clocks and counters that the compiler wrote into the machine code (`sass.control`), for
a busy pipe, for its block's barriers and for its copies; an instruction whose registers are not read yet
(`sass.ports`) keeps its scheduler. L1 cache and shared memory are one unit that serves requests in turn; what misses L1
shares the multiprocessor's part of the bandwidth of L2 and of device memory.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gemm_ref.sass.control import COUNTERS
from gemm_ref.sass.ports import Banks

SCHEDULERS = 4
# What keeps a scheduler from issuing. `before` is a result of arithmetic.
REASONS = ("registers", "shared", "global", "barrier", "before", "pipe", "tensor")
REGISTERS, SHARED, GLOBAL, BARRIER, BEFORE, PIPE, TENSOR = REASONS
ISSUE, L1, L2, MEMORY = "issue", "l1", "l2", "memory"  # resources, beside the pipes of `steps`
_WARM_UP = 2  # trips of a warp that do not count as even
_NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Rates:
    """What the simulation needs to know of the multiprocessor; clocks are its own."""

    l2_bytes: float  # a clock, of this multiprocessor while all others ask as well
    memory_bytes: float  # a clock of device memory, likewise
    memory_latency: float  # clocks of a load that misses L1: one of the blocks that run together misses L2, all wait
    l1_latency: float
    shared_latency: float
    return_bytes: float  # a clock that the warps of a scheduler get from L1 and shared memory
    to_shared: float  # clocks from a scheduler to L1 and shared memory
    barrier: tuple[float, float]  # clocks of a barrier, and more for each warp of the block


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction as a scheduler sees it."""

    place: int  # in the kernel's code
    name: str
    stall: int
    result: int  # counters, COUNTERS or more for none
    operands: int
    waits: tuple[int, ...]
    reads: tuple[int, ...]  # of each bank of registers
    pipe: str = ""  # where it occupies one for more than a clock
    interval: float = 0.0  # clocks of the pipe
    latency: float = 0.0  # until the counter of its result falls, where nothing below says it
    released: float = 0.0  # until the counter of its operands falls
    served: float = 0.0  # clocks of L1 and shared memory
    returned: float = 0.0  # bytes that a warp is given back
    writes: tuple[int, ...] = ()  # registers of each bank that a load fills
    missed: float = 0.0  # bytes that a request fetches past L1, on the average
    unit: float = 0.0  # bytes of a miss: so many are fetched at a time
    is_global: bool = False
    barrier: str = ""  # which one it arrives at
    arrivals: int = 0  # warps that the barrier opens for; 0 for all of the block
    leaves: int = -1  # groups of copies that may be under way behind it; -1 where it does not wait for copies
    kind: str = ""  # "copy", "commit", "arrive" or ""
    is_plain: bool = False  # whether it has nothing of the above but a stall


@dataclass(slots=True)
class Warp:
    """Where a warp is on its path, and what it waits for."""

    block: int
    steps: Sequence[Step]
    ready: int  # no instruction before this clock,
    why: str = BEFORE  # because of this
    done: int = 0
    counters: list[tuple[float, str]] = field(default_factory=lambda: [(0, BEFORE)] * COUNTERS)
    copied: float = 0.0  # when the copies that are in no group yet are there
    groups: list[float] = field(default_factory=list)  # when each group of copies is there
    times: dict[int, float] = field(default_factory=dict)  # of the heads of its main loop: when it passed
    heads: frozenset[int] = frozenset()
    end: float = 0.0


@dataclass(frozen=True)
class Run:
    """What blocks that begin together on one multiprocessor took, in clocks."""

    end: float
    trip: float  # of one round of the main loop, once it goes evenly
    busy: Mapping[tuple[str, int], float]  # clocks that a resource worked, by its name and the instruction
    waiting: Mapping[tuple[str, int], float]  # clocks in which a scheduler could not issue, by reason and instruction


class Multiprocessor:
    """The simulation of one multiprocessor from the first instruction of its blocks to the last."""

    def __init__(self, rates: Rates, paths: Sequence[tuple[Sequence[Step], Sequence[int]]], blocks: int) -> None:
        """paths: of each warp of a block its steps and the numbers of those that begin a trip."""
        self._rates = rates
        self._blocks = blocks
        self._of_block = len(paths)
        self._warps = [
            Warp(block, steps, 0, heads=frozenset(heads)) for block in range(blocks) for steps, heads in paths
        ]
        self._schedulers = [_Scheduler(own) for s in range(SCHEDULERS) if (own := self._warps[s::SCHEDULERS])]
        self._l1 = self._l2 = self._memory = 0.0  # when each is free
        self._arrived: dict[tuple[int, str], list[Warp]] = defaultdict(list)
        self._counted: Counter[tuple[int, str]] = Counter()
        self._credit: dict[int, float] = {}  # bytes to be fetched past L1, by place; the first request misses
        self._filled: dict[int, float] = {}  # when what was fetched last is there, by place
        self._busy: dict[tuple[str, int], float] = defaultdict(float)
        self._left = len(self._warps)
        self._alive = Counter({block: self._of_block for block in range(blocks)})

    def run(self) -> Run:
        """Goes on until all warps have left. Raises ValueError where none can go on."""
        now = 0
        while self._left:
            now = min([self._turn(scheduler, now) for scheduler in self._schedulers])
            if now >= _NEVER:
                raise ValueError("the simulated warps wait for each other forever")
        end = max(warp.end for warp in self._warps)
        waiting: dict[tuple[str, int], float] = defaultdict(float)
        for scheduler in self._schedulers:
            for key, clocks in scheduler.waited.items():
                waiting[key] += clocks / SCHEDULERS
            for place, count in scheduler.issues.items():
                self._busy[ISSUE, place] += count / SCHEDULERS
        return Run(end, _trip(self._warps), self._busy, waiting)

    def _turn(self, scheduler: _Scheduler, now: int) -> int:
        """Issue what can be, and return when to look again."""
        if scheduler.issued >= now:
            return scheduler.issued + 1
        soonest = _NEVER
        for warp in (scheduler.last, *scheduler.warps):
            if warp.ready <= now:
                step = warp.steps[warp.done]
                if not step.is_plain:
                    self._look(warp, step, scheduler)
            if warp.ready <= now:
                clock = scheduler.banks.begin(step.reads, now) if any(step.reads) else now
                scheduler.note(step.place, warp.why, now - scheduler.issued - 1)
                if clock > now:
                    scheduler.note(step.place, REGISTERS, clock - now)
                scheduler.issued, scheduler.last = clock, warp
                scheduler.issues[step.place] += 1
                self._issue(step, warp, scheduler, clock)
                return clock + 1
            if warp.ready < soonest:
                soonest = warp.ready
        return soonest

    def _look(self, warp: Warp, step: Step, scheduler: _Scheduler) -> None:
        """Move a warp's `ready` to when its next instruction can be issued, as far as that is known."""
        waits = [warp.counters[counter] for counter in step.waits]
        if step.leaves >= 0:
            waits += [(clock, GLOBAL) for clock in warp.groups[: len(warp.groups) - step.leaves]]
        if step.pipe and (free := scheduler.pipes[step.pipe]) > warp.ready:
            waits.append((free, TENSOR if step.pipe == TENSOR else PIPE))
        for clock, why in waits:
            if clock > warp.ready:
                warp.ready, warp.why = math.ceil(clock), why

    def _issue(self, step: Step, warp: Warp, scheduler: _Scheduler, now: int) -> None:
        if warp.done in warp.heads:
            warp.times[warp.done] = now
        warp.done += 1
        warp.ready, warp.why = now + max(1, step.stall), BEFORE
        if step.pipe:
            scheduler.pipes[step.pipe] = max(scheduler.pipes[step.pipe], now - 1) + step.interval
            self._busy[step.pipe, step.place] += step.interval / SCHEDULERS
        if not step.is_plain:
            self._start(step, warp, scheduler, now)
        if warp.done == len(warp.steps):
            self._leave(warp, now)

    def _start(self, step: Step, warp: Warp, scheduler: _Scheduler, now: int) -> None:
        rates = self._rates
        there, read, why = now + step.latency, now + step.released, BEFORE
        if step.served:
            begun = max(self._l1, now + rates.to_shared)
            self._l1 = begun + step.served
            self._busy[L1, step.place] += step.served
            read, why = max(read, self._l1), GLOBAL if step.is_global else SHARED
            there = begun + step.served + (rates.l1_latency if step.is_global else rates.shared_latency)
            if step.missed:
                credit = self._credit.get(step.place, step.unit - step.missed) + step.missed
                if credit >= step.unit * 0.999:
                    self._filled[step.place] = self._fetch(credit, begun, step.place)
                    credit = 0.0
                self._credit[step.place] = credit
                there = max(there, self._filled[step.place])  # what hits L1 may still be on its way there
            if step.returned:
                if step.is_global:  # its data come in any order
                    there += step.returned / rates.return_bytes
                else:
                    there = scheduler.returned = max(scheduler.returned, there) + step.returned / rates.return_bytes
                scheduler.banks.arrive(math.ceil(there), step.writes)
        if step.kind == "copy":
            warp.copied = max(warp.copied, there)
        elif step.kind == "commit":
            warp.groups.append(max([warp.copied, *warp.groups[-1:]]))
        if step.leaves >= 0:
            warp.groups = warp.groups[len(warp.groups) - step.leaves :] if step.leaves else []
        if step.barrier:
            self._arrive(step, warp, now)
        for counter, clock in ((step.result, there), (step.operands, read)):
            if counter < COUNTERS and clock > warp.counters[counter][0]:
                warp.counters[counter] = clock, why

    def _fetch(self, count: float, now: float, place: int) -> float:
        """When so many bytes from beyond L1 are there."""
        rates = self._rates
        self._l2 = max(self._l2, now) + count / rates.l2_bytes
        self._busy[L2, place] += count / rates.l2_bytes
        self._memory = max(self._memory, now) + count / rates.memory_bytes
        self._busy[MEMORY, place] += count / rates.memory_bytes
        return max(self._l2, self._memory) + rates.memory_latency

    def _arrive(self, step: Step, warp: Warp, now: int) -> None:
        """At a barrier of its block."""
        key = warp.block, step.barrier
        expected = step.arrivals or self._alive[warp.block]
        self._counted[key] += 1
        if step.kind != "arrive":
            warp.ready = _NEVER
            self._arrived[key].append(warp)
        if self._counted[key] >= expected:
            met, more = self._rates.barrier
            for other in self._arrived.pop(key, []):
                other.ready, other.why = now + round(met + more * expected), BARRIER
            self._counted[key] = 0

    def _leave(self, warp: Warp, now: int) -> None:
        warp.end, warp.ready = now, _NEVER
        self._left -= 1
        self._alive[warp.block] -= 1


def _trip(warps: Sequence[Warp]) -> float:
    """Clocks of one trip round the main loop while all of the warps go round it; 0 where they do too few.

    Warps that are served first run ahead of the others, so it is the trips of all that are counted, between the time at
    which the last has begun its third trip and the time at which the first has begun its last.
    """
    times = [sorted(warp.times.values()) for warp in warps if len(warp.times) > _WARM_UP + 1]
    if not times:
        return 0.0
    end = min(each[-1] for each in times)
    begin = min(max(each[_WARM_UP] for each in times), end / 2)
    trips = sum(np.diff(np.interp((begin, end), each, range(len(each))))[0] for each in times) / len(times)
    return float((end - begin) / trips) if trips else 0.0


class _Scheduler:
    """One of the four, with its warps, the oldest first."""

    def __init__(self, warps: list[Warp]) -> None:
        self.warps = warps
        self.last = warps[0]  # the warp that it issued last,
        self.issued = -1  # and when
        self.banks = Banks()
        self.pipes: dict[str, float] = defaultdict(float)  # when each is free
        self.returned = 0.0  # when what L1 and shared memory give its warps is there
        self.waited: dict[tuple[str, int], float] = defaultdict(float)  # clocks, by reason and place
        self.issues: Counter[int] = Counter()  # by place

    def note(self, place: int, reason: str, clocks: int) -> None:
        """Count clocks in which nothing was issued, because of an instruction and a reason."""
        if clocks > 0:
            self.waited[reason, place] += clocks
