"""Order between blocks: a release in one block synchronizes with an acquire in another that reads the released value.

PTX ISA, 8.6 to 8.9. A block releases by an atomic or a store of GPU scope that is a release itself, or that follows a
fence of the same thread. It acquires by an atomic or a load that is an acquire itself, or that such a fence follows, if
it reads the released value: at the same address, from the last store or an atomic since. The barriers of a block extend
both: a release covers all that its thread knows of, and threads that synchronize with the acquiring one know the same.
Of fences that are `.sc`, as CUDA's `__threadfence()`, that of any thread counts which synchronizes with the thread of
the atomic, since all of them have one order.

The order is that of this run, in which the blocks execute by their numbers. Blocks of a later machine are ordered
behind those of an earlier one only if they have acquired from it. Limit: what a cluster's barrier orders in global
memory is not known.
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
    """Return whether an operation is strong: it may overlap with others of its kind (PTX ISA, 8.2.1)."""
    return instruction.parts[0] in ATOMIC or not _STRONG.isdisjoint(instruction.parts)


def reaches_all(instruction: Instruction) -> bool:
    """Return whether the scope of a strong operation includes the threads of other blocks."""
    return _NARROW.isdisjoint(instruction.parts)


@dataclass(frozen=True)
class _Acquired:
    """A lane has read a value that was released at an address."""

    chain: _Chain
    count: int  # of the chain's releases
    lane: int  # of the machine
    observed: int  # the time in Order
    fenced: int | None  # the time from which the lane itself has acquired it; None until a fence follows


@dataclass(eq=False)
class _Inherited:
    """What a releasing lane knows of earlier acquisitions of its block at other addresses; computed when needed."""

    chain: _Chain  # where it releases
    acquired: list[_Acquired]  # of its block; the list grows
    number: int  # of acquisitions when it releases
    lane: int
    first: int  # lane of its block
    known: np.ndarray  # by thread of its block: the time up to which it knows that thread
    until: int  # the time of the release, or of the fence before it
    clock_at_sc_fence: int  # the block clock at its last fence that is .sc

    @functools.cached_property
    def acquisitions(self) -> list[_Acquired]:
        before = [one for one in self.acquired[: self.number] if one.chain is not self.chain]
        return [one for one in before if (one.fenced or 0) <= self.until and self._knows(one)]

    def _knows(self, acquired: _Acquired) -> bool:
        if self.clock_at_sc_fence >= acquired.observed:
            return True
        own = acquired.lane == self.lane
        return acquired.fenced is not None and (own or int(self.known[acquired.lane - self.first]) >= acquired.fenced)


@dataclass(eq=False)  # compared by identity
class _Chain:
    """The release sequence at an address: the last store, and the atomics since, in their order."""

    threads: int  # of a block
    count: int = 0  # of operations
    # By block in the grid: (place in the chain, by thread the time up to which its accesses are released).
    known: dict[int, list[tuple[int, np.ndarray]]] = field(default_factory=dict)
    inherited: list[tuple[int, _Inherited]] = field(default_factory=list)  # from earlier acquisitions
    last: dict[int, int] = field(default_factory=dict)  # by thread in the grid: place of its last operation

    def covers(self, count: int, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return whether accesses at these times are released by the first `count` operations, or were inherited."""
        covered = np.zeros(threads.size, bool)
        blocks, thread = np.divmod(threads, self.threads)
        for chain, number in self._walk(count, {}):
            for block in np.unique(blocks[~covered]).tolist():
                chosen = np.flatnonzero(blocks == block)
                for place, known in chain.known.get(block, ()):
                    if place < number:
                        covered[chosen] |= times[chosen] <= known[thread[chosen]]
            if covered.all():
                break
        return covered

    def _walk(self, count: int, seen: dict[int, int]) -> Iterator[tuple[_Chain, int]]:
        if seen.get(id(self), 0) >= count:
            return
        seen[id(self)] = count
        yield self, count
        for place, source in self.inherited:
            if place < count:
                for acquired in source.acquisitions:
                    yield from acquired.chain._walk(acquired.count, seen)


class GpuOrder:
    """The order that atomics, strong loads and stores, and fences establish among the blocks of a launch."""

    def __init__(self) -> None:
        self._chains: dict[int, _Chain] = {}  # by address
        self._order: Order | None = None

    def _enter_machine(self, order: Order, lanes: int) -> None:
        if order is not self._order:
            self._order = order
            # Of each lane: the time of its last fence, and the block clock then; the same for fences that are .sc.
            self._last_fence, self._clock_at_fence = np.full((2, lanes), NEVER, np.int32)
            self._last_sc_fence, self._clock_at_sc_fence = np.full((2, lanes), NEVER, np.int32)
            self._acquired: dict[int, list[_Acquired]] = {}  # by block of the machine
            self._places: dict[tuple[int, int, int], int] = {}  # in such a list: by chain, count and lane

    def fence(self, instruction: Instruction, lanes: np.ndarray | None, machine: Lanes, order: Order) -> None:
        """Record that these lanes execute a fence or membar that is no proxy fence."""
        parts = set(instruction.parts)
        if parts.isdisjoint(_FENCES):
            return
        self._enter_machine(order, machine.lanes)
        at = slice(None) if lanes is None else lanes
        self._last_fence[at], self._clock_at_fence[at] = order.now, order.block_clock[at]
        if parts & {"membar", "sc"}:
            self._last_sc_fence[at], self._clock_at_sc_fence[at] = order.now, order.block_clock[at]
        for each in self._acquired.values():
            for i, acquired in enumerate(each):
                if acquired.fenced is None and (lanes is None or lanes[acquired.lane]):
                    each[i] = _Acquired(acquired.chain, acquired.count, acquired.lane, acquired.observed, order.now)
        order.now += 1

    def on_access(self, access: Access, order: Order) -> None:
        """Record an atomic, load or store in global memory."""
        instruction = access.instruction
        if not (is_strong(instruction) and reaches_all(instruction)):
            return
        machine, parts = access.machine, set(instruction.parts)
        self._enter_machine(order, machine.lanes)
        lanes = np.arange(machine.lanes) if access.lanes is None else np.flatnonzero(access.lanes)
        releases = not parts.isdisjoint(("release", "acq_rel"))
        fenced = (self._last_fence[lanes] != NEVER).any() or (self._last_sc_fence != NEVER).any()
        if not (releases or self._chains or fenced):
            return  # nothing is released anywhere
        acquires = not parts.isdisjoint(("acquire", "acq_rel"))
        addresses = per_lane(access.addresses, machine.lanes)
        for lane in lanes.tolist():
            address, block = int(addresses[lane]), int(machine.block_index[lane])
            chain = self._chains.get(address)
            if instruction.parts[0] in ("atom", "ld") and chain is not None:
                self._observe(_Acquired(chain, chain.count, lane, order.now, order.now if acquires else None), block)
            if access.kind == "load":
                continue
            if chain is None or access.kind == "store":
                chain = self._chains[address] = _Chain(machine.launch.threads)
            known = self._times_at_release(lane, block, releases, order)
            if known is not None:
                chain.known.setdefault(int(machine.block_of_lane[lane]), []).append((chain.count, known))
                if block in self._acquired:
                    chain.inherited.append((chain.count, self._inherit(lane, block, releases, chain, order)))
            chain.last[int(machine.thread_in_grid[lane])] = chain.count
            chain.count += 1
        order.now += 1

    def _observe(self, acquired: _Acquired, block: int) -> None:
        before = self._acquired.setdefault(block, [])
        place = self._places.setdefault((id(acquired.chain), acquired.count, acquired.lane), len(before))
        if place == len(before):
            before.append(acquired)
        elif before[place].fenced is None:  # a loop that waits for a change
            before[place] = acquired

    def _times_at_release(self, lane: int, block: int, at_once: bool, order: Order) -> np.ndarray | None:
        """Return by thread of its block the time up to which an operation of a lane releases; None if it does not."""
        size = order.threads
        mates, clock = slice(block * size, (block + 1) * size), int(order.block_clock[lane])
        own = order.known_times(lane)
        if at_once:
            known = np.maximum(own, clock)
            known[lane - block * size] = order.now
            return known
        if self._last_fence[lane] == NEVER and (self._last_sc_fence[mates] == NEVER).all():
            return None
        known = np.maximum(np.minimum(own, self._last_fence[lane]), self._clock_at_fence[lane])
        known[lane - block * size] = self._last_fence[lane]
        return np.maximum(known, np.minimum(np.maximum(own, clock), self._last_sc_fence[mates]))

    def _inherit(self, lane: int, block: int, at_once: bool, chain: _Chain, order: Order) -> _Inherited:
        """Return what a releasing lane knows of what its block has acquired at other addresses."""
        until = order.now if at_once else int(max(self._last_fence[lane], self._last_sc_fence[lane]))
        known = np.maximum(order.known_times(lane), order.block_clock[lane])
        acquired, first = self._acquired[block], block * order.threads
        return _Inherited(chain, acquired, len(acquired), lane, first, known, until, int(self._clock_at_sc_fence[lane]))

    def _knows(self, acquired: _Acquired, lanes: np.ndarray, order: Order) -> np.ndarray:
        """Return whether lanes of the block that has acquired this know of it."""
        knows = self._clock_at_sc_fence[lanes] >= acquired.observed  # by a fence of their own
        if acquired.fenced is not None:
            thread = np.full(lanes.size, order.thread_in_grid[acquired.lane])
            late = order.concurrent(lanes, thread, np.full(lanes.size, acquired.fenced))
            knows |= (lanes == acquired.lane) | ~late
        return knows

    def is_known_to(self, order: Order) -> bool:
        """Return whether any block of a machine has acquired anything."""
        return order is self._order and bool(self._acquired)

    def ordered(
        self, lanes: np.ndarray, threads: np.ndarray, times: np.ndarray, places: np.ndarray, order: Order
    ) -> np.ndarray:
        """Return whether accesses of threads of other blocks are ordered before what lanes of the machine do now.

        threads: in the grid; times: of their machine's Order; places: the address of a strong operation, which is
        ordered before whatever follows a later acquire at that address; else NEVER.
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
