"""The reference GPU itself: all lanes of some thread blocks in lockstep, each register one NumPy vector.

A register that holds the same number in every lane (a size, a loop counter) is kept as one number. `schedule` decides
which lanes execute what comes next, and the units (`Unit`) do their work asynchronously. PTX ISA, 3.1: a set of SIMT
multiprocessors; here one machine executes as many blocks as are worth one NumPy call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core import coordinates
from gemm_ref.ptx.core.calls import Calls
from gemm_ref.ptx.core.events import Access, KernelInfo, Observer
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.core.memory import Block, Footprint, GlobalMemory, PerOwner, parameter_block
from gemm_ref.ptx.core.schedule import Schedule, Unit
from gemm_ref.ptx.text.dtypes import UNSIGNED, Value
from gemm_ref.ptx.text.errors import EndlessLoop, UndefinedRegister
from gemm_ref.ptx.text.parser import Instruction

_MAX_FOOTPRINTS = 64  # footprints that a machine caches
MAX_INSTRUCTIONS = 5_000_000  # of one batch of blocks: a K of 10^5 in these kernels takes fewer, some minutes
_POISON = np.uint32(0x7FFFFFFF)  # a NaN: what a lane reads of a register in flight
U = TypeVar("U", bound=Unit)
Mask: TypeAlias = np.ndarray | None  # the lanes whose registers may change; None for all that are active


@dataclass(frozen=True)
class Control:
    """An instruction that decides which one follows, or makes lanes wait: from its place to the next."""

    step: Callable[[Machine, Mask, int], int]


@dataclass(frozen=True)
class Run:
    """Consecutive instructions that can be computed at once while all lanes are active."""

    instructions: tuple[Instruction, ...]
    is_possible: Callable[[Machine], bool]
    execute: Callable[[Machine], None]


@dataclass
class Operation:
    """One instruction, ready to be executed."""

    instruction: Instruction
    guard: int | None  # register slot of the guard predicate
    negated: bool
    step: Execute | Control
    run: Run | None = None  # the run that begins here


@dataclass(frozen=True, kw_only=True)
class DecodedKernel(KernelInfo):
    """A kernel, ready to be executed: its operations follow those of the functions that it calls."""

    operations: tuple[Operation, ...]
    registers: tuple[str, ...]  # names, by slot
    first: int  # the place of the kernel's first operation
    local_bytes: int
    functions: Mapping[str, int]  # the addresses of the functions
    instructions: tuple[Instruction, ...]  # of the operations
    cooperates: bool  # it waits at a barrier of its whole grid


@dataclass
class Pending:
    """Lanes whose registers an asynchronous instruction has yet to write."""

    lanes: np.ndarray
    instruction: Instruction  # the last one issued


@dataclass
class RegisterInFlight:
    """A register that is in flight in some lanes: the value of the others, and the last one of those."""

    machine: Machine
    value: Value | None
    pending: Pending

    def read(self, name: str) -> Value:
        """Return what the executing lanes read: NaN in those in flight. `name` is what messages call the register."""
        machine, value = self.machine, self.value
        early = machine.lanes_of(machine.mask) & self.pending.lanes
        if early.any():
            for observer in machine.observers:
                observer.on_early_register(name, early, self.pending.instruction, machine)
            value = np.float32(0) if value is None else value
            bits = value.view(UNSIGNED[value.dtype.itemsize])
            return np.where(early, _POISON.astype(bits.dtype), bits).view(value.dtype)
        if value is None:
            raise UndefinedRegister(f"{machine.place()}: register {name} is read before anything was written to it")
        return value

    def write(self, value: Value, mask: np.ndarray) -> None:
        """Write to some lanes; in those in flight the result of the instruction overwrites it."""
        old = value.dtype.type(0) if self.value is None else self.value.view(value.dtype)
        self.value = np.where(mask, value, old)


class Machine(Lanes):
    """Some thread blocks of one launch, from their first instruction to their last."""

    def __init__(
        self,
        kernel: DecodedKernel,
        launch: Launch,
        blocks: np.ndarray,
        parameters: Sequence[Any],
        memory: GlobalMemory,
        symbols: Mapping[str, int],
        observers: Sequence[Observer],
        units: Sequence[Callable[[Machine], Unit]],
    ) -> None:
        """parameters: a number, the bytes of a struct, or the tiles of tensor maps; symbols: addresses of variables."""
        shared_bytes = kernel.static_shared.size + launch.shared_bytes
        super().__init__(launch, blocks, memory, shared_bytes, kernel.instructions)
        self._kernel = kernel
        self.parameters = parameters
        self.symbols = symbols
        self.observers = observers
        self._per_owner: dict[str, list[Block]] = {
            "shared": [self.shared],
            "param": [parameter_block([b"" if isinstance(p, list) else p.tobytes() for p in parameters])],
        }
        local = PerOwner("local memory", kernel.local_bytes, np.arange(self.lanes), self.lanes)
        self._per_owner["local"] = [local]
        self._special: dict[str, Value] = {}
        self._footprints: dict[int, tuple[np.ndarray, Footprint]] = {}  # by id, which the array keeps from being reused
        self.mask: Mask = None  # of the current instruction
        self.registers: list[Value | None] = [None] * len(kernel.registers)  # by slot
        self.calls = Calls(local, self.lanes, self.registers)
        self.in_flight: dict[int, RegisterInFlight] = {}  # by slot
        self.executed = 0  # instructions, each counted once for all the lanes that execute it together
        self.schedule = Schedule(self, observers, self._snapshot, kernel.first)
        self._units: dict[Any, Any] = {}  # by class
        for kind in units:  # each may ask for those before it
            self._units[kind] = kind(self)
            self.schedule.units.append(self._units[kind])

    def run(self) -> None:
        """Execute until every lane has exited; the machine cannot be used again. Raises PtxError at the first fault."""
        try:
            self._run()
        finally:  # break the cycles of references, so that the memory is freed without a garbage collection
            for unit in self.schedule.units:
                vars(unit).clear()
            del self.schedule
            self.observers = ()

    def _run(self) -> None:
        place = self._kernel.first
        registers, operations = self.registers, self._kernel.operations
        schedule, observers = self.schedule, self.observers
        while True:
            if place >= schedule.stop:
                following = schedule.regroup(place)
                if following is None:
                    for unit in schedule.units:
                        unit.on_end()
                    return
                place = following
            operation = operations[place]
            self.now = place
            mask = self.active
            if operation.guard is not None:
                guard = registers[operation.guard]
                if guard is None:
                    name = self._kernel.registers[operation.guard]
                    raise UndefinedRegister(f"{self.place()}: guard {name} is read before anything was written to it")
                if operation.negated:
                    guard = ~guard
                if guard.ndim == 0:
                    if not guard:
                        place += 1
                        continue
                else:
                    here = self.alive if mask is None else mask
                    if here is not None:
                        guard = guard & here  # the guards of exited lanes do not count
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
            if operation.run is not None and mask is None and operation.run.is_possible(self):
                place += self._execute_run(operation.run)
                continue
            for observer in observers:
                observer.on_instruction(operation.instruction, mask, self)
            step = operation.step
            if isinstance(step, Control):
                place = step.step(self, mask, place)
            else:
                step(self, mask)
                place += 1

    def _snapshot(self) -> tuple[bytes | None, ...]:
        """Return the contents of all registers."""
        return tuple(None if value is None else value.tobytes() for value in self.registers)

    def _execute_run(self, run: Run) -> int:
        """Execute a run for all lanes at once; returns the number of its instructions."""
        for observer in self.observers:
            for instruction in run.instructions:
                observer.on_instruction(instruction, None, self)
        run.execute(self)
        self.executed += len(run.instructions) - 1  # the first has been counted
        return len(run.instructions)

    def unit(self, kind: type[U]) -> U:
        """Return the machine's unit of this class."""
        return self._units[kind]

    def blocks(self, space: str) -> Sequence[Block]:
        """Return the memory blocks that an address of this state space may be in."""
        return self.memory.tensors if space == "global" else self._per_owner[space]

    def footprint(self, addresses: Value) -> Footprint:
        """Return the footprint of addresses, measured once as long as the register is not written again."""
        if addresses.ndim == 0:
            return Footprint(addresses)
        cached = self._footprints.get(id(addresses))
        if cached is None:
            if len(self._footprints) >= _MAX_FOOTPRINTS:
                self._footprints.clear()
            cached = self._footprints[id(addresses)] = addresses, Footprint(addresses)
        return cached[1]

    def observe(self, access: Access) -> None:
        """Tell observers of a memory access."""
        for observer in self.observers:
            observer.on_access(access)

    def print(self, text: str) -> None:
        """Print what a thread prints: to the observers, or to the terminal if there are none."""
        for observer in self.observers:
            observer.on_print(text)
        if not self.observers:
            sys.stdout.write(text)

    def special(self, name: str) -> Value:
        """Return the value of a special register such as `%tid.x` (PTX ISA, chapter 10)."""
        if name not in self._special:
            if name in coordinates.CLOCKS:
                return coordinates.clock(name, self.executed)
            if name.startswith(coordinates.ENVIRONMENT):
                address = self.symbols[coordinates.ENVIRONMENT]
                return np.uint32(address >> 32 if name.endswith("1") else address & 0xFFFFFFFF)
            self._special[name] = coordinates.special(self, name)
        return self._special[name]

    def place(self) -> str:
        """Return the source line and the text of the current instruction."""
        return self.instruction.place


Read = Callable[[Machine], Value]
Write = Callable[[Machine, Value, Mask], None]
Execute = Callable[[Machine, Mask], None]  # an instruction after which the next one follows
