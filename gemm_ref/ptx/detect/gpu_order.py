"""Order between blocks: what one did before it released is before what another does after it has acquired.

PTX ISA, 8.6 to 8.9. A block releases by an atomic or a store at the scope of the GPU that is a release itself, or that
follows a fence of the same thread. It acquires by an atomic or a load that is an acquire itself, or that such a fence
follows, where it reads what was released: at the same place in memory, from the last store there or an atomic since.
A block's own barriers do the rest: a release is of all that its thread knows of, and whoever meets the thread that
acquired knows the same. Of fences that are `.sc`, as CUDA's `__threadfence()`, any thread's counts that meets the one
with the atomic, since all of them have one order.

What is seen is what happened in this run: which block came last is by the order of the blocks. Blocks of a later
machine are in order behind an earlier one's only where they have acquired from it. Not known: what a barrier of a
cluster orders in global memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gemm_ref.ptx.core.events import Access
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.detect.happens_before import NEVER, Order
from gemm_ref.ptx.text.dtypes import per_lane
from gemm_ref.ptx.text.parser import Instruction

ATOMIC = ("atom", "red")
_STRONG = {"relaxed", "acquire", "release", "volatile", "mmio"}
_NARROW = {"cta", "cluster"}  # scopes that do not reach another block, or not all
_FENCES = {"gpu", "sys", "gl"}  # scopes that do, as fence and membar call them


def is_strong(instruction: Instruction) -> bool:
    """Whether it may meet others of its kind at one place (PTX ISA, 8.2.1)."""
    return instruction.parts[0] in ATOMIC or not _STRONG.isdisjoint(instruction.parts)


def reaches_all(instruction: Instruction) -> bool:
    """Whether a strong operation is one for threads of other blocks too."""
    return _NARROW.isdisjoint(instruction.parts)


@dataclass(frozen=True)
class _Acquired:
    """That a lane has read what was released at a place."""

    chain: _Chain
    count: int  # of the chain's releases
    lane: int  # of the machine
    observed: int  # when, in Order's time
    fenced: int | None  # from when on the lane itself has acquired it; None as long as no fence followed


@dataclass(eq=False)
class _Passed:
    """What a lane that releases knows of other places that its block had acquired before; worked out when asked for."""

    chain: _Chain  # where it releases
    acquired: list[_Acquired]  # in its block, which grows
    number: int  # of them there are when it releases
    lane: int
    first: int  # lane of its block
    known: np.ndarray  # by thread of its block, up to when it knows what that did
    until: int  # when it releases, or fences to do so
    sc_met: int  # up to when its block had met at its last fence that is .sc

    @functools.cached_property
    def found(self) -> list[_Acquired]:
        before = [each for each in self.acquired[: self.number] if each.chain is not self.chain]
        return [each for each in before if (each.fenced or 0) <= self.until and self._knows(each)]

    def _knows(self, each: _Acquired) -> bool:
        if self.sc_met >= each.observed:
            return True
        own = each.lane == self.lane
        return each.fenced is not None and (own or int(self.known[each.lane - self.first]) >= each.fenced)


@dataclass(eq=False)  # compared by identity
class _Chain:
    """What is released at a place in memory: by the last store there, and by the atomics since, in their order."""

    threads: int  # of a block
    count: int = 0  # of operations
    # By block in the grid: (place in the chain, by thread up to when what it did is released).
    known: dict[int, list[tuple[int, np.ndarray]]] = field(default_factory=dict)
    behind: list[tuple[int, _Passed]] = field(default_factory=list)  # what a release passes on
    last: dict[int, int] = field(default_factory=dict)  # by thread in the grid: place of its last operation

    def covers(self, count: int, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Whether what these threads of the grid did then was released in the first `count` operations, or behind."""
        covered = np.zeros(threads.size, bool)
        blocks, thread = np.divmod(threads, self.threads)
        for chain, number in self._with_those_behind(count, {}):
            for block in np.unique(blocks[~covered]).tolist():
                chosen = np.flatnonzero(blocks == block)
                for place, known in chain.known.get(block, ()):
                    if place < number:
                        covered[chosen] |= times[chosen] <= known[thread[chosen]]
            if covered.all():
                break
        return covered

    def _with_those_behind(self, count: int, seen: dict[int, int]) -> Iterator[tuple[_Chain, int]]:
        if seen.get(id(self), 0) >= count:
            return
        seen[id(self)] = count
        yield self, count
        for place, passed in self.behind:
            if place < count:
                for each in passed.found:
                    yield from each.chain._with_those_behind(each.count, seen)


class GpuOrder:
    """What atomics, strong loads and stores, and fences order among the blocks of a launch, over all its machines."""

    def __init__(self) -> None:
        self._chains: dict[int, _Chain] = {}  # by address
        self._order: Order | None = None

    def _meet(self, order: Order, lanes: int) -> None:
        if order is not self._order:
            self._order = order
            # Of each lane: when it last fenced, and up to when its block had met then; the same for fences that are .sc
            self._fenced, self._met, self._sc, self._sc_met = np.full((4, lanes), NEVER, np.int32)
            self._acquired: dict[int, list[_Acquired]] = {}  # by block of the machine
            self._places: dict[tuple[int, int, int], int] = {}  # in such a list: by chain, count and lane

    def fence(self, instruction: Instruction, lanes: np.ndarray | None, machine: Lanes, order: Order) -> None:
        """These lanes execute a fence or membar, which is not one of a proxy."""
        parts = set(instruction.parts)
        if parts.isdisjoint(_FENCES):
            return
        self._meet(order, machine.lanes)
        at = slice(None) if lanes is None else lanes
        self._fenced[at], self._met[at] = order.now, order.since[at]
        if parts & {"membar", "sc"}:
            self._sc[at], self._sc_met[at] = order.now, order.since[at]
        for each in self._acquired.values():
            for i, acquired in enumerate(each):
                if acquired.fenced is None and (lanes is None or lanes[acquired.lane]):
                    each[i] = _Acquired(acquired.chain, acquired.count, acquired.lane, acquired.observed, order.now)
        order.step()

    def on_access(self, access: Access, order: Order) -> None:
        """An atomic, load or store in global memory."""
        instruction = access.instruction
        if not (is_strong(instruction) and reaches_all(instruction)):
            return
        machine, parts = access.machine, set(instruction.parts)
        self._meet(order, machine.lanes)
        lanes = np.arange(machine.lanes) if access.lanes is None else np.flatnonzero(access.lanes)
        releases = not parts.isdisjoint(("release", "acq_rel"))
        if not (releases or self._chains or (self._fenced[lanes] != NEVER).any() or (self._sc != NEVER).any()):
            return  # nothing is released anywhere
        acquires = not parts.isdisjoint(("acquire", "acq_rel"))
        addresses = per_lane(access.addresses, machine.lanes)
        for lane in lanes.tolist():
            address, block = int(addresses[lane]), int(machine.block_index[lane])
            thread = int(machine.block_of_lane[lane]) * machine.launch.threads + int(machine.thread_of_lane[lane])
            chain = self._chains.get(address)
            if instruction.parts[0] in ("atom", "ld") and chain is not None:
                self._observe(_Acquired(chain, chain.count, lane, order.now, order.now if acquires else None), block)
            if access.kind == "load":
                continue
            if chain is None or access.kind == "store":
                chain = self._chains[address] = _Chain(machine.launch.threads)
            known = self._released(lane, block, releases, order)
            if known is not None:
                chain.known.setdefault(int(machine.block_of_lane[lane]), []).append((chain.count, known))
                if block in self._acquired:
                    chain.behind.append((chain.count, self._passed_on(lane, block, releases, chain, order)))
            chain.last[thread] = chain.count
            chain.count += 1
        order.step()

    def _observe(self, acquired: _Acquired, block: int) -> None:
        before = self._acquired.setdefault(block, [])
        place = self._places.setdefault((id(acquired.chain), acquired.count, acquired.lane), len(before))
        if place == len(before):
            before.append(acquired)
        elif before[place].fenced is None:  # a loop that waits for a change
            before[place] = acquired

    def _released(self, lane: int, block: int, at_once: bool, order: Order) -> np.ndarray | None:
        """By thread of its block, up to when what it did is released by an atomic or store of a lane; None: nothing."""
        size = order.threads
        mates, met = slice(block * size, (block + 1) * size), int(order.since[lane])
        own = order.known(lane)
        if at_once:
            known = np.maximum(own, met)
            known[lane - block * size] = order.now
            return known
        if self._fenced[lane] == NEVER and (self._sc[mates] == NEVER).all():
            return None
        known = np.maximum(np.minimum(own, self._fenced[lane]), self._met[lane])
        known[lane - block * size] = self._fenced[lane]
        return np.maximum(known, np.minimum(np.maximum(own, met), self._sc[mates]))

    def _passed_on(self, lane: int, block: int, at_once: bool, chain: _Chain, order: Order) -> _Passed:
        """What a lane knows of other places that was acquired in its block before it released, or fenced to do so."""
        until = order.now if at_once else int(max(self._fenced[lane], self._sc[lane]))
        known = np.maximum(order.known(lane), order.since[lane])
        acquired = self._acquired[block]
        first = block * order.threads
        return _Passed(chain, acquired, len(acquired), lane, first, known, until, int(self._sc_met[lane]))

    def _knows(self, acquired: _Acquired, lanes: np.ndarray, order: Order) -> np.ndarray:
        """Whether lanes of the block that has acquired this know of it."""
        knows = self._sc_met[lanes] >= acquired.observed  # by a fence of their own
        if acquired.fenced is not None:
            thread = np.full(lanes.size, order.thread_in_grid(acquired.lane))
            late = order.concurrent(lanes, thread, np.full(lanes.size, acquired.fenced))
            knows |= (lanes == acquired.lane) | ~late
        return knows

    def is_known_to(self, order: Order) -> bool:
        """Whether any block of a machine has acquired anything."""
        return order is self._order and bool(self._acquired)

    def ordered(
        self, lanes: np.ndarray, threads: np.ndarray, times: np.ndarray, places: np.ndarray, order: Order
    ) -> np.ndarray:
        """Whether what threads of other blocks did is before what lanes of the machine do now.

        threads: in the grid; times: in Order's time of their machine; places: the address of a strong operation, which
        is before what follows an acquire there later; else NEVER.
        """
        result, blocks = np.zeros(lanes.size, bool), lanes // order.threads
        for block in np.intersect1d(blocks, list(self._acquired)).tolist():
            for acquired in self._acquired[block]:
                left = np.flatnonzero((blocks == block) & ~result)
                left = left[self._knows(acquired, lanes[left], order)] if left.size else left
                if not left.size:
                    continue
                result[left] = acquired.chain.covers(acquired.count, threads[left], times[left])
                for i in left[places[left] != NEVER]:
                    here = self._chains.get(int(places[i])) is acquired.chain
                    result[i] |= here and acquired.chain.last.get(int(threads[i]), acquired.count) < acquired.count
        return result
