"""Happens-before between the threads of a block: which accesses a barrier has put before which.

Lockstep is an accident of the reference GPU, so nothing but a barrier orders two threads: not the order in which
instructions were executed here, and not that two lanes share a warp (since Volta they need `bar.warp.sync`; a shuffle
or an ldmatrix moves data, and orders no other access to memory: PTX ISA, 9.7.9 and 9.7.13).

Time is a counter that steps on at each arrival. A thread's access at time t is ordered before what another thread does
now if the other has since passed a barrier that the first had reached after t: for a barrier of the whole block a time
for each block tells, for named barriers of some warps a time for each pair of warps (a vector clock), and for a warp's
own barrier a time for each pair of its lanes.
"""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.observe import Synchronisation

NEVER = -1


class Order:
    """What is ordered among the blocks of one machine. Times are int32, lanes those of the machine."""

    def __init__(self, machine) -> None:
        self.now = 0
        self._launch = machine.launch
        self._block = machine.block_index
        self._lane = machine.thread_of_lane % 32
        self._warp = machine.thread_of_lane // 32  # in its block
        self._warps = machine.launch.num_warps
        self.blocks = int(self._block[-1]) + 1
        self._since = np.full(self.blocks, NEVER, np.int32)  # everything of the block up to then is ordered before now
        self.since = self._since[self._block]  # the same for each lane
        self._seen: np.ndarray | None = None  # (block, warp, other warp): what a warp knows of another
        self._met: np.ndarray | None = None  # (lane, lane of its warp): what a lane knows of another
        self._reached: dict[tuple, np.ndarray] = {}  # named barrier -> (block, warp): what those that arrived know

    def on_synchronisation(self, event: Synchronisation) -> None:
        """Take note of an arrival, or of an opening."""
        if event.barrier == ("warp",):
            if event.opens:
                self._join_lanes(event)
        elif event.expected in (None, self._launch.threads):
            if event.opens:
                self._join_blocks(event.lanes)
        elif event.opens:
            self._acquire(event)
        else:
            self._publish(event)
        self.now += 1

    def _join_blocks(self, lanes: np.ndarray | None) -> None:
        """All threads of these lanes' blocks have met."""
        self._since[slice(None) if lanes is None else np.unique(self._block[lanes])] = self.now
        self.since = self._since[self._block]

    def _publish(self, event: Synchronisation) -> None:
        """Warps reach a named barrier: whoever it lets go will know what they know, and all they did until now."""
        if self._seen is None:
            self._seen = np.full((self.blocks, self._warps, self._warps), NEVER, np.int32)
        reached = self._reached.setdefault(event.barrier, np.full((self.blocks, self._warps), NEVER, np.int32))
        for block, warp in self._warps_of(event.lanes):
            np.maximum(reached[block], self._seen[block, warp], out=reached[block])
            reached[block, warp] = self.now

    def _acquire(self, event: Synchronisation) -> None:
        """A named barrier opens for these lanes' warps."""
        reached = self._reached[event.barrier]
        opened = set()
        for block, warp in self._warps_of(event.lanes):
            np.maximum(self._seen[block, warp], reached[block], out=self._seen[block, warp])
            opened.add(block)
        reached[sorted(opened)] = NEVER

    def _warps_of(self, lanes: np.ndarray | None) -> list[tuple[int, int]]:
        number = self._block * self._warps + self._warp
        return [divmod(int(n), self._warps) for n in np.unique(number if lanes is None else number[lanes])]

    def _join_lanes(self, event: Synchronisation) -> None:
        """Lanes of a warp have met: each and those in its mask, which pass on whom they have met before."""
        if self._met is None:
            self._met = np.full((self._block.size, 32), NEVER, np.int32)
        member = np.broadcast_to(event.member, self._block.size)
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
        """Whether what `threads` (of the lanes' blocks) did at `times` has no order with what the lanes do now."""
        loose = times > self.since[lanes]
        if not loose.any() or (self._seen is None and self._met is None):
            return loose
        left = np.flatnonzero(loose)
        lane, thread, time = lanes[left], threads[left], times[left]
        warp = thread // 32
        ordered = np.zeros(left.size, bool)
        if self._seen is not None:
            ordered |= time <= self._seen[self._block[lane], self._warp[lane], warp]
        if self._met is not None:
            ordered |= (warp == self._warp[lane]) & (time <= self._met[lane, thread % 32])
        loose[left[ordered]] = False
        return loose
