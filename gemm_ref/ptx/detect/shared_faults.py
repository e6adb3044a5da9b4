"""Faults in shared memory: races, reads of what nobody wrote, and of copies that were not waited for."""

from __future__ import annotations

import numpy as np

from gemm_ref.launch import cdiv
from gemm_ref.ptx.core.events import Access, BulkAccess
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.detect.finding import EARLY, RACE, UNWRITTEN, Scene
from gemm_ref.ptx.detect.happens_before import Order
from gemm_ref.ptx.detect.races import NOBODY, READS, WIDEST, WRITES, Mark, Races, Shadow, Touch
from gemm_ref.ptx.text.dtypes import per_lane
from gemm_ref.ptx.text.parser import Instruction

UNFENCED = "wrote without a fence"  # an action of the other thread, in addition to those of races.py


def _is_bulk(instruction: Instruction) -> bool:
    return instruction.parts[:3] == ["cp", "async", "bulk"]


class SharedFaults(Races):
    """Watches the shared memory of the blocks of one machine.

    An asynchronous copy may write at any time from its start to the wait for it. It is checked as a write when it
    starts; nobody may access its target until it completes; for other threads the write happened when it completed. A
    wgmma or a bulk store may read all that time: it is checked as a read when it starts; nobody may write what it reads
    until it was waited for; for other threads the read happened then.
    """

    def __init__(self, machine: Lanes, scene: Scene, order: Order) -> None:
        self._order, self._machine = order, machine
        self._size = machine.shared.size
        self._pitch = cdiv(self._size, WIDEST) * WIDEST  # of a block's part of the shadow, in bytes
        self._first_byte = machine.block_index * self._pitch  # of each lane's block, in the shadow
        super().__init__(scene, Shadow(self._pitch * order.blocks))

    def on_access(self, access: Access) -> None:
        touch = self._located(access)
        if touch is not None:
            self.load(touch) if access.kind == "load" else self.store(touch)

    def on_bulk(self, access: BulkAccess) -> None:
        """Check an access of an asynchronous unit when it may begin, and record it when it has happened."""
        lanes = np.full(access.addresses.size, access.lane)
        touch = self._make_touch(access, lanes, access.addresses + access.block * self._pitch, self._order.now)
        shadow, reads = self.shadow, access.kind == "async load"
        if access.started and reads:
            unordered = self.concurrent(touch, shadow.writer)
            self._look_for_fence(touch, unordered)
            self.load(touch, unordered)
            self._count_readers(touch, 1)
        elif access.started:
            self.store(touch)
        elif reads:
            self._count_readers(touch, -1)
            shadow.read(touch, self.concurrent)
            if access.instruction.parts[0] == "wgmma":
                self._order.join_warpgroup(access.lane)
        else:
            shadow.in_flight[touch.elements] = False
            shadow.writer.postpone(touch)
            if access.barrier is not None:
                self._order.complete_copy(access.lane, access.barrier)

    def _count_readers(self, touch: Touch, more: int) -> None:
        np.add.at(self.shadow.being_read, touch.elements, np.int32(more))  # a wgmma may read an element twice

    def _look_for_fence(self, touch: Touch, unordered: np.ndarray) -> None:
        """Check that writes of the generic proxy were fenced before the async proxy reads them.

        unordered: the entries whose write is not even ordered before, which is reported by itself.
        """
        if not self.shadow.has_generic_writes:
            return
        writer, at = self.shadow.writer, touch.elements
        generic = ~self.scene.test(_is_bulk)[writer.instruction[at]] & ~self.shadow.in_flight[at]
        generic &= writer.thread[at] != NOBODY
        if not np.count_nonzero(generic):
            return
        entries = generic.nonzero()[0]
        thread, time = writer.thread[at[entries]], writer.time[at[entries]]
        generic[entries] = self._order.is_unfenced(touch.lanes[entries], thread, time)
        self.report(RACE, touch, writer, generic & ~unordered, action=UNFENCED)

    def on_landing(self, access: Access) -> None:
        touch = self._located(access)
        if touch is not None:
            self.shadow.in_flight[touch.elements] = False
            self.shadow.writer.postpone(touch)

    def _located(self, access: Access) -> Touch | None:
        machine, lanes = self._machine, self._machine.every_lane
        addresses = per_lane(access.addresses, machine.lanes)
        first = self._first_byte if access.owners is None else access.owners * self._pitch
        if access.lanes is not None:
            lanes = access.lanes.nonzero()[0]
            addresses, first = addresses[lanes], first[lanes]
        low, high = int(np.minimum.reduce(addresses)), int(np.maximum.reduce(addresses))
        bits = int(np.bitwise_or.reduce(addresses))
        if low < 0 or high + access.size > self._size or bits & (access.size - 1):
            return None  # the machine is about to stop at it
        return self._make_touch(access, lanes, addresses + first, self._order.now)

    def load(self, touch: Touch, unordered: np.ndarray | None = None) -> None:
        """Check a read, and record it; unordered: the entries that are concurrent with the write, if known."""
        shadow, at = self.shadow, touch.elements
        early = shadow.in_flight[at]
        self.report(EARLY, touch, shadow.writer, early)
        self.report(UNWRITTEN, touch, None, shadow.writer.thread[at] == NOBODY)
        unordered = self.concurrent(touch, shadow.writer) if unordered is None else unordered
        self.report(RACE, touch, shadow.writer, unordered & ~early)
        shadow.read(touch, self.concurrent)

    def store(self, touch: Touch) -> None:
        shadow, at = self.shadow, touch.elements
        if np.count_nonzero(shadow.in_flight[at]):  # also a copy of the same thread, which is ordered
            self.report(RACE, touch, shadow.writer, shadow.in_flight[at] & ~self.concurrent(touch, shadow.writer))
        if np.count_nonzero(reading := shadow.being_read[at] > 0):
            self.report(RACE, touch, shadow.reader, reading & ~self.concurrent(touch, shadow.reader), action=READS)
        super().store(touch)
        shadow.in_flight[at] = touch.access.kind == "async store"
        shadow.has_generic_writes |= not _is_bulk(touch.access.instruction)

    def find_overwritten(self, touch: Touch) -> np.ndarray:
        """Return the overwritten entries whose values differ: in Triton all lanes of a warp store the same value."""
        lost = super().find_overwritten(touch)
        access, at = touch.access, touch.elements
        if np.count_nonzero(lost) and isinstance(access, Access) and access.values:
            machine = access.machine
            lanes = slice(None) if access.lanes is None else access.lanes
            numbers = [per_lane(value, machine.lanes)[lanes] for value in access.values]
            words = np.stack(numbers, axis=1).view(np.uint8).reshape(at.size, -1)  # what each entry writes
            last = np.zeros(at.max() + 1, np.int64)
            last[at] = np.arange(at.size)  # the winner's entry
            lost &= (words != words[last[at]]).any(1)
        return lost

    def concurrent(self, touch: Touch, mark: Mark) -> np.ndarray:
        if mark.latest <= self._order.known_to_all:
            return np.zeros(touch.threads.size, bool)
        thread = mark.thread[touch.elements]
        other = thread != touch.threads
        if not np.count_nonzero(other):
            return other
        return self._order.concurrent(touch.lanes, thread, mark.time[touch.elements]) & other

    def describe(self, element: int) -> str:
        return self.scene.describe_shared(element * self.shadow.width % self._pitch)

    def explain(self, kind: str, element: int, other: str, action: str, line: str) -> str:
        if action == UNFENCED:
            return (
                f"which {other} wrote at {line}, and an asynchronous unit may not see it: the writer needs "
                "fence.proxy.async, before the barrier between them"
            )
        if kind == UNWRITTEN:
            return "which no thread has written: shared memory is undefined when a block starts"
        writer = self.scene.instructions[self.shadow.writer.instruction[element]]
        copy, wait = f"into which {other} started a cp.async at {line}", "cp.async.wait_group"
        if _is_bulk(writer):
            copy, wait = f"into which {other} started a bulk copy at {line}", "mbarrier.try_wait"
        if kind == EARLY:
            others = "" if wait.startswith("mbarrier") else ", and then at a barrier"
            return f"{copy} that was not waited for: wait for it ({wait}){others}"
        if self.shadow.in_flight[element] and action == WRITES:
            return f"{copy} that may still land: wait for it ({wait}) first"
        if self.shadow.being_read[element] and action == READS:
            return f"which {other} may still be reading by what it started at {line}: wait for that first"
        return super().explain(kind, element, other, action, line)
