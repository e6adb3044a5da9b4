"""Data races: two threads access one element of memory, one of them writes, and no barrier orders the two.

A shadow holds for each element of a memory who wrote it last, who has read it since, and when. An element is 16 bytes
wide until something narrower is accessed, and as narrow as that from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemm_ref.launch import cdiv
from gemm_ref.ptx.core.events import Access, BulkAccess
from gemm_ref.ptx.detect.finding import RACE, Scene
from gemm_ref.ptx.detect.gpu_order import ATOMIC
from gemm_ref.ptx.text.operands import Immediate, items_of
from gemm_ref.ptx.text.parser import Instruction

NOBODY = -1
WIDEST = 16  # bytes, the most that an instruction accesses at once


@dataclass(frozen=True)
class Touch:
    """An access, element by element: one entry for each lane and element, lane after lane."""

    access: Access | BulkAccess
    elements: np.ndarray  # in the shadow
    lanes: np.ndarray  # of the machine
    threads: np.ndarray  # linear, in the whole grid
    instruction: int  # its number in `Scene.instructions`
    now: int  # Order.now


class Mark:
    """The thread that accessed each element last, its time and its instruction; NOBODY at first."""

    def __init__(self, elements: int) -> None:
        self.thread, self.time, self.instruction = (np.full(elements, NOBODY, np.int32) for _ in range(3))
        self.latest = NOBODY  # the latest time of all elements

    def set(self, touch: Touch, which: np.ndarray | slice = slice(None)) -> None:
        """Record an access; of several lanes that access one element the last remains."""
        elements = touch.elements[which]
        self.thread[elements] = touch.threads[which]
        self.time[elements] = touch.now
        self.instruction[elements] = touch.instruction
        self.latest = touch.now

    def postpone(self, touch: Touch) -> None:
        """Record that a recorded access has happened only now."""
        self.time[touch.elements] = self.latest = touch.now

    def copy(self, other: Mark, elements: np.ndarray) -> None:
        """Record what another mark has of these elements."""
        for name in ("thread", "time", "instruction"):
            getattr(self, name)[elements] = getattr(other, name)[elements]
        self.latest = max(self.latest, other.latest)

    def refine(self, parts: int) -> None:
        """Split each element into so many."""
        for name in ("thread", "time", "instruction"):
            setattr(self, name, np.repeat(getattr(self, name), parts))


# Returns for each entry of a touch whether another thread's marked access is not ordered before it.
Concurrent = Callable[[Touch, Mark], np.ndarray]


class Shadow:
    """The marks of one memory of `size` bytes, or of several consecutive ones.

    It remembers two readers, of different threads if there are any: whoever writes next, one of them is another thread.
    (Where named barriers order only some of several readers, a race may be missed; none is invented.) Likewise it
    remembers a strong write that may overlap with the last one.
    """

    def __init__(self, size: int) -> None:
        self.width = WIDEST
        elements = cdiv(size, WIDEST)
        self.writer, self.reader, self.other_reader = Mark(elements), Mark(elements), Mark(elements)
        self.other_writer: Mark | None = None  # a strong write that may overlap with the last; None until there is one
        self.has_generic_writes = False  # by instructions that are no bulk copies
        self.in_flight = np.zeros(elements, bool)  # the target of an asynchronous copy that was not waited for
        self.being_read = np.zeros(elements, np.int32)  # asynchronous reads that were not waited for

    def fit(self, size: int, addresses: np.ndarray) -> None:
        """Split the elements if accesses of `size` bytes at these addresses are narrower."""
        bits = size | int(np.bitwise_or.reduce(addresses))
        parts = self.width // (bits & -bits)  # the largest power of 2 that divides them all
        if parts > 1:
            self.width //= parts
            for mark in (self.writer, self.reader, self.other_reader, self.other_writer):
                if mark is not None:
                    mark.refine(parts)
            self.in_flight = np.repeat(self.in_flight, parts)
            self.being_read = np.repeat(self.being_read, parts)

    def elements(self, size: int, addresses: np.ndarray) -> np.ndarray:
        """Return the elements of accesses of `size` bytes at these addresses, one access after the other."""
        first = addresses >> (self.width.bit_length() - 1)
        return first if size == self.width else (first[:, None] + np.arange(size // self.width)).ravel()

    def read(self, touch: Touch, concurrent: Concurrent) -> None:
        """Record a read; it replaces a reader whose read is ordered before it."""
        at = touch.elements
        unordered = concurrent(touch, self.reader)
        self.reader.set(touch, ~unordered if np.count_nonzero(unordered) else slice(None))
        rest = self.reader.thread[at] != touch.threads
        if np.count_nonzero(rest):
            self.other_reader.set(touch, rest)


def _writes_constants(access: Access | BulkAccess) -> bool:
    """Return whether every lane writes the same constants, so that it does not matter which of them wins."""
    if not isinstance(access, Access) or access.instruction.parts[0] != "st":
        return False
    return all(isinstance(item, Immediate) for item in items_of(access.instruction.operands[1]))


def _is_atomic(instruction: Instruction) -> bool:
    return instruction.parts[0] in ATOMIC


WRITES, READS, AT_ONCE = "writes", "reads", "writes in the same instruction"  # actions of the other thread


class Races:
    """Finds the races in one memory; the subclasses know what is special about shared and global memory."""

    written_twice = RACE  # the kind of a finding about two writers
    advice = "no barrier orders the two: put __syncthreads() between them"

    def __init__(self, scene: Scene, shadow: Shadow) -> None:
        self.scene, self.shadow = scene, shadow

    def concurrent(self, touch: Touch, mark: Mark) -> np.ndarray:
        """Return for each entry of a touch whether another thread's marked access is not ordered before it."""
        raise NotImplementedError

    def describe(self, element: int) -> str:
        """Return the name of an element in the source."""
        raise NotImplementedError

    def _make_touch(self, access: Access | BulkAccess, lanes: np.ndarray, bytes_: np.ndarray, now: int) -> Touch:
        """Return an access of these lanes, element by element; bytes_: where each begins in the shadowed memory."""
        self.shadow.fit(access.size, bytes_)
        elements, every = self.shadow.elements(access.size, bytes_), access.machine.thread_in_grid
        if isinstance(access, BulkAccess):  # one lane issues it
            lanes, threads = (np.full(elements.size, x[access.lane]) for x in (access.machine.every_lane, every))
        else:
            threads = every if lanes is access.machine.every_lane else every[lanes]
            if elements.size != lanes.size:
                lanes, threads = (x.repeat(elements.size // lanes.size) for x in (lanes, threads))
        return Touch(access, elements, lanes, threads, self.scene.number(access.instruction), now)

    def load(self, touch: Touch) -> None:
        """Check a read, and record it."""
        self.report(RACE, touch, self.shadow.writer, self._find_unordered(touch, self.shadow.writer))
        self.shadow.read(touch, self.concurrent)

    def store(self, touch: Touch) -> None:
        """Check a write, and record it."""
        shadow = self.shadow
        self.report(self.written_twice, touch, shadow.writer, self._find_unordered(touch, shadow.writer))
        for mark in (shadow.reader, shadow.other_reader):
            self.report(RACE, touch, mark, self._find_unordered(touch, mark), action=READS)
        shadow.writer.set(touch)
        lost = self.find_overwritten(touch)
        if np.count_nonzero(lost):
            lost &= ~self.may_overlap(touch, shadow.writer)
            self.report(self.written_twice, touch, shadow.writer, lost, action=AT_ONCE)

    def find_overwritten(self, touch: Touch) -> np.ndarray:
        """Return which entries of a write another lane of the same instruction has overwritten."""
        if _writes_constants(touch.access):
            return np.zeros(touch.threads.size, bool)
        return self.shadow.writer.thread[touch.elements] != touch.threads

    def _find_unordered(self, touch: Touch, mark: Mark) -> np.ndarray:
        wrong = self.concurrent(touch, mark)
        if np.count_nonzero(wrong):
            wrong &= ~self.may_overlap(touch, mark)
        return wrong

    def may_overlap(self, touch: Touch, mark: Mark) -> np.ndarray:
        """Return for each entry whether it may overlap in time with the marked access, as atomics may."""
        if not _is_atomic(touch.access.instruction):
            return np.zeros(touch.elements.size, bool)
        return self.scene.test(_is_atomic)[mark.instruction[touch.elements]]

    def report(self, kind: str, touch: Touch, mark: Mark | None, wrong: np.ndarray, action: str = WRITES) -> None:
        """Report these entries of a touch, with one finding for each instruction that `mark` names there."""
        if not np.count_nonzero(wrong):
            return
        entries = np.flatnonzero(wrong)
        if mark is None:
            self._add(kind, touch, entries, None, action)
            return
        numbers = mark.instruction[touch.elements[entries]]
        for number in np.unique(numbers):
            self._add(kind, touch, entries[numbers == number], mark, action)

    def explain(self, kind: str, element: int, other: str, action: str, line: str) -> str:
        """Return the part of the other thread in a finding, as the end of a sentence."""
        if action == AT_ONCE:
            return f"which {other} {action}: one of them wins"
        return f"which {other} {action} at {line}, and {self.advice}"

    def _add(self, kind: str, touch: Touch, entries: np.ndarray, mark: Mark | None, action: str) -> None:
        scene, entry, here = self.scene, entries[0], touch.access.instruction
        element, thread = int(touch.elements[entry]), touch.threads[entry]
        there, other, name, line = None, None, "", ""
        if mark is not None:
            there, other = scene.instructions[mark.instruction[element]], mark.thread[element]
            name, line = scene.describe_thread(other, thread), there.line_seen_from(here)
        does = "reads" if touch.access.kind in ("load", "async load") else "writes"
        text = f"{does} {self.describe(element)}, {self.explain(kind, element, name, action, line)}"
        scene.report(kind, here, thread, text, other, there, entries.size)
