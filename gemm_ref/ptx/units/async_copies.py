"""cp.async copies that have been started (PTX ISA, 9.7.9.25): they land when their lanes wait for their group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gemm_ref.ptx.core.access import Piece, scatter
from gemm_ref.ptx.core.events import Access
from gemm_ref.ptx.core.machine import Machine, Mask
from gemm_ref.ptx.core.schedule import Unit
from gemm_ref.ptx.text.dtypes import Value, per_lane


@dataclass
class _Copy:
    """One cp.async that was issued, into one piece of shared memory."""

    access: Access | None  # for observers, where there are any
    place: Piece
    words: list[Value]
    lanes: np.ndarray | None
    group: Value  # number of the lane's group that it belongs to
    number: int  # of the copy


class AsyncCopies(Unit):
    """The cp.async copies of one machine that have not landed yet."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._copies: list[_Copy] = []
        self._groups: Value = np.int64(0)  # that each lane has committed
        self._started = 0  # copies

    def start(self, access: Access | None, place: Piece, words: list[Value]) -> None:
        """A copy of these words, 4 bytes of each lane, in the lanes' current groups."""
        self._copies.append(_Copy(access, place, words, place.lanes, self._groups, self._started))
        self._started += 1

    def commit(self, mask: Mask) -> None:
        self._groups = self._groups + 1 if mask is None else self._groups + mask

    def wait(self, mask: Mask, keep: int) -> None:
        """Land the copies of all but the latest `keep` groups of each waiting lane."""
        self._land(mask, lambda copy: np.asarray(copy.group < self._groups - keep))

    def landing(self) -> Callable[[np.ndarray], None]:
        """What lands the copies that have been started by now, of the lanes that it is given."""
        now = self._started
        return lambda lanes: self._land(lanes, lambda copy: np.asarray(copy.number < now))

    def _land(self, mask: Mask, which: Callable[[_Copy], np.ndarray]) -> None:
        machine, still = self._machine, []
        for copy in self._copies:
            done = which(copy)
            if mask is not None:
                done = done & mask
            if copy.lanes is not None:
                done = done & copy.lanes
            if done.any():
                lanes = None if done.all() else per_lane(done, machine.lanes)
                if copy.access is not None:
                    for observer in machine.observers:
                        observer.on_landing(replace(copy.access, lanes=lanes))
                for word, value in enumerate(copy.words):
                    scatter(copy.place.view(4, word), copy.place.index, value, lanes)
            if not done.all():
                rest = per_lane(~done, machine.lanes)
                copy.lanes = rest if copy.lanes is None else copy.lanes & rest
                if copy.lanes.any():
                    still.append(copy)
        self._copies = still
