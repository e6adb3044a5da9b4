"""Registers in machine code: what is written is what nvdisasm reads, and a kernel that looks otherwise is refused."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from cuda_kernels.ceilings import patched
from cuda_kernels.ceilings.patched import KERNEL, UNROLL
from gemm_ref.sass import patch, tools
from gemm_ref.sass.listing import parse
from gemm_ref.sass.patch import RZ, TWO, Operands
from gemm_ref.sass.sections import INSTRUCTION_BYTES, code_places

ARCHITECTURES = [(8, 0), (9, 0)]


def any_operands(name: str, registers: list[int], chance: random.Random) -> Operands:
    d, a, b, c = (chance.choice(registers) for _ in range(4))
    kept = "a" if name in TWO else "".join(place for place in "abc" if chance.random() < 0.5)
    return Operands(d, a, b, RZ if name in TWO else c, kept)


@pytest.mark.forms("name, capability", list(product(["FFMA", "FADD", "HFMA2", "LOP3"], ARCHITECTURES)))
def test_the_disassembler_reads_the_registers_that_were_asked_for(name, capability):
    """Fields of registers have the same bits from 8.0 to 9.0, so the operations alternate between architectures."""
    code = patched.compiled(name, capability)
    chance = random.Random(0)
    asked = [any_operands(name, [*code.values, RZ], chance) for _ in range(UNROLL)]
    cubin = code.with_registers(asked)
    assert [patch.read(cubin, place) for place in code.places] == asked
    (kernel,) = parse(tools.disassemble(cubin))
    begin, _ = code_places(cubin)[KERNEL]
    said = [kernel.code[(place - begin) // INSTRUCTION_BYTES] for place in code.places]
    assert {instruction.name for instruction in said} == {name}
    assert [instruction.operands.split(", 0x")[0] for instruction in said] == [its.text(name) for its in asked]


def test_nothing_else_is_changed():
    code = patched.compiled("FFMA", (9, 0))
    new = code.with_registers([patch.read(code.cubin, place) for place in code.places])
    (before,), (after,) = (parse(tools.disassemble(cubin)) for cubin in (code.cubin, new))
    assert before == after


def test_a_value_is_where_the_loop_as_compiled_has_it():
    """As compiled, the i-th sum gains the products of the sources that registers.cu names."""
    code = patched.compiled("FFMA", (9, 0))
    words = code.small_words(4)
    after = code.expected(words, [patch.read(code.cubin, place) for place in code.places]).view(np.float32)
    value = words.view(np.float32).copy()
    for i in range(UNROLL):
        value[:, 16 + i % 128] += value[:, i % 8] * value[:, 8 + i % 8]
    assert np.array_equal(after, value)


def test_a_register_that_the_loop_does_not_own_is_refused():
    code = patched.compiled("FFMA", (9, 0))
    foreign = next(register for register in range(RZ) if register not in code.values)
    with pytest.raises(ValueError, match=rf"\[{foreign}\] are no registers of this loop"):
        code.with_registers([Operands(foreign, RZ, RZ)] * UNROLL)


def test_values_that_move_are_refused():
    """An LDG whose register no STG stores from the same place: the loop's registers are then not what they seem."""
    code = patched.compiled("FFMA", (9, 0))
    begin, length = code_places(code.cubin)[KERNEL]
    places = range(begin, begin + length, INSTRUCTION_BYTES)
    first = next(p for p in places if int.from_bytes(code.cubin[p : p + 2], "little") & 0xFFF == 0x981)
    moved = bytearray(code.cubin)
    moved[first + 2] ^= 1  # its register
    with pytest.raises(ValueError, match="moves values between registers"):
        patched.values_of(KERNEL, bytes(moved))
