"""The reference GPU itself: all lanes of some thread blocks in lockstep, each register one NumPy vector.

A register that holds the same number in every lane (a size, a loop counter) is kept as one number. `schedule` has which
lanes execute what comes next, and the units what is done later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core import coordinates
from gemm_ref.ptx.core.calls import Calls
from gemm_ref.ptx.core.context import Control, InFlight, Machine, Mask, Run, U
from gemm_ref.ptx.core.decode import Decoder, Operation, bytes_of
from gemm_ref.ptx.core.events import Access, Observer
from gemm_ref.ptx.core.memory import Block, Footprint, GlobalMemory, Parameters, PerOwner
from gemm_ref.ptx.core.polling import Polling
from gemm_ref.ptx.core.schedule import Schedule, Unit
from gemm_ref.ptx.text.dtypes import Value
from gemm_ref.ptx.text.errors import EndlessLoop, UndefinedRegister
from gemm_ref.ptx.text.parser import Instruction

_FOOTPRINTS_KEPT = 64
MAX_INSTRUCTIONS = 5_000_000  # of one batch of blocks: a K of 10^5 in these kernels takes fewer, some minutes


class LockstepMachine(Machine):
    """Some thread blocks of one launch, from their first instruction to their last."""

    def __init__(
        self,
        program: Sequence[Operation],
        decoder: Decoder,
        launch: Launch,
        blocks: np.ndarray,
        parameters: Sequence[Any],
        memory: GlobalMemory,
        symbols: Mapping[str, int],
        observers: Sequence[Observer],
        units: Sequence[Callable[[Machine], Unit]],
    ) -> None:
        self.program = program
        self._decoder = decoder
        self.launch = launch
        self.parameters = parameters
        self.memory = memory
        self.symbols = symbols
        self.observers = observers
        self.lanes = len(blocks) * launch.threads
        lane = np.arange(self.lanes)
        self.block_index = lane // launch.threads
        self.block_of_lane = blocks[self.block_index]
        self.thread_of_lane = lane % launch.threads
        shared_bytes = decoder.static_shared.size + launch.shared_bytes
        self.shared = PerOwner("shared memory", shared_bytes, self.block_index, len(blocks))
        self._per_owner: dict[str, list[Any]] = {
            "shared": [self.shared],
            "local": [PerOwner("local memory", decoder.local_bytes, lane, self.lanes)],
            "param": [Parameters([bytes_of(p) if isinstance(p, np.ndarray | np.generic) else b"" for p in parameters])],
        }
        self._special: dict[str, Value] = {}
        self._footprints: dict[int, Footprint] = {}
        self._kept: list[np.ndarray] = []  # keeps the ids in _footprints from being used again
        self.mask: Mask = None
        self.registers: list[Value | None] = [None] * len(decoder.slots)
        self.calls = Calls(self._per_owner["local"][0], self.lanes, self.registers)
        self.in_flight: Mapping[int, InFlight] = {}
        self.executed = 0  # instructions, each counted once for all the lanes that execute it together
        instructions = [operation.instruction for operation in program]
        self.schedule = Schedule(self, instructions, observers, Polling(self._state))
        self.schedule.first = decoder.first
        self._units: dict[Any, Any] = {}  # by class
        for kind in units:  # each may ask for those before it
            self._units[kind] = kind(self)
            self.schedule.units.append(self._units[kind])

    def run(self) -> None:
        """Execute until every lane has left. Raises PtxError at the first fault. It is of no more use after that."""
        try:
            self._run()
        finally:  # units know it and each other, observers know it: all would stay until Python looks for garbage
            for unit in self.schedule.units:
                vars(unit).clear()
            del self.schedule
            self.observers = ()

    def _run(self) -> None:
        place = self.schedule.first
        registers, program, schedule = self.registers, self.program, self.schedule
        while True:
            if place >= schedule.stop:
                following = schedule.regroup(place)
                if following is None:
                    for unit in schedule.units:
                        unit.on_end()
                    return
                place = following
            operation = program[place]
            schedule.now = place
            mask = schedule.active
            if operation.guard is not None:
                guard = registers[operation.guard]
                if guard is None:
                    name = self._decoder.register(operation.guard)
                    raise UndefinedRegister(f"{self.place()}: guard {name} is read before anything was written to it")
                if operation.negated:
                    guard = ~guard
                if guard.ndim == 0:
                    if not guard:
                        place += 1
                        continue
                else:
                    here = schedule.alive if mask is None else mask
                    if here is not None:
                        guard = guard & here  # what lanes that have left would do does not count
                    count = np.count_nonzero(guard)
                    if count == 0:
                        place += 1
                        continue
                    if count != (self.lanes if here is None else np.count_nonzero(here)):
                        mask = guard
            self.mask = mask
            self.executed += 1
            if self.executed > MAX_INSTRUCTIONS:
                raise EndlessLoop(
                    f"{self.place()}: still running after {MAX_INSTRUCTIONS} instructions: does the loop around this "
                    "line end? (gemm_ref.ptx.core.machine.MAX_INSTRUCTIONS is the limit)"
                )
            if operation.run is not None and mask is None and operation.run.possible(self):
                place += self._execute_run(operation.run)
                continue
            for observer in self.observers:
                observer.on_instruction(operation.instruction, mask, self)
            step = operation.step
            if isinstance(step, Control):
                place = step.step(self, mask, place)
            else:
                step(self, mask)
                place += 1

    def _state(self) -> tuple[bytes | None, ...]:
        """What the lanes hold in registers."""
        return tuple(None if value is None else value.tobytes() for value in self.registers)

    def _execute_run(self, run: Run) -> int:
        """The instructions of a run for all lanes at once; how many they are."""
        for observer in self.observers:
            for instruction in run.instructions:
                observer.on_instruction(instruction, None, self)
        run.execute(self)
        self.executed += len(run.instructions) - 1  # the first has been counted
        return len(run.instructions)

    # --- what instructions ask of the machine ----------------------------------------------------------------

    def unit(self, kind: type[U]) -> U:
        return self._units[kind]

    def blocks(self, space: str) -> Sequence[Block]:
        return self.memory.tensors if space == "global" else self._per_owner[space]

    def footprint(self, addresses: Value) -> Footprint:
        if addresses.ndim == 0:
            return Footprint(addresses)
        found = self._footprints.get(id(addresses))
        if found is None:
            if len(self._kept) >= _FOOTPRINTS_KEPT:
                self._footprints.clear()
                self._kept.clear()
            found = self._footprints[id(addresses)] = Footprint(addresses)
            self._kept.append(addresses)
        return found

    def observe(self, access: Access) -> None:
        for observer in self.observers:
            observer.on_access(access)

    def print(self, text: str) -> None:
        for observer in self.observers:
            observer.on_print(text)
        if not self.observers:
            sys.stdout.write(text)

    def special(self, name: str) -> Value:
        """The value of a special register: PTX ISA, chapter 10."""
        if name not in self._special:
            if name in coordinates.CLOCKS:
                return coordinates.clock(name, self.executed)
            if name.startswith(coordinates.ENVIRONMENT):
                address = self.symbols[coordinates.ENVIRONMENT]
                return np.uint32(address >> 32 if name.endswith("1") else address & 0xFFFFFFFF)
            self._special[name] = coordinates.special(self, name)
        return self._special[name]

    # --- who the lanes are ---------------------------------------------------------------------------------------

    def access_mask(self, mask: Mask) -> Mask:
        return self.schedule.access_mask(mask)

    def lanes_of(self, mask: Mask) -> np.ndarray:
        return self.schedule.lanes_of(mask)

    def living(self) -> np.ndarray:
        return self.schedule.living()

    def describe_lane(self, lane: int) -> str:
        block = coordinates.coordinates(int(self.block_of_lane[lane]), self.launch.grid)
        return f"block {block} thread {coordinates.coordinates(int(self.thread_of_lane[lane]), self.launch.block)}"

    @property
    def instruction(self) -> Instruction:
        return self.schedule.instruction

    def place(self) -> str:
        return self.schedule.instruction.place
