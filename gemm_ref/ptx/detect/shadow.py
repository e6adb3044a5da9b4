"""What is remembered of each element of a memory: who wrote it last, who has read it since, and when.

An element is 16 bytes wide until something narrower is accessed, and as narrow as that from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.events import Access, BulkAccess

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
