"""Independent consecutive multiply-adds are computed at once, which makes register tiles fast.

A thread that owns 8 x 8 elements of C adds to all of them at each step of K: 64 `fma` in a row, of which none reads the
result of another. One by one, NumPy's overhead per call would take most of the time, since blocks have few lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.core.machine import Machine, Operation, Read, Run
from gemm_ref.ptx.isa.numbers.rounding import fma32
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.operands import Register
from gemm_ref.ptx.text.parser import Instruction

_MIN_LENGTH = 4
_MAX_NUMBERS = 1 << 16  # in one operand of one call: more exceed the processor's cache


@dataclass(frozen=True)
class MultiplyAdds:
    """Consecutive unguarded `fma.rn.f32`, of which none reads or writes what an earlier one writes."""

    reads: tuple[tuple[Read, ...], ...]  # of the factors and the summand: a reader for each instruction
    sources: tuple[int, ...]  # the slots they read
    targets: tuple[int, ...]  # the slots they write, one each

    def is_possible(self, machine: Machine) -> bool:
        """Return whether a run pays and all operands are defined; if not, a single instruction reports which."""
        registers = machine.registers
        return machine.lanes * _MIN_LENGTH <= _MAX_NUMBERS and all(registers[slot] is not None for slot in self.sources)

    def execute(self, machine: Machine) -> None:
        """Execute the instructions for all lanes."""
        step = _MAX_NUMBERS // machine.lanes
        for first in range(0, len(self.targets), step):
            targets = self.targets[first : first + step]
            a, b, c = (_concatenate(machine, reads[first : first + step]) for reads in self.reads)
            for slot, value in zip(targets, fma32(a, b, c).reshape(len(targets), -1), strict=True):
                machine.registers[slot] = value


def _concatenate(machine: Machine, reads: Sequence[Read]) -> np.ndarray:
    """Return the lanes' values of one register after the other."""
    return np.concatenate([per_lane(read(machine), machine.lanes) for read in reads])


def attach_runs(decoder: Decoder, operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Attach each run to its first operation. No run spans a label, where lanes may branch to."""
    result, labels, place = list(operations), set(decoder.entry.labels.values()), 0
    instructions = [operation.instruction for operation in operations]
    while place < len(result):
        end = _end_of_run(decoder, instructions, labels, place) if _is_fma(instructions[place]) else place + 1
        if end - place >= _MIN_LENGTH:
            result[place].run = _make_run(decoder, instructions[place:end])
        place = end
    return tuple(result)


def _end_of_run(decoder: Decoder, instructions: Sequence[Instruction], labels: set[int], first: int) -> int:
    written: set[int] = set()
    for place in range(first, len(instructions)):
        instruction = instructions[place]
        if not _is_fma(instruction) or (place in labels and place != first):
            return place
        slots = [decoder.slot(name) for name in _register_names(decoder, instruction)]
        if not written.isdisjoint(slots):
            return place
        written.add(slots[0])
    return len(instructions)


def _is_fma(instruction: Instruction) -> bool:
    return instruction.guard is None and instruction.name == "fma.rn.f32"


def _register_names(decoder: Decoder, instruction: Instruction) -> list[str]:
    """Return the registers of an instruction, the one that it writes first."""
    operands = (decoder.named(operand) for operand in instruction.operands)
    return [operand.name for operand in operands if isinstance(operand, Register)]


def _make_run(decoder: Decoder, instructions: Sequence[Instruction]) -> Run:
    names = [_register_names(decoder, instruction) for instruction in instructions]
    columns = zip(*(instruction.operands[1:] for instruction in instructions), strict=True)
    adds = MultiplyAdds(
        tuple(tuple(decoder.source(operand, DTYPES["f32"]) for operand in column) for column in columns),
        tuple({decoder.slot(name) for _, *sources in names for name in sources}),
        tuple(decoder.slot(target) for target, *_ in names),
    )
    return Run(tuple(instructions), adds.is_possible, adds.execute)
