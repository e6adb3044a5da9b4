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
from types import MappingProxyType

import numpy as np

from gemm_ref.clock.recorder import ARRIVE, MEET, STORE, WAIT, Event
from gemm_ref.sass.control import COUNTERS
from gemm_ref.sass.ports import SCHEDULERS, Banks

# What keeps a scheduler from issuing. `before` is a result of arithmetic.
REASONS = ("registers", "shared", "global", "barrier", "before", "pipe", "tensor")
REGISTERS, SHARED, GLOBAL, BARRIER, BEFORE, PIPE, TENSOR = REASONS
ISSUE, L1, L2, MEMORY = "issue", "l1", "l2", "memory"  # resources, beside the pipes of `steps`
_WARM_UP = 2  # commits of a warp that do not count as even
_NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Rates:
    """What the simulation needs to know of the multiprocessor; clocks are its own."""

    l2_bytes: float  # a clock, of this multiprocessor while all others ask as well
    stored_bytes: float  # a clock that L2 takes, likewise
    memory_bytes: float  # a clock of device memory, likewise
    memory_latency: float  # clocks of a load that misses L1: one of the blocks that run together misses L2, all wait
    l1_latency: float
    shared_latency: float
    return_bytes: float  # a clock that the warps of a scheduler get from L1 and shared memory
    to_shared: float  # clocks from a scheduler to L1 and shared memory
    barrier: tuple[float, float]  # clocks of a barrier, and more for each warp of the block
    mbarrier: float = 0.0  # from an arrival until the waiter goes on
    tma: float = 0.0  # clocks that a copy of the TMA unit takes longer than a load
    queue: float = 1024.0  # clocks of requests to L1 and shared memory at which schedulers hold back (an assumption)


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
    is_store: bool = False  # to global memory
    barrier: str = ""  # which one it arrives at
    arrivals: int = 0  # warps that the barrier opens for; 0 for all of the block
    leaves: int = -1  # groups of copies that may be under way behind it; -1 where it does not wait for copies
    kind: str = ""  # "copy", "commit", "arrive", "commit products" or ""
    tensor: float = 0.0  # clocks of the tensor core that it starts and does not wait for
    products_left: int = -1  # groups of such products that may be under way behind it; -1 where it does not wait
    events: tuple[Event, ...] = ()  # at mbarriers, and of the TMA unit
    needs: tuple[int, ...] = ()  # numbers of the warp's steps whose results it reads
    is_plain: bool = False  # whether it has nothing of the above but a stall


@dataclass(slots=True)
class Warp:
    """Where a warp is on its path, and what it waits for."""

    block: int
    of: int  # which of the simulated blocks, or clusters, it belongs to
    steps: Sequence[Step]
    ready: int  # no instruction before this clock,
    why: str = BEFORE  # because of this
    done: int = 0
    counters: list[tuple[float, str]] = field(default_factory=lambda: [(0, BEFORE)] * COUNTERS)
    copied: float = 0.0  # when the copies that are in no group yet are there
    groups: list[float] = field(default_factory=list)  # when each group of copies is there
    times: dict[int, float] = field(default_factory=dict)  # of the heads of its main loop: when it passed
    heads: frozenset[int] = frozenset()
    results: dict[int, tuple[float, str]] = field(default_factory=dict)  # by number of step, of loads
    products: float = 0.0  # when those that are in no group yet are done
    product_groups: list[float] = field(default_factory=list)  # when each group of products is done
    end: float = 0.0


@dataclass(frozen=True)
class Run:
    """What blocks that begin together on one multiprocessor took, in clocks."""

    end: float  # of the last warp
    drained: float  # when what they stored has been written too
    commit: float  # between commits of products to the tensor cores, once they go evenly; 0 without
    busy: Mapping[tuple[str, int], float]  # clocks that a resource worked, by its name and the instruction
    waiting: Mapping[tuple[str, int], float]  # clocks in which a scheduler could not issue, by reason and instruction


class Multiprocessor:
    """The simulation of one multiprocessor from the first instruction of its blocks to the last."""

    def __init__(
        self,
        rates: Rates,
        paths: Sequence[tuple[Sequence[Step], Sequence[int]]],
        blocks: int,
        needed: Mapping[tuple[int, int], int] = MappingProxyType({}),
        cluster: int = 1,
    ) -> None:
        """paths: of each warp of a block, or of a cluster's blocks, its steps and the numbers of those that commit.

        blocks: that the multiprocessor holds; of a cluster each block has a multiprocessor of its own. needed: by
        mbarrier and phase, the arrivals and copies that end it.
        """
        self._rates = rates
        self._needed = needed
        self._helped: Counter[tuple[int, int, int]] = Counter()  # by block, mbarrier and phase
        self._latest: dict[tuple[int, int, int], float] = defaultdict(float)  # when the last of them was there
        self._waiting: dict[tuple[int, int, int], list[Warp]] = defaultdict(list)
        self._of_block = len(paths) // cluster
        self._warps = [
            Warp(of * cluster + number // self._of_block, of, steps, 0, heads=frozenset(heads))
            for of in range(blocks)
            for number, (steps, heads) in enumerate(paths)
        ]
        self._schedulers = []
        for place in range(cluster):
            memory, warps = _Memory(), [warp for warp in self._warps if warp.block % cluster == place]
            self._schedulers += [_Scheduler(own, memory) for s in range(SCHEDULERS) if (own := warps[s::SCHEDULERS])]
        self._arrived: dict[tuple[int, str], list[Warp]] = defaultdict(list)
        self._counted: Counter[tuple[int, str]] = Counter()
        self._busy: dict[tuple[str, int], float] = defaultdict(float)
        self._left = len(self._warps)
        self._alive = Counter(warp.block for warp in self._warps)
        self._each = 1 / cluster  # what a multiprocessor's clock counts for
        self._share = self._each / SCHEDULERS  # and a scheduler's

    def run(self) -> Run:
        """Goes on until all warps have left. Raises ValueError where none can go on."""
        now = 0
        while self._left:
            now = min([self._turn(scheduler, now) for scheduler in self._schedulers])
            if now >= _NEVER:
                raise ValueError("the simulated warps wait for each other forever: their barriers are not modelled")
        end = max(warp.end for warp in self._warps)
        waiting: dict[tuple[str, int], float] = defaultdict(float)
        for scheduler in self._schedulers:
            for key, clocks in scheduler.waited.items():
                waiting[key] += clocks * self._share
            for place, count in scheduler.issues.items():
                self._busy[ISSUE, place] += count * self._share
        memories = [scheduler.memory for scheduler in self._schedulers]
        drained = max(end, *(max(each.l2, each.device) for each in memories))
        return Run(end, drained, _between_commits(self._warps), self._busy, waiting)

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
        if step.products_left >= 0:
            waits += [(clock, TENSOR) for clock in warp.product_groups[: len(warp.product_groups) - step.products_left]]
        if step.served and (free := scheduler.memory.l1 - self._rates.queue) > warp.ready:
            waits.append((free, GLOBAL if step.is_global else SHARED))
        waits += [warp.results[number] for number in step.needs if number in warp.results]
        for event in step.events:
            if event.kind == WAIT and event.phase:
                key = warp.of, event.barrier, event.phase - 1
                if self._helped[key] < self._needed[key[1:]]:
                    self._waiting[key].append(warp)
                    warp.ready = _NEVER
                    return
                waits.append((self._latest[key], BARRIER))
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
            self._busy[step.pipe, step.place] += step.interval * self._share
        if not step.is_plain:
            self._start(step, warp, scheduler, now)
        if warp.done == len(warp.steps):
            self._leave(warp, now)

    def _start(self, step: Step, warp: Warp, scheduler: _Scheduler, now: int) -> None:
        rates = self._rates
        there, read, why = now + step.latency, now + step.released, GLOBAL if step.is_global else BEFORE
        memory = scheduler.memory
        if step.served:
            begun = max(memory.l1, now + rates.to_shared)
            memory.l1 = begun + step.served
            self._busy[L1, step.place] += step.served * self._each
            read, why = max(read, memory.l1), GLOBAL if step.is_global else SHARED
            there = begun + step.served + (rates.l1_latency if step.is_global else rates.shared_latency)
            if step.missed:
                credit = memory.credit.get(step.place, step.unit - step.missed) + step.missed
                if credit >= step.unit * 0.999:
                    memory.filled[step.place] = self._move(credit, begun, step.place, memory, step.is_store)
                    credit = 0.0
                memory.credit[step.place] = credit
                there = max(there, memory.filled[step.place])  # what hits L1 may still be on its way there
            if step.returned:
                if step.is_global:  # its data come in any order
                    there += step.returned / rates.return_bytes
                else:
                    there = scheduler.returned = max(scheduler.returned, there) + step.returned / rates.return_bytes
        if any(step.writes):
            scheduler.banks.arrive(math.ceil(there), step.writes)
        if step.kind == "copy":
            warp.copied = max(warp.copied, there)
        elif step.kind == "commit":
            warp.groups.append(max([warp.copied, *warp.groups[-1:]]))
        if step.leaves >= 0:
            warp.groups = warp.groups[len(warp.groups) - step.leaves :] if step.leaves else []
        if step.tensor:
            scheduler.tensor = max(scheduler.tensor, now) + step.tensor
            self._busy[TENSOR, step.place] += step.tensor * self._share
            warp.products = scheduler.tensor + step.latency
        elif step.kind == "commit products":
            warp.product_groups.append(warp.products)
        for event in step.events:
            self._do(event, warp, now, step.place, memory)
        if step.returned or step.served:
            warp.results[warp.done - 1] = there, why
        if step.barrier:
            self._arrive(step, warp, now)
        for counter, clock in ((step.result, there), (step.operands, read)):
            if counter < COUNTERS and clock > warp.counters[counter][0]:
                warp.counters[counter] = clock, why

    def _do(self, event: Event, warp: Warp, now: int, place: int, memory: _Memory) -> None:
        """An arrival at an mbarrier, or a copy of the TMA unit."""
        if event.kind in (WAIT, MEET):
            return
        clock = now + self._rates.mbarrier
        if event.kind != ARRIVE:
            moved = self._move(event.bytes, now, place, memory, event.kind == STORE) if event.bytes else now
            clock = moved + self._rates.tma if event.bytes else now
        if event.kind != STORE:
            key = warp.of, event.barrier, event.phase
            self._helped[key] += event.amount
            self._latest[key] = max(self._latest[key], clock)
            if self._helped[key] >= self._needed[key[1:]]:
                for other in self._waiting.pop(key, []):
                    other.ready, other.why = max(now + 1, math.ceil(self._latest[key])), BARRIER

    def _move(self, count: float, now: float, place: int, memory: _Memory, is_store: bool) -> float:
        """When so many bytes from beyond L1 are there, or are stored there."""
        rates = self._rates
        in_l2 = count / (rates.stored_bytes if is_store else rates.l2_bytes)
        memory.l2 = max(memory.l2, now) + in_l2
        memory.device = max(memory.device, now) + count / rates.memory_bytes
        self._busy[L2, place] += in_l2 * self._each
        self._busy[MEMORY, place] += count / rates.memory_bytes * self._each
        return max(memory.l2, memory.device) + rates.memory_latency

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


def _between_commits(warps: Sequence[Warp]) -> float:
    """Clocks between commits of products, of the warps with most of them.

    A slice may have several commits at uneven distances, so spans of a number of them are looked at; those with the end
    of a tile in them are longer and left out.
    """
    times = [sorted(warp.times.values())[_WARM_UP:] for warp in warps]
    most = max(map(len, times))
    number = max(1, min(most // 4, max(4, most // 16)))
    spans = np.concatenate([np.subtract(each[number:], each[:-number]) for each in times if len(each) == most])
    return float(spans[spans < 1.5 * np.median(spans) + 1].mean() / number) if spans.size else 0.0


@dataclass
class _Memory:
    """What the schedulers of a multiprocessor share, and when each part of it is free."""

    l1: float = 0.0
    l2: float = 0.0
    device: float = 0.0
    credit: dict[int, float] = field(default_factory=dict)  # bytes to be fetched, by place; the first request misses
    filled: dict[int, float] = field(default_factory=dict)  # when what was fetched last is there, by place


class _Scheduler:
    """One of the four, with its warps, the oldest first."""

    def __init__(self, warps: list[Warp], memory: _Memory) -> None:
        self.warps = warps
        self.memory = memory
        self.last = warps[0]  # the warp that it issued last,
        self.issued = -1  # and when
        self.banks = Banks()
        self.pipes: dict[str, float] = defaultdict(float)  # when each is free
        self.tensor = 0.0  # when the tensor core has done all products that were started
        self.returned = 0.0  # when what L1 and shared memory give its warps is there
        self.waited: dict[tuple[str, int], float] = defaultdict(float)  # clocks, by reason and place
        self.issues: Counter[int] = Counter()  # by place

    def note(self, place: int, reason: str, clocks: int) -> None:
        """Count clocks in which nothing was issued, because of an instruction and a reason."""
        if clocks > 0:
            self.waited[reason, place] += clocks
