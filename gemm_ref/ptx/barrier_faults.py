"""Barriers that not all threads of a block reach together.

`__syncthreads()` and PTX's barriers without a count are for all threads of the block. Where some have left, or wait at
another barrier of the same number (which `barrier.sync` without `.aligned` may do), CUDA promises nothing; the
reference GPU goes on as a GPU might, and reports it. (Where they never come at all, it stops with a BarrierFault.)
"""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.finding import SKIPPED, Findings, Scene, place, place_from
from gemm_ref.ptx.observe import Synchronisation
from gemm_ref.ptx.parser import Instruction

_NOWHERE = -1


class BarrierFaults:
    """Watches the barriers of one machine."""

    def __init__(self, machine, scene: Scene, findings: Findings) -> None:
        self._scene, self._findings = scene, findings
        self._left_at = np.full(machine.lanes, _NOWHERE, np.int32)  # the number of the instruction at which a lane left
        self._waits_at = np.full(machine.lanes, _NOWHERE, np.int32)

    def on_leave(self, instruction: Instruction, lanes: np.ndarray | None) -> None:
        self._left_at[slice(None) if lanes is None else lanes] = self._scene.number(instruction)

    def on_synchronisation(self, event: Synchronisation) -> None:
        if event.barrier[0] != "barrier" or event.expected is not None:
            return
        lanes = slice(None) if event.lanes is None else event.lanes
        if not event.opens:
            self._waits_at[lanes] = self._scene.number(event.instruction)
        elif event.lanes is not None:
            self._look(event, event.lanes)
        if event.opens:
            self._waits_at[lanes] = _NOWHERE

    def _look(self, event: Synchronisation, lanes: np.ndarray) -> None:
        """A barrier opens for these lanes: are they all of their blocks, and all at the same one?"""
        block = event.machine.block_index
        for at in np.unique(self._waits_at[lanes]):
            here = lanes & (self._waits_at == at)
            mates = np.isin(block, np.unique(block[here]))
            gone = mates & ~lanes & (self._left_at != _NOWHERE)
            for exit_ in np.unique(self._left_at[gone]):
                self._report(event.machine, here, gone & (self._left_at == exit_), int(at), int(exit_), left=True)
            elsewhere = mates & lanes & (self._waits_at > at)  # each pair of barriers once
            for other in np.unique(self._waits_at[elsewhere]):
                if not (self._is_one_place(int(at)) or self._is_one_place(int(other))):
                    continue
                there = elsewhere & (self._waits_at == other)
                self._report(event.machine, here, there, int(at), int(other), left=False)

    def _is_one_place(self, number: int) -> bool:
        """Whether all threads must reach that very instruction, and not another barrier of its number."""
        parts = self._scene.instructions[number].parts
        return parts[0] == "bar" or "aligned" in parts

    def _report(self, machine, here: np.ndarray, there: np.ndarray, at: int, other: int, left: bool) -> None:
        scene, block = self._scene, machine.block_index
        waiting, absent = scene.instructions[at], scene.instructions[other]
        missing = int(np.argmax(there))
        lane = int(np.argmax(here & (block == block[missing])))

        def make() -> dict:
            (block, thread), (_, absentee) = (
                scene.who(machine.block_of_lane[i] * machine.launch.threads + machine.thread_of_lane[i])
                for i in (lane, missing)
            )
            line = place_from(absent, waiting)
            did = f"left at {line}" if left else f"waits at another, at {line}"
            text = (
                f"{place(waiting)}: block {block} thread {thread} waits at this barrier, and thread {absentee} of its "
                f"block {did}: all threads of a block must reach the same one"
            )
            return {"block": block, "thread": thread, "other_block": block, "other_thread": absentee, "text": text}

        self._findings.add(SKIPPED, waiting, absent, int(there.sum()), make)
