"""Data races: two threads access one element of memory, one of them writes, and no barrier orders the two.

A shadow holds for each element of a memory who wrote it last, who has read it since, and when. An element is 16 bytes
wide until something narrower is accessed, and as narrow as that from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.events import Access, BulkAccess
from gemm_ref.ptx.detect.finding import RACE, Scene
from gemm_ref.ptx.detect.gpu_order import ATOMIC
from gemm_ref.ptx.text.operands import Immediate, items_of
from gemm_ref.ptx.text.parser import Instruction

NOBODY = -1
WIDEST = 16  # bytes, the most that an instruction accesses at once


@dataclass(frozen=True)
class Touch:
    """An access, element by element: one entry for each lane and element that it touches, lane after lane."""

    access: Access | BulkAccess
    elements: np.ndarray  # in the shadow
    lanes: np.ndarray  # of the machine
    threads: np.ndarray  # linear, in the whole grid
    instruction: int  # its number in `Scene.instructions`
    now: int  # Order.now


class Mark:
    """A thread that accessed an element, at what time and by which instruction; NOBODY at first."""

    def __init__(self, elements: int) -> None:
        self.thread, self.time, self.instruction = (np.full(elements, NOBODY, np.int32) for _ in range(3))

    def set(self, touch: Touch, which: np.ndarray | slice = slice(None)) -> None:
        """Put down this access; of several lanes at one element the last stays."""
        elements = touch.elements[which]
        self.thread[elements] = touch.threads[which]
        self.time[elements] = touch.now
        self.instruction[elements] = touch.instruction

    def refine(self, parts: int) -> None:
        """Each element becomes so many."""
        for name in ("thread", "time", "instruction"):
            setattr(self, name, np.repeat(getattr(self, name), parts))


# Of the touch's entries: whether another's access at an element is not ordered before it.
Concurrent = Callable[[Touch, Mark], np.ndarray]


class Shadow:
    """The marks of one memory of `size` bytes, or of several that lie one after the other.

    Two readers are kept, different ones where there are different ones: whoever writes next, one of them is another.
    (Where named barriers order only some of several readers, that may miss a race; it never makes one up.)
    """

    def __init__(self, size: int) -> None:
        self.width = WIDEST
        elements = -(-size // WIDEST)
        self.writer, self.reader, self.other_reader = Mark(elements), Mark(elements), Mark(elements)
        self.in_flight = np.zeros(elements, bool)  # a copy to there was started, and not waited for
        self.being_read = np.zeros(elements, np.int32)  # reads that were started, and not waited for

    def fit(self, access: Access | BulkAccess, addresses: np.ndarray) -> None:
        """Go over to narrower elements if the access needs it."""
        bits = access.size | int(np.bitwise_or.reduce(addresses))
        parts = self.width // (bits & -bits)  # the largest power of 2 that divides them all
        if parts > 1:
            self.width //= parts
            for mark in (self.writer, self.reader, self.other_reader):
                mark.refine(parts)
            self.in_flight = np.repeat(self.in_flight, parts)
            self.being_read = np.repeat(self.being_read, parts)

    def elements(self, access: Access | BulkAccess, addresses: np.ndarray) -> np.ndarray:
        """(lanes, elements a lane) for byte addresses in this memory, one a lane."""
        return addresses[:, None] // self.width + np.arange(access.size // self.width)

    def read(self, touch: Touch, concurrent: Concurrent) -> None:
        """Put down a read, in the place of readers that everyone has been ordered behind since."""
        at = touch.elements
        loose = concurrent(touch, self.reader)
        self.reader.set(touch, ~loose if np.count_nonzero(loose) else slice(None))
        rest = self.reader.thread[at] != touch.threads
        if np.count_nonzero(rest):
            self.other_reader.set(touch, rest)


def _writes_constants(access: Access | BulkAccess) -> bool:
    """Whether every lane writes the same numbers, so that it does not matter which of them wins."""
    if not isinstance(access, Access) or access.instruction.parts[0] != "st":
        return False
    return all(isinstance(item, Immediate) for item in items_of(access.instruction.operands[1]))


def _is_atomic(instruction: Instruction) -> bool:
    return instruction.parts[0] in ATOMIC


WRITES, READS, AT_ONCE = "writes", "reads", "writes in the same instruction"  # what the other thread does


class Races:
    """The races in one memory; what is special about shared and global memory is in the classes that inherit."""

    written_twice = RACE  # the kind of a finding about two writers
    advice = "no barrier orders the two: put __syncthreads() between them"

    def __init__(self, scene: Scene, shadow: Shadow) -> None:
        self.scene, self.shadow = scene, shadow

    def concurrent(self, touch: Touch, mark: Mark) -> np.ndarray:
        """Of the touch's entries, whether another thread's marked access there is not ordered before it."""
        raise NotImplementedError

    def name(self, element: int) -> str:
        """What the source calls an element."""
        raise NotImplementedError

    def touch(self, access: Access | BulkAccess, lanes: np.ndarray, bytes_: np.ndarray, now: int) -> Touch:
        """An access of these lanes, element by element; bytes_ is where in the shadowed memory each one's starts."""
        self.shadow.fit(access, bytes_)
        elements, machine = self.shadow.elements(access, bytes_), access.machine
        lanes = lanes[:1] if isinstance(access, BulkAccess) else lanes  # which is one lane's
        threads, each = self.scene.threads(machine, lanes), elements.size // max(lanes.size, 1)
        lanes, threads = (np.repeat(x, each) for x in (lanes, threads))
        return Touch(access, elements.ravel(), lanes, threads, self.scene.number(access.instruction), now)

    def load(self, touch: Touch) -> None:
        """Look at a read, and put it down."""
        self.report(RACE, touch, self.shadow.writer, self._wrong(touch, self.shadow.writer))
        self.shadow.read(touch, self.concurrent)

    def store(self, touch: Touch) -> None:
        """Look at a write, and put it down."""
        shadow = self.shadow
        self.report(self.written_twice, touch, shadow.writer, self._wrong(touch, shadow.writer))
        for mark in (shadow.reader, shadow.other_reader):
            self.report(RACE, touch, mark, self._wrong(touch, mark), did=READS)
        shadow.writer.set(touch)
        lost = self.lost(touch)
        if np.count_nonzero(lost):
            lost &= ~self.may_meet(touch, shadow.writer)
            self.report(self.written_twice, touch, shadow.writer, lost, did=AT_ONCE)

    def lost(self, touch: Touch) -> np.ndarray:
        """Of the entries of a write, those in whose place another lane of the instruction has written."""
        if _writes_constants(touch.access):
            return np.zeros(touch.threads.size, bool)
        return self.shadow.writer.thread[touch.elements] != touch.threads

    def _wrong(self, touch: Touch, mark: Mark) -> np.ndarray:
        wrong = self.concurrent(touch, mark)
        if np.count_nonzero(wrong):
            wrong &= ~self.may_meet(touch, mark)
        return wrong

    def may_meet(self, touch: Touch, mark: Mark) -> np.ndarray:
        """Of the touch's entries, whether what it does there may go on at the same time as what is marked."""
        if not _is_atomic(touch.access.instruction):
            return np.zeros(touch.elements.size, bool)
        return self.scene.test(_is_atomic)[mark.instruction[touch.elements]]

    def report(self, kind: str, touch: Touch, mark: Mark | None, wrong: np.ndarray, did: str = WRITES) -> None:
        """Findings about these entries of the touch, one for each instruction that `mark` names there."""
        if not np.count_nonzero(wrong):
            return
        entries = np.flatnonzero(wrong)
        if mark is None:
            self._add(kind, touch, entries, None, did)
            return
        numbers = mark.instruction[touch.elements[entries]]
        for number in np.unique(numbers):
            self._add(kind, touch, entries[numbers == number], mark, did)

    def relation(self, kind: str, element: int, other: str, did: str, line: str) -> str:
        """What the other thread has to do with it, as the end of a sentence."""
        if did == AT_ONCE:
            return f"which {other} {did}: one of them wins"
        return f"which {other} {did} at {line}, and {self.advice}"

    def _add(self, kind: str, touch: Touch, entries: np.ndarray, mark: Mark | None, did: str) -> None:
        scene, entry, here = self.scene, entries[0], touch.access.instruction
        element, thread = int(touch.elements[entry]), touch.threads[entry]
        there, other, name, line = None, None, "", ""
        if mark is not None:
            there, other = scene.instructions[mark.instruction[element]], mark.thread[element]
            name, line = scene.describe_thread(other, thread), there.line_seen_from(here)
        does = "reads" if touch.access.kind in ("load", "async load") else "writes"
        text = f"{does} {self.name(element)}, {self.relation(kind, element, name, did, line)}"
        scene.report(kind, here, thread, text, other, there, entries.size)
