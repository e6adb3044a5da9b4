"""Shared memory and mbarriers that are used before they are initialised, or after their block has ended.

Shared memory lives as long as the last thread of its block. Bulk copies into it that no thread has waited for may land
later; and what other blocks of a cluster do there (an arrival at an mbarrier, a multicast copy, a store) must be
ordered before the exit of one of the block's threads: the cluster has to meet at a barrier at the end.

`mbarrier.init` is a write like any other: a barrier of the block, or of the cluster, must be between it and another
thread's use. Blocks of a cluster need a release of cluster scope besides, which `fence.mbarrier_init` is for inits
alone (PTX ISA, 9.7.13.4); in one block the barrier between the two is a release already.
"""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.events import Access, BarrierUse, BulkAccess
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.detect.finding import ENDED, RACE, Scene
from gemm_ref.ptx.detect.happens_before import Order
from gemm_ref.ptx.detect.races import NOBODY
from gemm_ref.ptx.text.parser import Instruction

_CLUSTER = "accesses shared memory of block {}, whose threads may all have left by then, at {}: let the cluster meet"
_CLUSTER += " at a barrier (barrier.cluster) before its blocks end"
_COPY = "starts a copy into shared memory of block {}, whose threads leave at {} without having waited for it: it may"
_COPY += " land later, in memory of another block. Wait for every copy, and start only those that are needed"


class LifetimeFaults:
    """Watches the accesses of other blocks, and of copies, to the shared memory of a machine's blocks."""

    def __init__(self, machine: Lanes, scene: Scene, order: Order) -> None:
        self._machine, self._scene, self._order = machine, scene, order
        self._exited = np.zeros(machine.lanes, bool)
        # By block and thread in the grid: when and where that thread last accessed the memory of that block. Whoever is
        # ordered after that access is ordered after the earlier ones too.
        self._latest: dict[int, dict[int, tuple[int, Instruction]]] = {}
        self._copies: dict[int, dict[tuple, BulkAccess]] = {}  # in flight, by block

    def on_mbarrier(self, use: BarrierUse) -> None:
        self._record_access(use.instruction, use.lanes, use.numbers * 8 // max(self._machine.shared.stride, 1))

    def on_access(self, access: Access) -> None:
        if access.owners is not None:
            lanes = np.arange(self._machine.lanes) if access.lanes is None else np.flatnonzero(access.lanes)
            self._record_access(access.instruction, lanes, access.owners[lanes])

    def on_bulk(self, access: BulkAccess) -> None:
        self._record_access(access.instruction, np.array([access.lane]), np.array([access.block]))
        if access.kind != "async store":
            return
        copies, key = self._copies.setdefault(access.block, {}), (id(access.instruction), int(access.addresses[0]))
        if access.started:
            copies[key] = access
        else:
            copies.pop(key, None)

    def _record_access(self, instruction: Instruction, lanes: np.ndarray, blocks: np.ndarray) -> None:
        remote = blocks != self._machine.block_index[lanes]
        threads = self._machine.thread_in_grid[lanes[remote]]
        for block, thread in zip(blocks[remote].tolist(), threads.tolist(), strict=True):
            self._latest.setdefault(block, {})[thread] = (self._order.now, instruction)

    def on_leave(self, instruction: Instruction, lanes: np.ndarray | None) -> None:
        """Drop the accesses that are ordered before the exit of these lanes; report the rest when a block ends."""
        leaving = np.ones(self._exited.size, bool) if lanes is None else lanes
        self._exited |= leaving
        for block in self._latest.keys() | self._copies.keys():
            own = self._machine.block_index == block
            own_lanes = np.flatnonzero(leaving & own)
            if not own_lanes.size:
                continue
            self._drop_ordered(own_lanes, self._latest.get(block, {}))
            if self._exited[own].all():
                for thread, (_, at) in self._latest.pop(block, {}).items():
                    self._report(at, thread, instruction, own_lanes[0], _CLUSTER)
                for access in self._copies.pop(block, {}).values():
                    thread = int(self._machine.thread_in_grid[access.lane])
                    self._report(access.instruction, thread, instruction, own_lanes[0], _COPY)

    def _drop_ordered(self, own_lanes: np.ndarray, latest: dict[int, tuple[int, Instruction]]) -> None:
        """Drop the accesses that are ordered before the exit of one of these lanes."""
        if not latest:
            return
        threads, times = np.array(list(latest)), np.array([time for time, _ in latest.values()])
        every = np.repeat(own_lanes, threads.size), np.tile(threads, own_lanes.size), np.tile(times, own_lanes.size)
        unknown = self._order.concurrent(*every).reshape(own_lanes.size, threads.size)
        for thread in threads[~unknown.all(0)].tolist():
            del latest[thread]

    def _report(self, here: Instruction, thread: int, leaves: Instruction, lane: int, text: str) -> None:
        last = int(self._machine.thread_in_grid[lane])
        text = text.format(self._scene.coordinates_of(last)[0], leaves.line_seen_from(here))
        self._scene.report(ENDED, here, thread, text, last, leaves)


_UNORDERED = "and no barrier orders the two: put __syncthreads(), or a barrier of the cluster, between them"
_UNRELEASED = "and another block of the cluster may not see that yet: put fence.mbarrier_init after it"


class MBarrierFaults:
    """Watches the initialisation of the mbarriers of one machine, by their numbers."""

    def __init__(self, machine: Lanes, scene: Scene, order: Order) -> None:
        self._scene, self._order = scene, order
        self._per_block = max(machine.shared.stride // 8, 1)
        words = self._per_block * order.blocks
        self._thread = np.full(words, NOBODY, np.int64)  # that has initialised it, by number in the grid
        self._time = np.zeros(words, np.int32)
        self._instruction = np.zeros(words, np.int32)

    def on_mbarrier(self, use: BarrierUse) -> None:
        scene, order, lanes, numbers = self._scene, self._order, use.lanes, use.numbers
        threads = use.machine.thread_in_grid[lanes]
        if use.initialises:
            self._thread[numbers], self._time[numbers] = threads, order.now
            self._instruction[numbers] = scene.number(use.instruction)
            return
        first, time = self._thread[numbers], self._time[numbers]
        others = (first != NOBODY) & (first != threads)
        unordered = others & order.concurrent(lanes, first, time)
        blocks = numbers // self._per_block
        remote = others & (blocks != use.machine.block_index[lanes])
        self._report(use, threads, unordered, _UNORDERED)
        self._report(use, threads, remote & ~unordered & (time >= order.last_release[blocks]), _UNRELEASED)

    def _report(self, use: BarrierUse, threads: np.ndarray, wrong: np.ndarray, why: str) -> None:
        if not wrong.any():
            return
        scene, at = self._scene, int(np.argmax(wrong))
        number = int(use.numbers[at])
        there = scene.instructions[self._instruction[number]]
        first, name = self._thread[number], scene.describe_shared(number % self._per_block * 8)
        text = (
            f"uses the mbarrier at {name}, which {scene.describe_thread(first, threads[at])} initialises at "
            f"{there.line_seen_from(use.instruction)}, {why}"
        )
        scene.report(RACE, use.instruction, threads[at], text, first, there, int(wrong.sum()))
