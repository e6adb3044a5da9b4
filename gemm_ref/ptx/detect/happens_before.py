"""Happens-before between the threads of a block, or of a cluster: which accesses a barrier orders before which.

The lockstep of the reference GPU orders nothing: only barriers order two threads, neither the order in which their
instructions were executed here nor that they share a warp (since Volta lanes need `bar.warp.sync`; a shuffle or an
ldmatrix moves data, and orders no other access to memory: PTX ISA, 9.7.9 and 9.7.13).

Time is a counter that advances at each arrival. A thread's access at time t is ordered before what another thread does
now if the other has since passed a barrier at which the first arrived after t. For barriers of whole blocks a time for
each block suffices; named barriers, mbarriers and a cluster's barriers take a vector clock for each warp; a warp's own
barrier takes one for each lane.

A thread that has waited for a phase of an mbarrier is ordered after all that the arriving threads did before, and after
the bulk copies that completed their bytes there. A lane that arrives or waits stands for its warp, and one that waits
for a wgmma for its warpgroup: this may miss a race, and invents none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.events import Synchronisation
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.text.dtypes import per_lane
from gemm_ref.ptx.text.parser import Instruction

NEVER = -1
_WARPS_OF_GROUP = 4
_WIDER = {"cluster", "gpu", "sys", "gl"}  # scopes of fences and arrivals beyond a block


class Order:
    """The happens-before order among the blocks of one machine. Times are int32, lanes those of the machine.

    A unit is the number of a warp in its cluster; without clusters, in its block.
    """

    def __init__(self, machine: Lanes) -> None:
        self.now = 0
        launch = machine.launch
        self._launch = launch
        self._block = machine.block_index
        self._lane = machine.thread_of_lane % 32
        self._warp = machine.thread_of_lane // 32  # in its block
        self._warps = launch.num_warps
        self.threads = launch.threads
        self._size = math.prod(launch.cluster)
        self._units = self._size * self._warps
        self.blocks = int(self._block[-1]) + 1
        self.thread_in_grid = machine.thread_in_grid
        self._block_of = np.full(math.prod(launch.grid), NEVER, np.int32)  # of the machine, by number in the grid
        self._block_of[machine.block_of_lane] = self._block
        # All accesses of the block up to this time are ordered before now.
        self._block_clocks = np.full(self.blocks, NEVER, np.int32)
        self.block_clock = self._block_clocks[self._block]  # the same for each lane
        self.known_to_all = NEVER  # up to this time every access is ordered before what any lane does now
        # (cluster, unit, other unit): up to when a warp is ordered after another.
        self._warp_clocks: np.ndarray | None = None
        # (lane, lane of its warp): up to when a lane is ordered after another.
        self._lane_clocks: np.ndarray | None = None
        self._last_fence = np.full(machine.lanes, NEVER, np.int32)  # the time of each lane's last fence.proxy.async
        self._last_fence_of_warp: np.ndarray | None = None  # of each warp; None when it is out of date
        self._last_known: tuple[object, np.ndarray] = None, self._last_fence  # of `known_times`: for whom, and which
        # The time of each block's last release at the scope of its cluster.
        self.last_release = np.full(self.blocks, NEVER, np.int32)
        # The joined clocks of the warps that arrived: of a named barrier (block, unit), of other barriers (unit,).
        self._arrived_clocks: dict[tuple, np.ndarray] = {}
        self._phase_clocks: dict[tuple, np.ndarray] = {}  # the same for the last phase that has ended

    def on_synchronisation(self, event: Synchronisation) -> None:
        """Record an arrival at a barrier, or that it opens."""
        if event.instruction is not None and event.barrier[0] in ("mbarrier", "cluster"):
            self.release(event.instruction, event.lanes)
        if event.barrier == ("warp",):
            if event.opens:
                self._join_lanes(event)
        elif event.barrier[0] in ("mbarrier", "cluster"):
            if event.opens:
                self._learn_clocks(event.lanes, lambda block: self._phase_clocks.get(event.barrier))
            else:
                row = self._row(event.barrier)
                self._publish_clocks(event.lanes, lambda block: row)
        elif event.expected is None or (event.opens and self._are_whole_blocks(event.lanes)):
            if event.opens:
                self._join_blocks(event.lanes)
        else:  # some may have arrived without waiting
            rows = self._arrived_clocks.setdefault(event.barrier, np.full((self.blocks, self._units), NEVER, np.int32))
            if event.opens:
                self._learn_clocks(event.lanes, lambda block: rows[block])
                rows[sorted({block for block, _ in self._warps_of(event.lanes)})] = NEVER
            else:
                self._publish_clocks(event.lanes, lambda block: rows[block])
        self.now += 1

    def known_times(self, lane: int) -> np.ndarray:
        """Return by thread of its block up to when a lane is ordered after it, by barriers of parts of the block."""
        block, warp = int(self._block[lane]), int(self._warp[lane])
        key = self.now, block, warp, None if self._lane_clocks is None else lane
        if key == self._last_known[0]:  # mostly of the lane before, in the same warp
            return self._last_known[1]
        known = np.full(self.threads, NEVER, np.int32)
        if self._warp_clocks is not None:
            first, unit = self._unit(block, 0), self._unit(block, warp)
            seen = self._warp_clocks[block // self._size, unit, first : first + self._warps]
            known = np.repeat(seen, 32)[: self.threads]
        if self._lane_clocks is not None:
            mates = slice(32 * warp, min(32 * warp + 32, self.threads))
            known[mates] = np.maximum(known[mates], self._lane_clocks[lane][: known[mates].size])
        self._last_known = key, known
        return known

    def fence(self, lanes: np.ndarray | None) -> None:
        """Record a fence.proxy.async of these lanes: what they know of becomes visible to the async proxy."""
        self.now += 1
        self._last_fence[slice(None) if lanes is None else lanes] = self.now
        self._last_fence_of_warp = None
        self.now += 1

    def release(self, instruction: Instruction, lanes: np.ndarray | None) -> None:
        """Record a release of cluster scope or more: other blocks see what these lanes' blocks did before.

        It counts for whole blocks, so a fault may be missed where threads of the block are not ordered before the lane.
        """
        parts = instruction.parts
        wide = parts[:2] == ["barrier", "cluster"] or _WIDER & set(parts)
        if wide and "relaxed" not in parts and "acquire" not in parts:
            self.now += 1
            self.last_release[np.unique(self._block if lanes is None else self._block[lanes])] = self.now

    def is_unfenced(self, lanes: np.ndarray, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return whether no proxy fence of the writing thread, or of the reading warp, has followed a write.

        The arguments are those of `concurrent`; every thread is one of the machine.
        """
        block, thread = np.divmod(threads, self._launch.threads)
        writer = self._last_fence[self._block_of[block] * self._launch.threads + thread]
        if self._last_fence_of_warp is None:
            self._last_fence_of_warp = np.full(self.blocks * self._warps, NEVER, np.int32)
            np.maximum.at(self._last_fence_of_warp, self._block * self._warps + self._warp, self._last_fence)
        reader = self._last_fence_of_warp[self._block[lanes] * self._warps + self._warp[lanes]]
        return times >= np.maximum(writer, reader)

    def on_phase(self, barriers: list[tuple]) -> None:
        """Keep the clocks of phases that end, of mbarriers or clusters' barriers, for the waiting threads."""
        for barrier in barriers:
            self._phase_clocks[barrier] = self._row(barrier).copy()

    def complete_copy(self, lane: int, number: int) -> None:
        """Record that a bulk copy, started by a lane, completes at an mbarrier."""
        self.now += 1
        self._row(("mbarrier", number))[self._unit(int(self._block[lane]), int(self._warp[lane]))] = self.now
        self.now += 1

    def join_warpgroup(self, lane: int) -> None:
        """Record that the warps of a warpgroup have waited for a wgmma, which its first lane stands for."""
        block, warp = int(self._block[lane]), int(self._warp[lane])
        first = self._unit(block, warp)
        self._get_warp_clocks()[block // self._size, first : first + _WARPS_OF_GROUP, first] = self.now
        self.now += 1

    def _unit(self, block: int, warp: int) -> int:
        return block % self._size * self._warps + warp

    def _get_warp_clocks(self) -> np.ndarray:
        if self._warp_clocks is None:
            self._warp_clocks = np.full((self.blocks // self._size, self._units, self._units), NEVER, np.int32)
        return self._warp_clocks

    def _row(self, barrier: tuple) -> np.ndarray:
        """Return the joined clocks of the warps that have arrived at an mbarrier or a cluster's barrier so far."""
        return self._arrived_clocks.setdefault(barrier, np.full(self._units, NEVER, np.int32))

    def _are_whole_blocks(self, lanes: np.ndarray | None) -> bool:
        return lanes is None or bool(lanes[np.isin(self._block, self._block[lanes])].all())

    def _join_blocks(self, lanes: np.ndarray | None) -> None:
        """Record a barrier of all threads of these lanes' blocks."""
        blocks = np.arange(self.blocks) if lanes is None else np.unique(self._block[lanes])
        self._block_clocks[blocks] = self.now
        self.block_clock = self._block_clocks[self._block]
        if self._size == 1:  # a barrier of one block orders nothing of the others in its cluster
            self.known_to_all = int(self._block_clocks.min())
        # The warps of a block share what they know of other blocks.
        if self._size > 1 and self._warp_clocks is not None:
            for block in blocks.tolist():
                own = self._warp_clocks[block // self._size, self._unit(block, 0) : self._unit(block, 0) + self._warps]
                own[:] = own.max(0)

    def _publish_clocks(self, lanes: np.ndarray | None, row: Callable[[int], np.ndarray]) -> None:
        """Join the clocks of warps that arrive at a barrier into the clock of the barrier.

        row: returns the clock of the barrier for a block.
        """
        seen = self._get_warp_clocks()
        for block, warp in self._warps_of(lanes):
            unit, known = self._unit(block, warp), row(block)
            np.maximum(known, seen[block // self._size, unit], out=known)
            if self._size > 1:  # for other blocks
                own = slice(self._unit(block, 0), self._unit(block, 0) + self._warps)
                np.maximum(known[own], self._block_clocks[block], out=known[own])
            known[unit] = self.now

    def _learn_clocks(self, lanes: np.ndarray | None, row: Callable[[int], np.ndarray | None]) -> None:
        """Join the clock of a barrier that opens, if it has one, into the clocks of the warps that waited."""
        seen = self._get_warp_clocks()
        for block, warp in self._warps_of(lanes):
            known = row(block)
            if known is not None:
                mine = seen[block // self._size, self._unit(block, warp)]
                np.maximum(mine, known, out=mine)

    def _warps_of(self, lanes: np.ndarray | None) -> list[tuple[int, int]]:
        number = self._block * self._warps + self._warp
        return [divmod(int(n), self._warps) for n in np.unique(number if lanes is None else number[lanes])]

    def _join_lanes(self, event: Synchronisation) -> None:
        """Record a barrier of a warp: each lane is ordered after those of its mask, and joins their clocks."""
        if self._lane_clocks is None:
            self._lane_clocks = np.full((self._block.size, 32), NEVER, np.int32)
        member = per_lane(event.member, self._block.size)
        mates = (np.arange(self._block.size) - self._lane)[:, None] + np.arange(32)
        there = (self._warp * 32)[:, None] + np.arange(32) < self._launch.threads  # the last warp may be a partial one
        joined = (member[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool) & there
        if event.lanes is not None:
            joined &= event.lanes[:, None]
        partial = np.flatnonzero(joined.any(1) & (joined != there).any(1))
        before = self._lane_clocks.copy() if partial.size else self._lane_clocks
        for lane in partial:
            self._lane_clocks[lane] = before[mates[lane, joined[lane]]].max(0)
        self._lane_clocks[joined] = self.now

    def concurrent(self, lanes: np.ndarray, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return whether accesses of `threads` (of the lanes' clusters) at `times` are unordered with the lanes' now.

        threads: linear numbers in the grid; negative for nobody, whose accesses are ordered before everything.
        """
        if lanes.size > 1 and lanes[0] == lanes[-1]:  # one lane accesses what few threads and times have accessed
            lane = int(lanes[0])
            cuts = ((times[1:] != times[:-1]) | (threads[1:] != threads[:-1])).nonzero()[0] + 1
            if cuts.size >= lanes.size // 4:
                return self._concurrent(lane, threads, times)
            first = np.concatenate(([0], cuts))
            unordered = self._concurrent(lane, threads[first], times[first])
            if not np.count_nonzero(unordered):
                return np.zeros(lanes.size, bool)
            return np.repeat(unordered, np.diff(first, append=lanes.size))
        return self._concurrent(lanes, threads, times)

    def _concurrent(self, lanes: np.ndarray | int, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Do as `concurrent`; a single lane is that of all threads."""
        unordered = times > self.block_clock[lanes]
        if self._size > 1:  # barriers of one block order only its own threads
            elsewhere = self._block_of[threads // self._launch.threads] != self._block[lanes]
            unordered |= elsewhere & (threads >= 0)
        left = unordered.nonzero()[0]  # in a fifth of the time of np.flatnonzero
        if not left.size or (self._warp_clocks is None and self._lane_clocks is None):
            return unordered
        lane, time = lanes if isinstance(lanes, int) else lanes[left], times[left]
        other, thread = np.divmod(threads[left], self._launch.threads)
        block, warp = self._block_of[other], thread // 32
        ordered = np.zeros(left.size, bool)
        if self._warp_clocks is not None:
            mine, theirs = self._block[lane], block % self._size * self._warps + warp
            unit = mine % self._size * self._warps + self._warp[lane]
            ordered |= time <= self._warp_clocks[mine // self._size, unit, theirs]
        if self._lane_clocks is not None:
            same = (block == self._block[lane]) & (warp == self._warp[lane])
            ordered |= same & (time <= self._lane_clocks[lane, thread % 32])
        unordered[left[ordered]] = False
        return unordered
