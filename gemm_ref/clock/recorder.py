"""What each warp of a kernel does, instruction by instruction, where it waits for tensor cores and the TMA unit.

How often each instruction is executed does not tell which copy a warp waits for. So such a kernel is recorded as the
reference GPU executes it: the PTX of each warp in order, and with it what happens at mbarriers. Every phase of an
mbarrier ends in the simulation when what ended it on the reference GPU has happened: so many arrivals and copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gemm_ref.ptx.core.events import BulkAccess, Synchronisation
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.text.parser import Entry, Instruction

WAIT, ARRIVE, COPY, STORE, MEET = "wait", "arrive", "copy", "store", "meet"


class Event(NamedTuple):
    """What a warp does at an mbarrier, or asks of the TMA unit."""

    kind: str
    barrier: int  # its number in the machine, or of a barrier of the block
    phase: int  # a wait: how many phases have to have ended; an arrival or copy: the one that it helps to end
    amount: int  # of arrivals, or of copies; of threads that a barrier of the block opens for, 0 for all
    bytes: int = 0  # that a copy moves


@dataclass
class Executed:
    """One instruction of one warp."""

    instruction: Instruction
    events: list[Event] = field(default_factory=list)


def is_asynchronous(entry: Entry) -> bool:
    """Whether a kernel's warps wait for more than barriers of the block and their own loads."""
    return any(each.parts[0] in ("wgmma", "mbarrier") for each in entry.instructions)


class Recorder:
    """Records a launch's blocks, warp by warp."""

    def __init__(self) -> None:
        self.warps: list[list[Executed]] = []
        self.needed: Counter[tuple[int, int]] = Counter()  # by barrier and phase: arrivals and copies until it ends
        self._ended: Counter[int] = Counter()  # phases, by barrier
        self._copied: tuple[object, int] = (None, -1)  # the last copy: instruction, lane

    def execute(self, instruction: Instruction, warps: np.ndarray) -> None:
        """An instruction of these warps, a truth value for each."""
        if not self.warps:
            self.warps = [[] for _ in warps]
        for warp in np.flatnonzero(warps):
            self.warps[warp].append(Executed(instruction))
        self._copied = None, -1

    def end_phases(self, barriers: list[tuple]) -> None:
        """The phases of these mbarriers have ended."""
        for kind, number in barriers:
            if kind == "mbarrier":
                self._ended[number] += 1

    def synchronise(self, event: Synchronisation) -> None:
        """Lanes arrive at a barrier, or go on at an mbarrier."""
        lanes = event.machine.lanes_of(event.lanes)
        if event.barrier[0] == "barrier" and not event.opens:
            for warp in np.unique(event.machine.warp_of_lane[lanes]).tolist():
                self._add(warp, Event(MEET, event.barrier[1], 0, event.expected or 0))
        if event.barrier[0] != "mbarrier":
            return
        number = event.barrier[1]
        for warp, count in Counter(event.machine.warp_of_lane[lanes].tolist()).items():
            if event.opens:
                self._add(warp, Event(WAIT, number, self._ended[number], 0), "mbarrier")
            else:
                self._help(warp, Event(ARRIVE, number, self._ended[number], count))

    def copy(self, access: BulkAccess, machine: Lanes) -> None:
        """A bulk copy begins."""
        if access.instruction.parts[0] != "cp":
            return  # a wgmma reads its operands
        warp = int(machine.warp_of_lane[access.lane])
        size = access.size * len(access.addresses)
        if access.kind == "async load":
            self._add(warp, Event(STORE, -1, 0, 1, size))
        elif access.barrier is not None:  # to several blocks: it is fetched once
            again = self._copied == (access.instruction, access.lane)
            self._copied = access.instruction, access.lane
            self._help(warp, Event(COPY, access.barrier, self._ended[access.barrier], 1, 0 if again else size))

    def _help(self, warp: int, event: Event) -> None:
        self.needed[event.barrier, event.phase] += event.amount
        self._add(warp, event)

    def _add(self, warp: int, event: Event, name: str = "") -> None:
        """To the last instruction of a warp, or to the last with this name."""
        done = self.warps[warp]
        done[-1].events.append(event) if not name else next(
            each for each in reversed(done) if each.instruction.parts[0] == name
        ).events.append(event)
