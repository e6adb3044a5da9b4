"""How long reading registers keeps a scheduler: the register file has banks as well, and each bank has one port.

A multiply-add, FFMA, reads three registers. Each of a multiprocessor's four schedulers has its registers in two banks,
by their numbers modulo 2, and a bank gives one register of a warp a clock: where all three are of one parity, an FFMA
takes three clocks. What saves clocks:

- a register flagged `.reuse` is kept for its place among the operands, and is not read again there, until the place
  reads another of that bank, or the same without the flag. Loads and stores do not disturb it;
- neighbours overlap. An instruction that reads two or three registers of a bank begins when the bank is free, one that
  reads a single one a clock before; what it reads of the other bank is apart. So FFMA of even and of odd registers in
  turns do not wait for each other, and two of the same parity do.

What a load brings takes a clock of its bank as well, for each register, when it is there; results of arithmetic do not.

Known before: maxas, for Maxwell (four banks, `.reuse` for the next instruction); Jia et al., 'Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking', 2018 (two banks); Huerta et al., arXiv 2503.20481, 2025, for Ampere (two
banks with one port each; what is kept, by place and bank). The rest was measured on an H200, where these rules give the
clocks of 26 patterns within 0.04 (tests/sass/test_ports.py); that loads take clocks is told from whole kernels, which
come out right with it and too fast without (docs/compilers.md).

The clocks are a floor, never a time: waiting for memory, barriers and results is not in them.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gemm_ref.launch import cdiv
from gemm_ref.sass.listing import Instruction
from gemm_ref.sass.mix import bits

MEASURED = (9, 0)  # the compute capability that all this is known of
SCHEDULERS = 4  # of a multiprocessor
BANKS = 2
WINDOW = 2  # clocks: a bank that will have given all within so many from now on is not waited for
_LATENCY = 29  # clocks of a load from shared memory (LDS.128 on an H200); it hardly matters when a load is there
_ROUNDS = 3  # of a loop, of which the last counts: it begins as it ends

_SEPARATOR = re.compile(r",\s*(?![^\[]*\])")  # of operands: no comma within brackets
_PREDICATE = re.compile(r"!?U?P[\dTR]")
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)(\.64)?(\.reuse)?")
_STORES = ("ST", "STG", "STL", "STS", "STSM")
_LOADS = ("LD", "LDG", "LDL", "LDS", "LDSM")
_MEMORY = (*_STORES, *_LOADS, "LDGSTS", "RED")
_NO_RESULT = (*_STORES, "LDGSTS", "RED", "ISETP", "FSETP", "BAR", "BRX", "R2P")  # of others the first operand is it


@dataclass(frozen=True)
class Ports:
    """What one warp asks of its scheduler with the instructions of a trip."""

    instructions: int
    even: int  # reads of registers with even numbers
    odd: int
    clocks: int  # the least that the trip takes
    ffma: int


def clocks(trip: Sequence[Instruction]) -> Ports:
    """What a trip round a loop (`loop.main_trip`) asks of the registers when it is executed again and again.

    Raises ValueError for a trip without instructions.
    """
    if not trip:
        raise ValueError("there is no instruction whose reads could be counted")
    reads, writes = bank_reads(trip), list(map(loaded, trip))
    now, before, banks = 0, 0, Banks()
    for _ in range(_ROUNDS):
        before = now
        for read, written in zip(reads, writes, strict=True):
            now = banks.begin(read, now) + 1
            banks.arrive(now + _LATENCY, written)
    even, odd = (sum(read[bank] for read in reads) for bank in range(BANKS))
    return Ports(len(trip), even, odd, now - before, sum(instruction.name == "FFMA" for instruction in trip))


class Banks:
    """The two banks of one scheduler's registers, in time; clocks never go back."""

    def __init__(self) -> None:
        self._even = self._odd = 0  # when each has given and taken all that it was asked to
        self._arriving: list[tuple[int, Sequence[int]]] = []  # what loads bring: a heap

    def begin(self, reads: Sequence[int], now: int) -> int:
        """The first clock from `now` on at which an instruction that reads so many registers of each bank goes on."""
        while self._arriving and self._arriving[0][0] <= now:
            self._occupy(*heapq.heappop(self._arriving))
        even, odd = reads  # conditions, where max() would do: this is asked for a million times
        if even and (free := self._even - WINDOW + even if even < WINDOW else self._even) > now:
            now = free
        if odd and (free := self._odd - WINDOW + odd if odd < WINDOW else self._odd) > now:
            now = free
        self._occupy(now, reads)
        return now

    def arrive(self, clock: int, registers: Sequence[int]) -> None:
        """At `clock` so many registers of each bank are there from a load."""
        if any(registers):
            heapq.heappush(self._arriving, (clock, registers))

    def _occupy(self, clock: int, registers: Sequence[int]) -> None:
        even, odd = registers
        if even:
            self._even = (self._even if self._even > clock else clock) + even
        if odd:
            self._odd = (self._odd if self._odd > clock else clock) + odd


def loaded(instruction: Instruction) -> tuple[int, ...]:
    """How many registers of each bank a load writes; none for other instructions."""
    found = _REGISTER.match(instruction.operands) if instruction.name in _LOADS and not instruction.never else None
    first, many = (int(found[1]), cdiv(bits(instruction), 32)) if found else (0, 0)
    return tuple(sum(register % BANKS == bank for register in range(first, first + many)) for bank in range(BANKS))


def bank_reads(trip: Sequence[Instruction]) -> list[tuple[int, ...]]:
    """For each instruction of a loop how many registers it reads from each bank."""
    kept: dict[tuple[int, int], int] = {}  # (place, bank) -> the register that is kept there
    found: list[tuple[int, ...]] = []
    for instruction in (*trip, *trip):  # what the end of a trip keeps is there at the beginning of the next
        read = set()
        for place, register, flagged in _sources(instruction):
            slot = place, register % BANKS
            memory = instruction.name in _MEMORY
            if memory or kept.get(slot) != register:
                read.add(register)
            if flagged:
                kept[slot] = register
            elif not memory:
                kept.pop(slot, None)
        found.append(tuple(sum(register % BANKS == bank for register in read) for bank in range(BANKS)))
    return found[len(trip) :]


def _sources(instruction: Instruction) -> list[tuple[int, int, bool]]:
    """(place among the operands, register, whether it is flagged) of all registers that an instruction reads.

    RZ and uniform registers are in no bank. An address, the data of a wide store and what IMAD.WIDE adds are several
    registers.
    """
    if instruction.never:
        return []
    operands = [text for text in _SEPARATOR.split(instruction.operands) if not _PREDICATE.match(text)]
    if instruction.name not in _NO_RESULT:
        operands = operands[1:]
    found = []
    for place, operand in enumerate(operands):
        for number, double, flagged in _REGISTER.findall(operand):
            many = 2 if double else _width(instruction) if place == len(operands) - 1 else 1
            found += [(place, int(number) + i, bool(flagged)) for i in range(many)]
    return found


def _width(instruction: Instruction) -> int:
    """Registers of the last operand."""
    if instruction.opcode.startswith("IMAD.WIDE"):
        return 2
    return cdiv(bits(instruction), 32) if instruction.name in _STORES else 1
