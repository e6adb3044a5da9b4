"""Barriers that do more than wait: a cluster's (PTX ISA, 9.7.13.3), and those that reduce a predicate (9.7.13.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.machine import Machine, Write
from gemm_ref.ptx.core.schedule import Unit
from gemm_ref.ptx.text.errors import AsyncFault
from gemm_ref.ptx.text.parser import Instruction

KEY = ("cluster",)


class ClusterBarrier(Unit):
    """The barrier of each cluster of a machine: a phase ends when all threads that have not exited have arrived."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._cluster = machine.block_index // math.prod(machine.launch.cluster)  # of each lane
        self._arrivals = np.zeros(machine.lanes, np.int64)
        self._waits = np.zeros(machine.lanes, np.int64)
        self._open = np.zeros(int(self._cluster[-1]) + 1, np.int64)  # phases that have ended

    def arrive(self, instruction: Instruction, lanes: np.ndarray) -> None:
        if (twice := lanes & (self._arrivals > self._waits)).any():
            raise AsyncFault(
                f"{instruction.origin}: {self._machine.describe_first(twice)} arrives again at the "
                "cluster's barrier before it has waited for it"
            )
        self._notify(instruction, lanes)
        self._arrivals[lanes] += 1
        self._end_phases()

    def on_leave(self, instruction: Instruction, lanes: np.ndarray) -> None:
        self._end_phases()

    def describe_waits(self) -> list[str]:
        machine, parked = self._machine, self._machine.schedule.waiting_at(KEY)
        if parked is None:
            return []
        lane = int(np.argmax(parked))
        place = machine.schedule.awaited(lane).place
        return [f"{place}: {machine.describe_lane(lane)} and {int(parked.sum()) - 1} more wait for their cluster"]

    def _end_phases(self) -> None:
        """End the phases in which all running threads have arrived, and wake the lanes that wait for them."""
        machine, alive = self._machine, self._machine.living()
        arrived = np.full(self._open.size, np.iinfo(np.int64).max)
        np.minimum.at(arrived, self._cluster[alive], self._arrivals[alive])
        arrived = np.where(arrived == np.iinfo(np.int64).max, self._open, arrived)
        if (ended := arrived > self._open).any():
            self._open = np.maximum(arrived, self._open)
            for observer in machine.observers:
                observer.on_phase([(*KEY, int(number)) for number in np.flatnonzero(ended)], machine)
            if (waiting := machine.schedule.waiting_at(KEY)) is not None:
                self._notify(None, waiting & ended[self._cluster])
                machine.schedule.wake(KEY, waiting & ended[self._cluster])

    def wait(self, instruction: Instruction, lanes: np.ndarray, onward: int) -> int:
        """Let lanes wait for the end of the phase in which they have arrived; returns the next place."""
        if (unmet := lanes & (self._arrivals == self._waits)).any():
            raise AsyncFault(
                f"{instruction.origin}: {self._machine.describe_first(unmet)} waits at the cluster's "
                "barrier without having arrived there (barrier.cluster.arrive)"
            )
        self._waits[lanes] += 1
        late = lanes & (self._open[self._cluster] < self._arrivals)
        self._notify(None, lanes & ~late)
        return self._machine.schedule.park(KEY, late, onward) if late.any() else onward

    def _notify(self, instruction: Instruction | None, lanes: np.ndarray) -> None:
        if not self._machine.observers:
            return
        for number in np.unique(self._cluster[lanes]).tolist():
            self._machine.schedule.tell(instruction, (*KEY, number), lanes & (self._cluster == number))


@dataclass
class _Vote:
    """Lanes that have arrived at a barrier together, with their predicate."""

    lanes: np.ndarray
    predicate: np.ndarray
    write: Write
    mode: str  # and, or, popc


class Reductions(Unit):
    """The predicates of threads that wait at reducing barriers of one machine (`bar.red`)."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._votes: dict[tuple, list[_Vote]] = {}

    def vote(self, barrier: tuple, lanes: np.ndarray, predicate: np.ndarray, write: Write, mode: str) -> None:
        """Record the predicate of lanes that arrive; when the barrier opens, `write` gets the result."""
        self._votes.setdefault(barrier, []).append(_Vote(lanes.copy(), predicate, write, mode))

    def on_open(self, barrier: tuple, lanes: np.ndarray | None) -> None:
        machine, votes = self._machine, self._votes.pop(barrier, None)
        if votes is None:
            return
        opened = np.ones(machine.lanes, bool) if lanes is None else lanes
        true, voted = np.zeros((2, machine.lanes), bool)
        for vote in votes:
            voted |= vote.lanes & opened
            true |= vote.lanes & opened & vote.predicate
        block = machine.block_index
        counts, voters = (np.bincount(block[some], minlength=int(block[-1]) + 1)[block] for some in (true, voted))
        results = {"popc": counts.astype(np.uint32), "or": counts > 0, "and": counts == voters}
        for vote in votes:
            if (done := vote.lanes & opened).any():
                vote.write(machine, results[vote.mode], done)
            if (rest := vote.lanes & ~opened).any():
                self.vote(barrier, rest, vote.predicate, vote.write, vote.mode)
