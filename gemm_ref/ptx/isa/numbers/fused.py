"""Multiply-adds: those that ptxas makes of products and sums, and runs of them, computed at once for register tiles.

A thread that owns 8 x 8 elements of C adds to all of them at each step of K: 64 `fma` in a row, of which none reads the
result of another. One by one, NumPy's overhead per call would take most of the time, since blocks have few lanes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.core.machine import Machine, Operation, Read, Run
from gemm_ref.ptx.isa.numbers.rounding import add_to_product
from gemm_ref.ptx.text.dtypes import DTYPES, per_lane
from gemm_ref.ptx.text.operands import Operand, Register, items_of
from gemm_ref.ptx.text.parser import Entry, Instruction

_MIN_LENGTH = 4
# In one operand of one call. Of twice as many each number takes 9 ns in place of 2: the arrays are then so large that
# the C library gets each from the operating system and gives it back.
_MAX_NUMBERS = 1 << 15


_OF_16_BITS = re.compile(r"(add|mul)\.(b?f16(?:x2)?)")  # without a rounding, which forbids to join them
_REGISTER = re.compile(r"%\w+")
_END_OF_BLOCK = {"bra", "brx", "ret", "exit"}  # of a basic block, also where a guard lets the thread go on


def contract(entry: Entry) -> list[Instruction]:
    """Return the instructions with a sum of 16 bits that adds a product as one `fma`, as ptxas compiles them for sm_90.

    PTX allows that where neither names a rounding (9.7.4.1). ptxas does it where nothing else uses the product, in one
    basic block. A `mov` takes the place of the `mul`. In fp32 the compiler in front of ptxas has done it.
    """
    if not any(map(_OF_16_BITS.fullmatch, {each.name for each in entry.instructions})):
        return entry.instructions
    uses = Counter(name for each in entry.instructions for name in _REGISTER.findall(each.text))
    products: dict[Operand, int] = {}  # their places, by the register that holds each
    starts, result = set(entry.labels.values()), list(entry.instructions)
    for place, each in enumerate(entry.instructions):
        kind = _OF_16_BITS.fullmatch(each.name) if not each.guard else None
        if place in starts or entry.instructions[place - 1].parts[0] in _END_OF_BLOCK:
            products = {}
        if kind and kind[1] == "add":
            for one, other in (each.operands[1:], each.operands[:0:-1]):
                product = result[products.get(one, place)]
                if product.name == f"mul.{kind[2]}":
                    operands = (each.operands[0], *product.operands[1:], other)
                    result[place] = replace(each, name=f"fma.rn.{kind[2]}", operands=operands)
                    name = "mov.b32" if kind[2].endswith("x2") else "mov.b16"
                    result[products.pop(one)] = replace(product, name=name, operands=product.operands[:2])
                    break
        written = set(items_of(each.operands[0])) if each.operands else set()
        products = {x: at for x, at in products.items() if written.isdisjoint((x, *result[at].operands[1:]))}
        if kind and kind[1] == "mul" and isinstance(target := each.operands[0], Register) and uses[target.name] == 2:
            products[target] = place
    return result


def _stack(machine: Machine, reads: Sequence[Read]) -> np.ndarray:
    """Return the lanes' values of one register below the other."""
    values = np.concatenate([per_lane(read(machine), machine.lanes) for read in reads])
    return values.reshape(len(reads), -1)  # in a third of the time of np.stack


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
    """Return unguarded `fma.rn.f32`, of which none reads or writes what an earlier one writes, as a run."""
    names = [_register_names(decoder, instruction) for instruction in instructions]
    targets = [decoder.slot(target) for target, *_ in names]
    sources = {decoder.slot(name) for _, *others in names for name in others}
    _, *factors, addends = zip(*(instruction.operands for instruction in instructions), strict=True)
    places = {factor: number for number, factor in enumerate(dict.fromkeys(factors[0] + factors[1]))}
    left, right = ([places[factor] for factor in column] for column in factors)
    # A tile of 8 x 8 elements has 16 factors for its 64 products: each is read and converted once.
    factor_reads, addend_reads = ([decoder.source(x, DTYPES["f32"]) for x in column] for column in (places, addends))

    def is_possible(machine: Machine) -> bool:
        """Return whether a run pays and all operands are defined; if not, a single instruction reports which."""
        registers = machine.registers
        return machine.lanes * _MIN_LENGTH <= _MAX_NUMBERS and all(registers[slot] is not None for slot in sources)

    def execute(machine: Machine) -> None:
        step = _MAX_NUMBERS // machine.lanes
        numbers = _stack(machine, factor_reads).astype(np.float64)
        for first in range(0, len(targets), step):
            some = slice(first, first + step)
            product = numbers.take(left[some], axis=0) * numbers.take(right[some], axis=0)
            sums = add_to_product(product, _stack(machine, addend_reads[some]))
            for slot, value in zip(targets[some], sums, strict=True):
                machine.registers[slot] = value

    return Run(tuple(instructions), is_possible, execute)
