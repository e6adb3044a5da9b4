"""Happens-before between the threads of a block, or of a cluster: which accesses a barrier has put before which.

Lockstep is an accident of the reference GPU, so nothing but a barrier orders two threads: not the order in which
instructions were executed here, and not that two lanes share a warp (since Volta they need `bar.warp.sync`; a shuffle
or an ldmatrix moves data, and orders no other access to memory: PTX ISA, 9.7.9 and 9.7.13).

Time is a counter that steps on at each arrival. A thread's access at time t is ordered before what another thread does
now if the other has since passed a barrier that the first had reached after t: for a barrier of the whole block a time
for each block tells, for named barriers, mbarriers and a cluster's a time for each pair of its warps (a vector clock),
and for a warp's own barrier a time for each pair of its lanes.

Whoever waits for a phase of an mbarrier knows what those that arrived in it did before, and that the bulk copies of
their bytes have happened. A lane that arrives or waits speaks for its warp, and one that waits for a wgmma, for its
warpgroup: this may pass over a race, and makes none up.
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
_WIDER = {"cluster", "gpu", "sys", "gl"}  # than a block, as scopes of fences and arrivals are called


class Order:
    """What is ordered among the blocks of one machine. Times are int32, lanes those of the machine.

    A unit is a warp of a cluster, by number; without clusters, a warp of its block.
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
        self._grid_block = machine.block_of_lane[:: launch.threads]  # and back
        self._block_of = np.full(math.prod(launch.grid), NEVER, np.int32)  # of the machine, by number in the grid
        self._block_of[machine.block_of_lane] = self._block
        self._since = np.full(self.blocks, NEVER, np.int32)  # everything of the block up to then is ordered before now
        self.since = self._since[self._block]  # the same for each lane
        self._seen: np.ndarray | None = None  # (cluster, unit, other unit): what a warp knows of another
        self._met: np.ndarray | None = None  # (lane, lane of its warp): what a lane knows of another
        self.fenced = np.full(machine.lanes, NEVER, np.int32)  # when each lane last executed a fence.proxy.async
        self._fenced_by_warp: np.ndarray | None = None  # the latest of each warp's, until there is a later one
        self.released = np.full(self.blocks, NEVER, np.int32)  # when each block last released to others of its cluster
        # What those that arrived know: of a named barrier (block, unit), of an mbarrier or a cluster's (unit,).
        self._reached: dict[tuple, np.ndarray] = {}
        self._ended: dict[tuple, np.ndarray] = {}  # the same of the last phase that has ended

    def on_synchronisation(self, event: Synchronisation) -> None:
        """Take note of an arrival, or of an opening."""
        if event.instruction is not None and event.barrier[0] in ("mbarrier", "cluster"):
            self.release(event.instruction, event.lanes)
        if event.barrier == ("warp",):
            if event.opens:
                self._join_lanes(event)
        elif event.barrier[0] in ("mbarrier", "cluster"):
            if event.opens:
                self._learn(event.lanes, lambda block: self._ended.get(event.barrier))
            else:
                row = self._row(event.barrier)
                self._publish(event.lanes, lambda block: row)
        elif event.expected is None or (event.opens and self._are_whole_blocks(event.lanes)):
            if event.opens:
                self._join_blocks(event.lanes)
        else:  # some may have arrived without waiting
            rows = self._reached.setdefault(event.barrier, np.full((self.blocks, self._units), NEVER, np.int32))
            if event.opens:
                self._learn(event.lanes, lambda block: rows[block])
                rows[sorted({block for block, _ in self._warps_of(event.lanes)})] = NEVER
            else:
                self._publish(event.lanes, lambda block: rows[block])
        self.now += 1

    def step(self) -> None:
        """What comes is after what was."""
        self.now += 1

    def known(self, lane: int) -> np.ndarray:
        """By thread of its block, up to when a lane knows what it did: by barriers of some of the block's threads."""
        known = np.full(self.threads, NEVER, np.int32)
        block, warp = int(self._block[lane]), int(self._warp[lane])
        if self._seen is not None:
            first, unit = self._unit(block, 0), self._unit(block, warp)
            seen = self._seen[block // self._size, unit, first : first + self._warps]
            known = np.repeat(seen, 32)[: self.threads]
        if self._met is not None:
            mates = slice(32 * warp, min(32 * warp + 32, self.threads))
            known[mates] = np.maximum(known[mates], self._met[lane][: known[mates].size])
        return known

    def thread_in_grid(self, lane: int) -> int:
        """The number of a lane in the whole grid."""
        return int(self._grid_block[self._block[lane]]) * self.threads + lane % self.threads

    def fence(self, lanes: np.ndarray | None) -> None:
        """These lanes make what they know of visible to the asynchronous units (fence.proxy.async)."""
        self.now += 1
        self.fenced[slice(None) if lanes is None else lanes] = self.now
        self._fenced_by_warp = None
        self.now += 1

    def release(self, instruction: Instruction, lanes: np.ndarray | None) -> None:
        """If this releases at the scope of a cluster or more, other blocks can see what these lanes' blocks did before.

        That whole blocks do is passing over a fault, where other threads of the block have not yet met this one.
        """
        parts = instruction.parts
        wide = parts[:2] == ["barrier", "cluster"] or _WIDER & set(parts)
        if wide and "relaxed" not in parts and "acquire" not in parts:
            self.now += 1
            self.released[np.unique(self._block if lanes is None else self._block[lanes])] = self.now

    def unfenced(self, lanes: np.ndarray, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Whether no fence of the thread that did something, or of the warp that asks, has followed it.

        As for `concurrent`; every thread is one of the machine.
        """
        block, thread = np.divmod(threads, self._launch.threads)
        writer = self.fenced[self._block_of[block] * self._launch.threads + thread]
        if self._fenced_by_warp is None:
            self._fenced_by_warp = np.full(self.blocks * self._warps, NEVER, np.int32)
            np.maximum.at(self._fenced_by_warp, self._block * self._warps + self._warp, self.fenced)
        reader = self._fenced_by_warp[self._block[lanes] * self._warps + self._warp[lanes]]
        return times >= np.maximum(writer, reader)

    def on_phase(self, barriers: list[tuple]) -> None:
        """Phases of mbarriers or clusters' barriers end: what is known there is known to whoever waits for them."""
        for barrier in barriers:
            self._ended[barrier] = self._row(barrier).copy()

    def land(self, lane: int, number: int) -> None:
        """A bulk copy that a lane has started completes its bytes at an mbarrier."""
        self.now += 1
        self._row(("mbarrier", number))[self._unit(int(self._block[lane]), int(self._warp[lane]))] = self.now
        self.now += 1

    def join_warpgroup(self, lane: int) -> None:
        """The warps of a lane's warpgroup have waited for what that lane, its first, stands for."""
        block, warp = int(self._block[lane]), int(self._warp[lane])
        first = self._unit(block, warp)
        self._clocks()[block // self._size, first : first + _WARPS_OF_GROUP, first] = self.now
        self.now += 1

    def _unit(self, block: int, warp: int) -> int:
        return block % self._size * self._warps + warp

    def _clocks(self) -> np.ndarray:
        if self._seen is None:
            self._seen = np.full((self.blocks // self._size, self._units, self._units), NEVER, np.int32)
        return self._seen

    def _row(self, barrier: tuple) -> np.ndarray:
        """What those know that have arrived at an mbarrier, or a cluster's barrier, so far."""
        return self._reached.setdefault(barrier, np.full(self._units, NEVER, np.int32))

    def _are_whole_blocks(self, lanes: np.ndarray | None) -> bool:
        return lanes is None or bool(lanes[np.isin(self._block, self._block[lanes])].all())

    def _join_blocks(self, lanes: np.ndarray | None) -> None:
        """All threads of these lanes' blocks have met."""
        blocks = np.arange(self.blocks) if lanes is None else np.unique(self._block[lanes])
        self._since[blocks] = self.now
        self.since = self._since[self._block]
        if self._size > 1 and self._seen is not None:  # and know the same of other blocks
            for block in blocks.tolist():
                own = self._seen[block // self._size, self._unit(block, 0) : self._unit(block, 0) + self._warps]
                own[:] = own.max(0)

    def _publish(self, lanes: np.ndarray | None, row: Callable[[int], np.ndarray]) -> None:
        """Warps reach a barrier: whoever it lets go will know what they know, and all they did until now.

        row: the clock of the barrier where a block reaches it.
        """
        seen = self._clocks()
        for block, warp in self._warps_of(lanes):
            unit, known = self._unit(block, warp), row(block)
            np.maximum(known, seen[block // self._size, unit], out=known)
            if self._size > 1:  # for other blocks
                own = slice(self._unit(block, 0), self._unit(block, 0) + self._warps)
                np.maximum(known[own], self._since[block], out=known[own])
            known[unit] = self.now

    def _learn(self, lanes: np.ndarray | None, row: Callable[[int], np.ndarray | None]) -> None:
        """A barrier opens for these lanes' warps: they know from now on what its clock says, if it has one."""
        seen = self._clocks()
        for block, warp in self._warps_of(lanes):
            known = row(block)
            if known is not None:
                mine = seen[block // self._size, self._unit(block, warp)]
                np.maximum(mine, known, out=mine)

    def _warps_of(self, lanes: np.ndarray | None) -> list[tuple[int, int]]:
        number = self._block * self._warps + self._warp
        return [divmod(int(n), self._warps) for n in np.unique(number if lanes is None else number[lanes])]

    def _join_lanes(self, event: Synchronisation) -> None:
        """Lanes of a warp have met: each and those in its mask, which pass on whom they have met before."""
        if self._met is None:
            self._met = np.full((self._block.size, 32), NEVER, np.int32)
        member = per_lane(event.member, self._block.size)
        mates = (np.arange(self._block.size) - self._lane)[:, None] + np.arange(32)
        there = (self._warp * 32)[:, None] + np.arange(32) < self._launch.threads  # the last warp may be a partial one
        joined = (member[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool) & there
        if event.lanes is not None:
            joined &= event.lanes[:, None]
        some = np.flatnonzero(joined.any(1) & (joined != there).any(1))
        before = self._met.copy() if some.size else self._met
        for lane in some:
            self._met[lane] = before[mates[lane, joined[lane]]].max(0)
        self._met[joined] = self.now

    def concurrent(self, lanes: np.ndarray, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Whether what `threads` (of the lanes' clusters) did at `times` has no order with what the lanes do now.

        threads: numbers in the whole grid, negative for nobody, whose accesses are before everything.
        """
        if lanes.size > 1 and lanes[0] == lanes[-1]:  # one lane's, and what it touches was touched in few pieces
            lane = int(lanes[0])
            cuts = np.flatnonzero((times[1:] != times[:-1]) | (threads[1:] != threads[:-1])) + 1
            if cuts.size >= lanes.size // 4:
                return self._concurrent(lane, threads, times)
            first = np.concatenate(([0], cuts))
            loose = self._concurrent(lane, threads[first], times[first])
            if not np.count_nonzero(loose):
                return np.zeros(lanes.size, bool)
            return np.repeat(loose, np.diff(first, append=lanes.size))
        return self._concurrent(lanes, threads, times)

    def _concurrent(self, lanes: np.ndarray | int, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
        """As `concurrent`; a lane by itself is that of all threads."""
        loose = times > self.since[lanes]
        if self._size > 1:  # barriers of a block alone are for its own threads
            elsewhere = self._block_of[threads // self._launch.threads] != self._block[lanes]
            loose |= elsewhere & (threads >= 0)
        left = np.flatnonzero(loose)
        if not left.size or (self._seen is None and self._met is None):
            return loose
        lane, time = lanes if isinstance(lanes, int) else lanes[left], times[left]
        other, thread = np.divmod(threads[left], self._launch.threads)
        block, warp = self._block_of[other], thread // 32
        ordered = np.zeros(left.size, bool)
        if self._seen is not None:
            mine, theirs = self._block[lane], block % self._size * self._warps + warp
            unit = mine % self._size * self._warps + self._warp[lane]
            ordered |= time <= self._seen[mine // self._size, unit, theirs]
        if self._met is not None:
            same = (block == self._block[lane]) & (warp == self._warp[lane])
            ordered |= same & (time <= self._met[lane, thread % 32])
        loose[left[ordered]] = False
        return loose
