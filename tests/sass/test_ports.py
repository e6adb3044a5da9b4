"""Reads of registers: what an H200 does with FFMA of chosen registers, and what each kind of operand reads."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from gemm_ref.sass import ports
from gemm_ref.sass.listing import Instruction


def loop(*spec: str) -> list[Instruction]:
    """Eight times round FFMAs such as `Eoe a`: a, b and c with even or odd numbers, and the places flagged `.reuse`.

    A large letter is one register for all, small ones are eight that take turns; no place shares one with another.
    """
    trip = []
    for i in range(8 * len(spec)):
        letters, _, kept = spec[i % len(spec)].partition(" ")
        read = []
        for place, letter in enumerate(letters):
            turn = 0 if letter.isupper() else 1 + i % 8
            number = 60 * place + 2 * turn + "EO".index(letter.upper())
            read.append(f"R{number}" + (".reuse" if "abc"[place] in kept else ""))
        trip.append(Instruction("FFMA", ", ".join([read[2].removesuffix(".reuse"), *read])))
    return trip


def measured() -> dict[str, float]:
    """Returns the clocks per FFMA and scheduler of each loop on an H200 (2026-11-22), less the 0.05 of the loop."""
    with Path(__file__).with_name("h200_register_reads.csv").open(encoding="utf-8") as file:
        return {row["loop"]: float(row["clocks_per_ffma"]) for row in csv.DictReader(file)}


def error(written: str, clocks: float) -> float:
    """Returns how far a loop such as `2 Eee a + 2 Eoo a` is predicted off."""
    spec: list[str] = []
    for part in written.split(" + "):
        count, _, letters = part.partition(" ") if part[0].isdigit() else ("1", "", part)
        spec += [letters] * int(count)
    found = ports.clocks(loop(*spec))
    return abs(found.clocks / found.ffma - clocks)


@pytest.mark.parametrize("written, clocks", measured().items())
def test_what_was_measured_is_predicted(written, clocks):
    assert error(written, clocks) < 0.04


@pytest.mark.parametrize("opcode, operands, even, odd", [
    ("FFMA", "R0, R2, R3, R5", 1, 2),
    ("FFMA", "R0, R2, R2, R4", 2, 0),  # one register in two places is read once
    ("FFMA", "R0, -R2, UR5, RZ", 1, 0),  # no uniform register, and no zero
    ("FFMA", "R0, R2, c[0x0][0x210], R4", 2, 0),
    ("LDS.128", "R4, [R11+UR4+0x10]", 0, 1),  # an address; four results
    ("LDG.E.128", "R4, desc[UR6][R8.64+0x10]", 1, 1),  # an address of two registers
    ("STS.128", "[R11], R4", 2, 3),
    ("STG.E.64", "desc[UR6][R8.64], R4", 2, 2),
    ("STSM.16.M88.4", "[R21+0x1000], R8", 2, 3),
    ("LDGSTS.E.BYPASS.128", "[R235+0x1000], desc[UR14][R226.64], P5", 1, 2),
    ("ISETP.LT.AND", "P1, PT, R3, UR12, !P0", 0, 1),
    ("IADD3", "R16, P1, R14, R15, RZ", 1, 1),
    ("IMAD.WIDE", "R8, R3, 0x4, R12", 1, 2),  # adds 64 bits
    ("LOP3.LUT", "P0, RZ, R1, 0xf, RZ, 0xc0, !PT", 0, 1),
    ("S2R", "R13, SR_TID.X", 0, 0),
    ("BRA", "`(.L_x_4)", 0, 0),
    ("BAR.SYNC.DEFER_BLOCKING", "0x0", 0, 0),
    ("@!PT LDS", "RZ, [R4]", 0, 0),  # never happens
])  # fmt: skip
def test_what_each_kind_of_operand_reads(opcode, operands, even, odd):
    guard, _, name = opcode.rpartition(" ")
    found = ports.clocks([Instruction(name, operands, guard)])
    assert (found.even, found.odd) == (even, odd)


def test_a_load_between_does_not_disturb_what_is_kept():
    ffma, load = Instruction("FFMA", "R6, R2.reuse, R5, R6"), Instruction("LDS", "R9, [R4]")
    assert ports.clocks([ffma, load, ffma]).even == 3  # two sums and an address: R2 is there since the trip before
    assert ports.clocks([Instruction("FFMA", "R6, R2, R5, R6"), load, ffma]).even == 4


@pytest.mark.parametrize("opcode, clocks", [("LDS", 65), ("LDS.64", 65), ("LDS.128", 66)])
def test_what_a_load_brings_takes_clocks_of_its_banks(opcode, clocks):
    busy = [Instruction("FFMA", f"R{40 + 2 * i}, R2.reuse, R5, R{40 + 2 * i}") for i in range(64)]  # both at each clock
    assert ports.clocks([Instruction(opcode, "R8, [UR4]"), *busy]).clocks == clocks  # in its own both are free
