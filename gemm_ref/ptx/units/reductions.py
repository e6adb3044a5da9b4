"""Barriers that combine a predicate of all their threads: `bar.red` (PTX ISA, 9.7.13.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.machine import Machine, Write
from gemm_ref.ptx.core.schedule import Unit


@dataclass
class _Vote:
    """Lanes that have arrived at a barrier together."""

    lanes: np.ndarray
    predicate: np.ndarray
    write: Write
    mode: str  # and, or, popc


class Reductions(Unit):
    """The predicates of threads that wait at barriers of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._votes: dict[tuple, list[_Vote]] = {}

    def vote(self, barrier: tuple, lanes: np.ndarray, predicate: np.ndarray, write: Write, mode: str) -> None:
        """These lanes are about to arrive; when the barrier opens, `write` gets what all of them say."""
        self._votes.setdefault(barrier, []).append(_Vote(lanes.copy(), predicate, write, mode))

    def on_open(self, barrier: tuple, lanes: np.ndarray | None) -> None:
        machine, votes = self._machine, self._votes.pop(barrier, None)
        if votes is None:
            return
        opened = np.ones(machine.lanes, bool) if lanes is None else lanes
        true, said = np.zeros((2, machine.lanes), bool)
        for vote in votes:
            said |= vote.lanes & opened
            true |= vote.lanes & opened & vote.predicate
        block = machine.block_index
        counts, voters = (np.bincount(block[some], minlength=int(block[-1]) + 1)[block] for some in (true, said))
        results = {"popc": counts.astype(np.uint32), "or": counts > 0, "and": counts == voters}
        for vote in votes:
            if (done := vote.lanes & opened).any():
                vote.write(machine, results[vote.mode], done)
            if (rest := vote.lanes & ~opened).any():
                self.vote(barrier, rest, vote.predicate, vote.write, vote.mode)
