"""wgmma (PTX ISA, 9.7.15): warpgroups multiply tiles in shared memory asynchronously, with fp32 or fp16 accumulators.

Sums are those of Hopper's tensor cores to the last bit (`units.tensor_core`); those in fp16, which have not been
compared with a GPU, are taken to be added as `mma` adds them.

An instruction is carried out when its warpgroup waits for its group (`wgmma.wait_group`), and it is only then that it
reads shared memory: a tile that was overwritten before is multiplied as overwritten. Until then its accumulators are in
flight: a lane that reads one gets NaN, which observers are told, and a write to one is overwritten. Fragments of A in
registers are read when the instruction is issued.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gemm_ref.launch import cdiv
from gemm_ref.ptx.core.events import BulkAccess
from gemm_ref.ptx.core.machine import Machine, Mask, Pending, RegisterInFlight
from gemm_ref.ptx.core.schedule import Unit
from gemm_ref.ptx.text.dtypes import per_lane
from gemm_ref.ptx.text.errors import AsyncFault, UndefinedRegister
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.formats import BITS, numbers
from gemm_ref.ptx.units.tensor_core import multiply_add
from gemm_ref.ptx.units.wgmma_operands import (
    ROWS,
    WARPGROUP,
    Descriptors,
    accumulators_to_matrix,
    matrix_to_accumulators,
    read_tiles,
    tile_addresses,
)

KEY = "warpgroup"


@dataclass
class Accumulator(Pending):
    """The registers that wgmma instructions of one shape accumulate in, for all warpgroups of a machine."""

    slots: tuple[int, ...]
    sums: np.ndarray  # (warpgroups, 64, N)
    issued: np.ndarray  # how many instructions of each warpgroup have not been executed


@dataclass(frozen=True)
class Multiply:
    """An instruction that was issued, with an entry for each of its warpgroups."""

    instruction: Instruction
    shape: WgmmaShape
    accumulator: Accumulator
    groups: np.ndarray  # numbers of the warpgroups
    blocks: np.ndarray  # of the machine
    batch: np.ndarray  # number of its wgmma group
    a: np.ndarray  # (entries,) descriptors, or (entries, 64, k) elements as fp32
    b: np.ndarray  # (entries,) descriptors
    accumulates: np.ndarray  # (entries,) whether the product is added to D (scale-d)

    def only(self, chosen: np.ndarray) -> Multiply:
        names = ("groups", "blocks", "batch", "a", "b", "accumulates")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


@dataclass(frozen=True)
class WgmmaShape:
    """The form of an instruction, from its name and immediates."""

    columns: int
    a_kind: str
    b_kind: str
    a_sign: int
    b_sign: int
    a_transposed: bool
    b_transposed: bool
    sums: np.dtype  # the type of D: fp32, int32, or fp16 with two in a register


class Warpgroups(Unit):
    """The warpgroups of one machine, numbered block after block; a partial one at a block's end has a number too."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._per_block = cdiv(machine.launch.threads, WARPGROUP)
        self._group_of_lane = machine.block_index * self._per_block + machine.thread_of_lane // WARPGROUP
        count = int(self._group_of_lane[-1]) + 1
        self._first = np.searchsorted(self._group_of_lane, np.arange(count))  # the first lane of each
        self._fenced = np.zeros(count, bool)
        self._committed = np.zeros(count, np.int64)
        self._queue: list[Multiply] = []
        self._accumulators: dict[tuple[np.dtype, tuple[int, ...]], Accumulator] = {}
        self._assembling: dict[int, None] = {}  # places at which lanes have waited for their warpgroup
        self._in_flight = machine.in_flight  # by register slot
        # The addresses of operands' pieces, by their descriptors and form: a ring of stages has few.
        self._tiles: dict[tuple[bytes, int, bool, str], np.ndarray] = {}

    def find_complete(self, mask: Mask) -> np.ndarray | None:
        """Return the numbers of the warpgroups of these lanes; None if one is not complete."""
        lanes = self._machine.lanes_of(mask)
        here = np.bincount(self._group_of_lane[lanes], minlength=self._first.size)
        if (here % WARPGROUP).any():
            return None
        return np.flatnonzero(here)

    def assemble(self, mask: Mask, place: int) -> int:
        """Park lanes at a place until all lanes of their warpgroup have come; returns the next place."""
        self._assembling[place] = None

        def complete(lanes: np.ndarray) -> np.ndarray:
            whole = np.bincount(self._group_of_lane[lanes], minlength=self._first.size) == WARPGROUP
            return lanes & whole[self._group_of_lane]

        return self._machine.schedule.assemble((KEY, place), mask, place, complete)

    def describe_waits(self) -> list[str]:
        machine, found = self._machine, []
        for place in self._assembling:
            if (lanes := machine.schedule.waiting_at((KEY, place))) is not None:
                who = machine.describe_first(lanes)
                at = machine.instructions[place].place
                found.append(f"{at}: {who} waits for the other lanes of its warpgroup")
        return found

    def fence(self, groups: np.ndarray) -> None:
        self._fenced[groups] = True

    def commit(self, groups: np.ndarray) -> None:
        self._committed[groups] += 1

    def issue(self, instruction: Instruction, shape: WgmmaShape, slots, groups, a, b, accumulates) -> None:
        """Queue an instruction; a, b and accumulates have an entry for each warpgroup."""
        if not self._fenced[groups].all():
            lane = int(self._first[groups[np.argmin(self._fenced[groups])]])
            raise AsyncFault(
                f"{instruction.origin}: {self._machine.describe_lane(lane)} has executed no wgmma.fence before its "
                "first wgmma: registers and shared memory that it reads may not have been written yet"
            )
        accumulator = self._accumulators.get((shape.sums, slots))
        if accumulator is None:
            sums = np.zeros((self._first.size, ROWS, shape.columns), shape.sums)
            issued = np.zeros(self._first.size, np.int64)
            lanes = np.zeros(self._machine.lanes, bool)
            accumulator = self._accumulators[shape.sums, slots] = Accumulator(lanes, instruction, slots, sums, issued)
        accumulator.instruction = instruction
        fresh = groups[accumulator.issued[groups] == 0]
        if fresh.size:
            self._put_in_flight(instruction, accumulator, fresh, accumulates[np.isin(groups, fresh)])
        accumulator.issued[groups] += 1
        blocks, batch = groups // self._per_block, self._committed[groups]
        multiply = Multiply(instruction, shape, accumulator, groups, blocks, batch, a, b, accumulates)
        self._queue.append(multiply)
        if self._machine.observers:  # it may read from now on
            if a.ndim == 1:
                self._locate(multiply, a, ROWS, shape.a_transposed, shape.a_kind, started=True)
            self._locate(multiply, b, shape.columns, shape.b_transposed, shape.b_kind, started=True)

    def wait(self, groups: np.ndarray, keep: int) -> None:
        """Execute all but the latest `keep` committed groups of these warpgroups."""
        waiting = np.zeros(self._first.size, bool)
        waiting[groups] = True
        remaining, completed = [], {}
        for multiply in self._queue:
            done = waiting[multiply.groups] & (multiply.batch < self._committed[multiply.groups] - keep)
            if done.any():
                part = multiply if done.all() else multiply.only(done)
                self._multiply(part)
                completed[id(multiply.accumulator)] = multiply.accumulator
            if not done.all():
                remaining.append(multiply.only(~done) if done.any() else multiply)
        self._queue = remaining
        for accumulator in completed.values():
            self._complete(accumulator, groups[accumulator.issued[groups] == 0])

    def lanes(self, groups: np.ndarray) -> np.ndarray:
        """Return the lane numbers, (warpgroups, 128)."""
        return self._first[groups][:, None] + np.arange(WARPGROUP)

    def _put_in_flight(
        self, instruction: Instruction, accumulator: Accumulator, groups: np.ndarray, accumulates
    ) -> None:
        """Put the registers of these warpgroups in flight; their values are the addends."""
        machine, lanes = self._machine, self.lanes(groups)
        held = []
        for slot in accumulator.slots:
            flight = self._in_flight.get(slot)
            value = machine.registers[slot]  # not None if all lanes have written it while some were in flight
            if value is None and flight is not None:
                value = flight.value
            if value is None:
                if accumulates.any():
                    raise UndefinedRegister(
                        f"{instruction.origin}: an accumulator is added to before anything was written to it"
                    )
                held.append(np.zeros(lanes.shape, np.float32))
            else:
                held.append(per_lane(value, machine.lanes)[lanes].view(np.float32))
            if flight is not None and flight.pending is not accumulator and flight.pending.lanes[lanes].any():
                raise AsyncFault(
                    f"{instruction.origin}: one of its accumulators is in flight in a wgmma of another shape or other "
                    f"registers ({flight.pending.instruction.origin}): wait for that first (wgmma.wait_group)"
                )
            self._in_flight[slot] = RegisterInFlight(machine, value, accumulator)
            machine.registers[slot] = None
        accumulator.sums[groups] = accumulators_to_matrix(np.stack(held), accumulator.sums.dtype)
        accumulator.lanes[lanes] = True

    def _complete(self, accumulator: Accumulator, groups: np.ndarray) -> None:
        """Write the sums to the registers of these warpgroups, whose instructions have all been executed."""
        lanes = self.lanes(groups)
        groups = groups[accumulator.lanes[lanes[:, 0]]]
        if not groups.size:
            return
        machine, lanes = self._machine, self.lanes(groups).ravel()
        accumulator.lanes[lanes] = False
        values = matrix_to_accumulators(accumulator.sums[groups]).reshape(len(accumulator.slots), -1)
        everyone = lanes.size == machine.lanes
        back = not accumulator.lanes.any()
        for slot, value in zip(accumulator.slots, values, strict=True):
            flight = self._in_flight[slot]
            if everyone:
                new = value
            else:
                held = machine.registers[slot] if machine.registers[slot] is not None else flight.value
                held = value.dtype.type(0) if held is None else held
                new = np.array(per_lane(held.view(value.dtype), machine.lanes))
                new[lanes] = value
            if back:
                del self._in_flight[slot]
                machine.registers[slot] = new
            else:
                flight.value = new

    def _multiply(self, multiply: Multiply) -> None:
        shape, accumulator, groups = multiply.shape, multiply.accumulator, multiply.groups
        a = multiply.a
        if a.ndim == 1:
            a = self._operand(multiply, a, ROWS, shape.a_transposed, shape.a_kind)
            a = a.transpose(0, 2, 1) if shape.a_transposed else a
        b = self._operand(multiply, multiply.b, shape.columns, shape.b_transposed, shape.b_kind)
        if shape.b_transposed:
            b = b.transpose(0, 2, 1)
        if shape.a_sign * shape.b_sign < 0:
            b = -b
        before = np.where(multiply.accumulates[:, None, None], accumulator.sums[groups], shape.sums.type(0))
        accumulator.sums[groups] = multiply_add("wgmma", a, b, (shape.a_kind, shape.b_kind), before)
        accumulator.issued[groups] -= 1

    def _operand(self, multiply: Multiply, words, rows: int, transposed: bool, kind: str) -> np.ndarray:
        """Return the tiles that these descriptors address, as fp32."""
        addresses = self._locate(multiply, words, rows, transposed, kind, started=False)
        return numbers(read_tiles(self._machine, addresses, multiply.blocks, BITS[kind]), kind, np.float32)

    def _locate(
        self, multiply: Multiply, words, rows: int, transposed: bool, kind: str, started: bool
    ) -> np.ndarray:  # fmt: skip
        """Return the addresses of tiles' pieces; tell observers that they are read now, or from now on (`started`)."""
        machine, key = self._machine, (words.tobytes(), rows, transposed, kind)
        if key not in self._tiles:
            place = multiply.instruction.origin
            descriptors = Descriptors.unpack(words, place)
            self._tiles[key] = tile_addresses(machine, place, descriptors, rows, transposed, BITS[kind])
        addresses = self._tiles[key]
        if machine.observers:
            for entry, group in enumerate(multiply.groups):
                access = BulkAccess(
                    multiply.instruction, "async load", "shared", 16, addresses[entry].ravel(),
                    int(self._first[group]), int(multiply.blocks[entry]), started, machine,
                )  # fmt: skip
                for observer in machine.observers:
                    observer.on_bulk(access)
        return addresses
