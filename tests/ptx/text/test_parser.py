"""What the parser reads: literals, operands, and the places of instructions, which parsed.txt has.

`python -m tests.ptx.text.test_parser` rewrites the places.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemm_ref.ptx.text.operands import Address, Immediate, Negated, Pair, Register, Symbol, Vector
from gemm_ref.ptx.text.parser import parse
from tests.messages import Block, read_blocks, write_blocks
from tests.ptx.harness import HEADER, kernel_text

PARSED = Path(__file__).with_name("parsed.txt")
FILES = """.file 2 "/usr/local/cuda-13.0/targets/x86_64-linux/include/mma.hpp"
.file 3 "/home/cuda_kernels/include/own.cuh"
.file 4 "/env/site-packages/triton/standard.py"
"""


def instruction(text: str):
    return parse(kernel_text(text))["probe"].instructions[0]


@pytest.mark.parametrize("text, value", [
    ("0", 0), ("-1", -1), ("0x1F", 31), ("-0x10", -16), ("017", 15), ("42U", 42), ("WARP_SZ", 32), ("true", 1),
    ("0f3F800000", np.float32(1)), ("0d3FF8000000000000", np.float64(1.5)),
])  # fmt: skip
def test_literals(text, value):
    assert instruction(f"mov.u32 %r1, {text};").operands[1] == Immediate(value)


def test_operands_of_every_shape():
    read = instruction("@!%p1 op.a.b::c {%r1, _, %r2}, [%rd1+-8], [name+16], %p|_, !%q, label, [ %r3 ];")
    assert (read.name, read.guard, read.guard_negated) == ("op.a.b::c", Register("%p1"), True)
    assert read.operands == (
        Vector((Register("%r1"), None, Register("%r2"))), Address(Register("%rd1"), -8), Address(Symbol("name"), 16),
        Pair(Register("%p"), None), Negated(Register("%q")), Symbol("label"), Address(Register("%r3"), 0),
    )  # fmt: skip


def places(block: Block) -> list[str]:
    """Returns the file and the line of each instruction, and those of its callers."""
    body = "\n".join(block.lines)
    instructions = parse(f"{HEADER}{FILES}.entry k()\n{{\n{body}\n}}")["k"].instructions
    return [
        f"{x.file}:{x.line}: {x.name}{''.join(f', called at {place}' for place in x.callers)}" for x in instructions
    ]


@pytest.mark.parametrize("block", read_blocks(PARSED), ids=lambda block: block.title)
def test_an_instruction_has_its_place_and_its_callers(block):
    assert places(block) == block.expected


if __name__ == "__main__":
    write_blocks(PARSED, places)
