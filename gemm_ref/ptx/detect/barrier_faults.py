"""Barriers that not all threads of a block reach together.

`__syncthreads()` and PTX's barriers without a count are for all threads of the block that have not left (since Volta).
Where some wait at another barrier of the same number (which `barrier.sync` without `.aligned` may do), CUDA promises
nothing; the reference GPU goes on as a GPU does, and reports it: as a note if the two are on the two sides of a branch,
so that they match. (If some threads never come, it stops with a BarrierFault.) PTX ISA, 9.7.13.1.

A barrier with a count releases the threads that come first. Warps that arrive without knowing that its last phase has
ended may be counted in that phase, so groups that do not wait for each other need one barrier number each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemm_ref.ptx.core.events import Synchronisation
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.detect.finding import APART, MIXED, SKIPPED, Scene
from gemm_ref.ptx.detect.happens_before import Order
from gemm_ref.ptx.text.operands import Symbol
from gemm_ref.ptx.text.parser import Entry, Instruction

_NOWHERE = -1
_LEAVES = ("ret", "exit", "trap")


class BarrierFaults:
    """Watches the barriers of one machine."""

    def __init__(self, machine: Lanes, scene: Scene, order: Order) -> None:
        self._machine, self._scene, self._order = machine, scene, order
        # By block and number of a barrier with a count: the lanes that its last phase released, and when.
        self._last_phase: dict[tuple[int, int], tuple[np.ndarray, int]] = {}
        # The number of the instruction at which a lane waits.
        self._waits_at = np.full(machine.lanes, _NOWHERE, np.int32)

    def on_synchronisation(self, event: Synchronisation) -> None:
        if event.barrier[0] != "barrier":
            return
        if event.expected is not None:
            self._check_groups(event)
            return
        lanes = slice(None) if event.lanes is None else event.lanes
        if event.instruction is not None:
            self._waits_at[lanes] = self._scene.number(event.instruction)
            return
        if event.lanes is not None:
            self._check_place(event, event.lanes)
        self._waits_at[lanes] = _NOWHERE

    def _check_groups(self, event: Synchronisation) -> None:
        """Check that warps that arrive at a barrier with a count know that its last phase has ended."""
        machine, number = self._machine, event.barrier[1]
        lanes = np.arange(machine.lanes) if event.lanes is None else np.flatnonzero(event.lanes)
        for block in np.unique(machine.block_index[lanes]).tolist():
            own = lanes[machine.block_index[lanes] == block]
            if event.instruction is None:
                self._last_phase[block, number] = own, self._order.now
                continue
            _, first = np.unique(machine.thread_of_lane[own] // 32, return_index=True)
            if own.size > event.expected:
                self._report_group(event, event.instruction, own[event.expected], own[0])
                continue
            released, time = self._last_phase.get((block, number), (own[:0], 0))
            for lane in own[first].tolist() if released.size else ():
                if not self._knows(lane, released, time):
                    self._report_group(event, event.instruction, lane, released[0])

    def _knows(self, lane: int, released: np.ndarray, time: int) -> bool:
        """Return whether a lane's warp knows that these lanes of its block were released at that time."""
        warp = self._machine.thread_of_lane // 32
        if warp[lane] in warp[released]:
            return True
        threads = self._machine.thread_in_grid[released]
        return not self._order.concurrent(np.full(released.size, lane), threads, np.full(released.size, time)).all()

    def _report_group(self, event: Synchronisation, here: Instruction, lane: int, before: int) -> None:
        thread, other = self._machine.thread_in_grid[[lane, before]]
        text = (
            f"arrives at barrier {event.barrier[1]} of {event.expected} threads while the phase of "
            f"{self._scene.describe_thread(other, thread)} and its group may still run: it may be counted as one of "
            "them. Give each group its own barrier number"
        )
        self._scene.report(MIXED, here, thread, text, other)

    def _check_place(self, event: Synchronisation, lanes: np.ndarray) -> None:
        """Check that the lanes of a block for which a barrier opens all wait at the same instruction."""
        block = event.machine.block_index
        for at in np.unique(self._waits_at[lanes]):
            here = lanes & (self._waits_at == at)
            mates = np.isin(block, np.unique(block[here]))
            elsewhere = mates & lanes & (self._waits_at > at)  # each pair of barriers once
            for other in np.unique(self._waits_at[elsewhere]):
                if not (self._requires_one_place(int(at)) or self._requires_one_place(int(other))):
                    continue
                there = elsewhere & (self._waits_at == other)
                self._report(event.machine, here, there, int(at), int(other))

    def _requires_one_place(self, number: int) -> bool:
        """Return whether all threads must reach this instruction, and not another barrier of its number."""
        parts = self._scene.instructions[number].parts
        return parts[0] == "bar" or "aligned" in parts

    def _report(self, machine: Lanes, here: np.ndarray, there: np.ndarray, at: int, other: int) -> None:
        scene, block = self._scene, machine.block_index
        waiting, absent = scene.instructions[at], scene.instructions[other]
        missing = int(np.argmax(there))
        lane = int(np.argmax(here & (block == block[missing])))
        kind, why = SKIPPED, "all threads of a block must reach the same one"
        if are_sides(scene.kernel.entry, waiting, absent):
            kind, why = APART, "they match, and GPUs since Volta take both for one, but CUDA asks for the same barrier"
        thread, absentee = machine.thread_in_grid[[lane, missing]]
        text = (
            f"waits at this barrier, and {scene.describe_thread(absentee, thread)} of its block waits at another, at "
            f"{absent.line_seen_from(waiting)}: {why}"
        )
        scene.report(kind, waiting, thread, text, absentee, absent, int(there.sum()))


def are_sides(entry: Entry, first: Instruction, second: Instruction) -> bool:
    """Return whether two instructions are on the two sides of one branch, before these reconverge."""
    following = [_following(entry, place) for place in range(len(entry.instructions))]
    behind = _post_dominators(following)
    places = {id(instruction): place for place, instruction in enumerate(entry.instructions)}
    if id(first) not in places or id(second) not in places:
        return False  # in a function that the kernel calls
    x, y = places[id(first)], places[id(second)]
    for branch, targets in enumerate(following):
        if len(targets) > 1:
            bits = enumerate(reversed(f"{behind[branch]:b}"))
            ways = [place for place, bit in bits if bit == "1" and place != branch]
            meet = max(ways, key=lambda place: behind[place].bit_count())
            own = [{x, y} & _reached(following, target, meet) for target in targets]
            if {x} in own and {y} in own:
                return True
    return False


def _following(entry: Entry, place: int) -> Sequence[int]:
    """Return the places that may follow; the one behind the last instruction stands for an exit."""
    instruction, end = entry.instructions[place], len(entry.instructions)
    opcode = instruction.parts[0]
    targets: list[int] = []
    if opcode == "bra" and isinstance(instruction.operands[0], Symbol):
        targets = [entry.labels[instruction.operands[0].name]]
    elif opcode == "brx" and isinstance(instruction.operands[1], Symbol):
        targets = [entry.labels[name] for name in entry.tables[instruction.operands[1].name]]
    elif opcode in _LEAVES:
        targets = [end]
    if not targets or instruction.guard:
        targets.append(place + 1)
    return tuple(dict.fromkeys(targets))


def _post_dominators(following: Sequence[Sequence[int]]) -> list[int]:
    """Return for each place its post-dominators as bits: what every path from it to the end passes, itself included."""
    end = len(following)
    everything = (1 << end + 1) - 1
    behind = [everything] * end + [1 << end]
    changed = True
    while changed:
        changed = False
        for place in reversed(range(end)):
            found = everything
            for target in following[place]:
                found &= behind[target]
            found |= 1 << place
            if found != behind[place]:
                behind[place], changed = found, True
    return behind


def _reached(following: Sequence[Sequence[int]], start: int, stop: int) -> set[int]:
    """Return the places that are reachable from `start` before `stop`."""
    found: set[int] = set()
    left = [start]
    while left:
        place = left.pop()
        if place != stop and place < len(following) and place not in found:
            found.add(place)
            left += following[place]
    return found
