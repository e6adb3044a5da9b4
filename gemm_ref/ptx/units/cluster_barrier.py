"""The barrier of a cluster (PTX ISA, 9.7.13.3): the threads of all of its blocks meet."""

from __future__ import annotations

import math

import numpy as np

from gemm_ref.ptx.core.events import Synchronisation
from gemm_ref.ptx.core.machine import Machine
from gemm_ref.ptx.core.schedule import Unit
from gemm_ref.ptx.text.errors import AsyncFault
from gemm_ref.ptx.text.parser import Instruction

KEY = ("cluster",)


class ClusterBarrier(Unit):
    """The barrier of each cluster of a machine: a phase ends when each thread that has not left has arrived in it."""

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
        self._tell(instruction, lanes)
        self._arrivals[lanes] += 1
        self._look()

    def on_leave(self, instruction: Instruction, lanes: np.ndarray) -> None:
        self._look()

    def describe_waits(self) -> list[str]:
        machine, parked = self._machine, self._machine.schedule.waiting_at(KEY)
        if parked is None:
            return []
        lane = int(np.argmax(parked))
        place = machine.schedule.awaited(lane).place
        return [f"{place}: {machine.describe_lane(lane)} and {int(parked.sum()) - 1} more wait for their cluster"]

    def _look(self) -> None:
        """End the phases that every thread still running has arrived in, and wake those who wait for it."""
        machine, alive = self._machine, self._machine.living()
        arrived = np.full(self._open.size, np.iinfo(np.int64).max)
        np.minimum.at(arrived, self._cluster[alive], self._arrivals[alive])
        arrived = np.where(arrived == np.iinfo(np.int64).max, self._open, arrived)
        if (ended := arrived > self._open).any():
            self._open = np.maximum(arrived, self._open)
            for observer in machine.observers:
                observer.on_phase([(*KEY, int(number)) for number in np.flatnonzero(ended)], machine)
            if (waiting := machine.schedule.waiting_at(KEY)) is not None:
                self._tell(None, waiting & ended[self._cluster])
                machine.schedule.wake(KEY, waiting & ended[self._cluster])

    def wait(self, instruction: Instruction, lanes: np.ndarray, onward: int) -> int:
        """Lanes wait for the end of the phase in which they have arrived. Returns a place."""
        if (unmet := lanes & (self._arrivals == self._waits)).any():
            raise AsyncFault(
                f"{instruction.origin}: {self._machine.describe_first(unmet)} waits at the cluster's "
                "barrier without having arrived there (barrier.cluster.arrive)"
            )
        self._waits[lanes] += 1
        late = lanes & (self._open[self._cluster] < self._arrivals)
        self._tell(None, lanes & ~late)
        return self._machine.schedule.park(KEY, late, onward) if late.any() else onward

    def _tell(self, instruction: Instruction | None, lanes: np.ndarray) -> None:
        if not self._machine.observers:
            return
        for number in np.unique(self._cluster[lanes]).tolist():
            some = lanes & (self._cluster == number)
            event = Synchronisation(instruction, (*KEY, number), None, None, some, self._machine)
            for observer in self._machine.observers:
                observer.on_synchronisation(event)
