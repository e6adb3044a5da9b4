"""Runs of `fma` do what they do one after the other."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from gemm_ref import ptx
from gemm_ref.launch import Launch
from gemm_ref.ptx.core.events import Observer
from tests.ptx.harness import bits_of, kernel_text, words

LANES, REGISTERS = 64, 12
POINTER = ".param .u64 p0"
# %f0 and on differ from lane to lane, and the last three do not.
BEGIN = "\n".join(
    [
        ".reg .f32 %f<16>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;",
        "mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mul.wide.u32 %rd1, %r0, 48; add.s64 %rd0, %rd0, %rd1;",
        "cvt.rn.f32.u32 %f0, %r0; rcp.rn.f32 %f1, 0f40400000;",
        *(f"fma.rn.f32 %f{i}, %f0, %f{i - 1}, 0f{0x3E000000 + 997 * i:08X};" for i in range(1, REGISTERS - 3)),
        *(f"mov.f32 %f{i}, 0f3F{i:02X}1234;" for i in range(REGISTERS - 3, REGISTERS)),
    ]
)
END = "\n".join(f"st.global.f32 [%rd0+{4 * i}], %f{i};" for i in range(REGISTERS))


class Names(Observer):
    """The lines of all instructions in the order in which they are told of."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def on_instruction(self, instruction, mask, machine) -> None:
        self.lines.append(instruction.line)


def results(kernel: ptx.DecodedKernel, lanes: int = LANES) -> tuple[list[int], list[int], int]:
    """What a kernel leaves in its registers, bit by bit, what an observer was told of, and the instructions counted."""
    out, names = words([99] * lanes * REGISTERS), Names()
    count = ptx.run(kernel, Launch((1, 1, 1), (lanes, 1, 1)), [out], observers=[names])
    return bits_of(out), names.lines, count


def both(code: str, lanes: int = LANES) -> tuple[ptx.DecodedKernel, tuple, tuple]:
    """A kernel, its results, and those where each instruction is executed alone."""
    kernel = ptx.load(kernel_text(f"{BEGIN}\n{code}\n{END}", POINTER))
    alone = replace(kernel, operations=tuple(replace(operation, run=None) for operation in kernel.operations))
    return kernel, results(kernel, lanes), results(alone, lanes)


def lengths(kernel: ptx.DecodedKernel) -> list[int]:
    return [len(operation.run.instructions) for operation in kernel.operations if operation.run]


@pytest.mark.parametrize("seed", range(6))
def test_random_ones_in_a_row(seed):
    chance = random.Random(seed)

    def operand() -> str:
        return chance.choice([f"%f{chance.randrange(REGISTERS)}"] * 9 + ["0fBF99999A"])

    lines = [f"fma.rn.f32 %f{chance.randrange(REGISTERS)}, {operand()}, {operand()}, {operand()};" for _ in range(60)]
    kernel, together, alone = both("\n".join(lines))
    assert together == alone
    assert lengths(kernel), "no four of sixty that do not need one another"


def tile(**changed: str) -> list[str]:
    """Returns eight multiply-adds that do not depend on each other; `_3="..."` replaces the fourth."""
    lines = [f"fma.rn.f32 %f{i}, %f9, %f10, %f{i};" for i in range(8)]
    return [changed.get(f"_{i}", line) for i, line in enumerate(lines)]


@pytest.mark.parametrize("lanes", [1, 32, 1024])
def test_a_tile_is_one_run_a_step(lanes):
    kernel, together, alone = both("\n".join(3 * tile()), lanes)
    assert lengths(kernel) == [8, 8, 8]
    assert together == alone


def test_a_run_ends_where_lanes_may_come_in():
    """Half of the lanes jump to the fifth of eight, which the others reach from above."""
    lines = [*tile()[:4], "MIDDLE:", *tile()[4:]]
    kernel, together, alone = both("\n".join(["setp.lt.u32 %p0, %r0, 32; @%p0 bra MIDDLE;", *lines]))
    assert together == alone and lengths(kernel) == [4, 4]
    first = np.array(together[0], np.uint32).reshape(LANES, REGISTERS)[:, 0].view(np.float32)
    assert (first[:32] == np.arange(32)).all() and (first[32:] != np.arange(32, 64)).all()


def test_guards_are_in_no_run():
    kernel, together, alone = both("\n".join(["setp.lt.u32 %p0, %r0, 20;", *(f"@%p0 {line}" for line in tile())]))
    assert together == alone and lengths(kernel) == []


def test_a_register_that_was_not_written_is_named_with_its_line():
    number = len(BEGIN.splitlines()) + 6
    with pytest.raises(ptx.UndefinedRegister, match=rf"probe.cu:{number}: .*%f15 is read before"):
        both("\n".join(tile(_5="fma.rn.f32 %f5, %f9, %f15, %f5;")))
