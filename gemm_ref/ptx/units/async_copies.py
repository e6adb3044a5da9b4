"""Asynchronous copies that have been started, and when they happen: cp.async (PTX ISA, 9.7.9.25) and bulk copies.

Copies happen as late as they may. A cp.async lands when its lane waits for its group. A bulk load (9.7.9.25.4 and
9.7.9.27) reads global memory and lands when a thread waits for its mbarrier and only its transaction count is pending,
so what reads the tile earlier reads what was there before. A bulk store reads shared memory when its thread waits for
its group (`.read` or not), so a tile that is overwritten earlier is stored overwritten; it writes at a wait without
`.read`, or when the blocks that execute together are done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from gemm_ref.ptx.core.access import Piece, require_running, scatter
from gemm_ref.ptx.core.events import Access, BulkAccess
from gemm_ref.ptx.core.machine import Machine, Mask
from gemm_ref.ptx.core.schedule import Unit
from gemm_ref.ptx.text.dtypes import Value, per_lane
from gemm_ref.ptx.text.errors import AsyncFault
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.mbarriers import MBarriers
from gemm_ref.ptx.units.tile import Line, Tile


@dataclass
class _Copy:
    """One cp.async that was issued, into one piece of shared memory."""

    access: Access | None  # for observers; None without any
    place: Piece
    words: list[Value]
    lanes: np.ndarray | None
    group: Value  # number of its group, which is the lane's
    number: int  # of the copy, in the order in which they were issued


class AsyncCopies(Unit):
    """The cp.async copies of one machine that have not completed yet."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._copies: list[_Copy] = []
        self._groups: Value = np.int64(0)  # how many groups each lane has committed
        self._started = 0  # copies

    def start(self, access: Access | None, place: Piece, words: list[Value]) -> None:
        """Start a copy of these words, 4 bytes of each lane, in the lanes' current groups."""
        self._copies.append(_Copy(access, place, words, place.lanes, self._groups, self._started))
        self._started += 1

    def commit(self, mask: Mask) -> None:
        self._groups = self._groups + 1 if mask is None else self._groups + mask

    def wait(self, mask: Mask, keep: int) -> None:
        """Complete the copies of all but the latest `keep` groups of each waiting lane."""
        self._land(mask, lambda copy: np.asarray(copy.group < self._groups - keep))

    def make_landing(self) -> Callable[[np.ndarray], None]:
        """Return what completes the copies of some lanes that have been started by now."""
        now = self._started
        return lambda lanes: self._land(lanes, lambda copy: np.asarray(copy.number < now))

    def _land(self, mask: Mask, which: Callable[[_Copy], np.ndarray]) -> None:
        machine, remaining = self._machine, []
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
                    remaining.append(copy)
        self._copies = remaining


@dataclass(frozen=True)
class BulkBatch:
    """The bulk copies that one instruction has started, an entry for each lane, or for each receiving block."""

    instruction: Instruction
    tile: Tile | Line
    lanes: np.ndarray  # numbers of the lanes that started them
    where: np.ndarray  # (entries, rank) coordinates or (entries, 1) addresses in global memory
    blocks: np.ndarray  # of the machine, in whose shared memory the other side is
    offsets: np.ndarray  # bytes there
    completion: np.ndarray  # the numbers of the mbarriers at which loads complete, or of the bulk groups of stores
    data: np.ndarray | None = None  # of stores that have read shared memory

    def only(self, chosen: np.ndarray) -> Self:
        """Return some of the entries."""
        arrays = {name: value[chosen] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **arrays)


class BulkCopies(Unit):
    """The bulk copies of one machine that have not completed yet."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._mbarriers = machine.unit(MBarriers)
        self._mbarriers.land_copies, self._mbarriers.describe_copies = self.land, self.describe
        self._loads: list[BulkBatch] = []
        self._stores: list[BulkBatch] = []
        self._groups = np.zeros(machine.lanes, np.int64)  # how many groups each lane has committed

    def load(self, copies: BulkBatch) -> None:
        self._notify(copies, "async store", started=True)
        self._loads.append(copies)

    def land(self, barriers: np.ndarray) -> None:
        """Complete loads that signal these barriers, in the order in which they were started, until a phase ends."""
        remaining = []
        for copies in self._loads:
            chosen = np.isin(copies.completion, barriers) if barriers.size else np.zeros(copies.lanes.size, bool)
            if chosen.any():
                self._land(copies.only(chosen))
                barriers = self._mbarriers.select_pending_bytes(barriers)
            if not chosen.all():
                remaining.append(copies.only(~chosen) if chosen.any() else copies)
        self._loads = remaining

    def _land(self, copies: BulkBatch) -> None:
        machine, tile = self._machine, copies.tile
        if machine.launch.cluster != (1, 1, 1):
            require_running(machine, copies.instruction, copies.blocks)
        self._notify(copies, "load")
        data = tile.read(machine.memory, copies.where)
        chunks = tile.piece_numbers(copies.offsets) + (copies.blocks * machine.shared.stride // 16)[:, None]
        _sixteens(machine)[chunks] = data
        self._notify(copies, "async store")
        self._mbarriers.complete(copies.instruction, copies.completion, np.full(copies.lanes.size, tile.bytes))

    def describe(self, barrier: int) -> str:
        """Describe the loads that have yet to complete at a barrier, as the end of a sentence."""
        bytes_ = sum(copies.tile.bytes * np.count_nonzero(copies.completion == barrier) for copies in self._loads)
        return f" ({bytes_} bytes are on their way)" if bytes_ else ""

    def store(self, copies: BulkBatch) -> None:
        self._notify(copies, "async load", started=True)
        self._stores.append(copies)

    def groups(self, lanes: np.ndarray) -> np.ndarray:
        """Return the number of the current bulk group of each of these lanes."""
        return self._groups[lanes]

    def commit(self, lanes: np.ndarray) -> None:
        self._groups += lanes

    def wait(self, lanes: np.ndarray, keep: int, reads_only: bool) -> None:
        """Let lanes wait for all but their latest `keep` groups, or only until these have read shared memory."""
        remaining = []
        for copies in self._stores:
            done = lanes[copies.lanes] & (copies.completion < self._groups[copies.lanes] - keep)
            if not done.all():
                remaining.append(copies.only(~done))
            if done.any():
                ready = copies.only(done)
                if reads_only:
                    remaining.append(replace(ready, data=self._read(ready)))
                else:
                    self._write(ready)
        self._stores = remaining

    def on_leave(self, instruction: Instruction, lanes: np.ndarray) -> None:
        """Raise AsyncFault if one of these lanes, which exit, has a store that may not have read shared memory yet."""
        for copies in self._stores:
            if copies.data is None and lanes[copies.lanes].any():
                lane = int(copies.lanes[np.argmax(lanes[copies.lanes])])
                raise AsyncFault(
                    f"{copies.instruction.origin}: {self._machine.describe_lane(lane)} leaves at {instruction.place} "
                    "while this store may still be reading shared memory: commit it (cp.async.bulk.commit_group) and "
                    "wait for it (cp.async.bulk.wait_group.read 0)"
                )

    def on_end(self) -> None:
        """Write the stores that have read their tiles."""
        for copies in self._stores:
            self._write(copies)
        self._stores = []

    def _read(self, copies: BulkBatch) -> np.ndarray:
        if copies.data is not None:
            return copies.data
        machine = self._machine
        self._notify(copies, "async load")
        chunks = copies.tile.piece_numbers(copies.offsets) + (copies.blocks * machine.shared.stride // 16)[:, None]
        return _sixteens(machine)[chunks]

    def _write(self, copies: BulkBatch) -> None:
        data = self._read(copies)
        self._notify(copies, "store")
        copies.tile.write(self._machine.memory, copies.where, data)

    def _notify(self, copies: BulkBatch, kind: str, started: bool = False) -> None:
        """Tell observers of each side of each copy; of a load into shared memory also when it starts."""
        machine, tile = self._machine, copies.tile
        if not machine.observers:
            return
        for entry in range(copies.lanes.size):
            block = int(copies.blocks[entry])
            if kind.startswith("async"):
                space, size, addresses = "shared", 16, tile.piece_numbers(copies.offsets[entry : entry + 1])[0] * 16
            else:
                space, size = "global", tile.element_size
                addresses = tile.addresses(machine.memory, copies.where[entry : entry + 1])
            lane, loads = int(copies.lanes[entry]), kind in ("load", "async store")
            barrier = int(copies.completion[entry]) if loads else None
            access = BulkAccess(
                copies.instruction, kind, space, size, addresses, lane, block, started, machine, barrier
            )
            for observer in machine.observers:
                observer.on_bulk(access)


def _sixteens(machine: Machine) -> np.ndarray:
    """Return all shared memory of the machine in pieces of 16 bytes."""
    return machine.shared.data.view(np.uint64).reshape(-1, 2)
