"""What the parser reads, and what it says of text that it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from gemm_ref.ptx.text.operands import Address, Immediate, Negated, Pair, Register, Symbol, Vector
from gemm_ref.ptx.text.parser import parse
from tests.ptx.harness import HEADER, bits_of, kernel_text, run_kernel, words


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


def test_places_come_from_loc_and_line_0_keeps_the_last():
    body = "{\n.loc 1 12 3\nop1;\n.loc 1 0 0\nop2;\n.loc 1 9 2, function_name $L1, inlined_at 1 3 4\nop3; }"
    places = [instruction.place for instruction in parse(f"{HEADER}.entry k()\n{body}")["k"].instructions]
    assert places == ["probe.cu:12: op1", "probe.cu:12: op2", "probe.cu:9: op3"]


def test_a_line_that_was_inlined_has_the_whole_chain_of_calls():
    body = """
        .loc 1 9 1
        .loc 1 5 2, function_name $A, inlined_at 1 9 1
        .loc 1 3 3, function_name $B, inlined_at 1 5 2
        op1;
        .loc 1 9 1
        op2;
        .loc 1 3 3
        op3; // nvcc does not say twice where line 3 was inlined
        .loc 1 5 2, function_name $A, inlined_at 1 5 2
        .loc 1 3 3, function_name $B, inlined_at 1 5 2
        op4; // of a function that was inlined in itself
    """
    instructions = parse(f"{HEADER}.entry k()\n{{\n{body}\n}}")["k"].instructions
    chain = ("probe.cu:5", "probe.cu:9")
    assert [instruction.callers for instruction in instructions] == [chain, (), chain, chain]


LIBRARIES = ("/usr/local/cuda-13.0/targets/x86_64-linux/include/mma.hpp", "/env/site-packages/triton/standard.py")


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_library_does_has_the_line_that_calls_it(library):
    body = """
        .loc 1 9 1
        .loc 3 7 1, function_name $A, inlined_at 1 9 1
        .loc 2 5 2, function_name $B, inlined_at 3 7 1
        .loc 2 4 2, function_name $C, inlined_at 2 5 2
        op1;
        .loc 2 3 3
        op2; // of a function that was called, and not inlined
    """
    more = f'.file 2 "{library}"\n.file 3 "/home/cuda_kernels/include/own.cuh"\n'
    first, second = parse(f"{HEADER}{more}.entry k()\n{{\n{body}\n}}")["k"].instructions
    assert (first.file, first.line, first.callers) == ("own.cuh", 7, ("probe.cu:9",))
    assert (second.file, second.line) == (library.rsplit("/", 1)[-1], 3)


def test_comments_are_left_out():
    assert [i.name for i in parse(kernel_text("op1; // op2;\n/* op3;\n op4; */ op5;"))["probe"].instructions] == [
        "op1",
        "op5",
        "ret",
    ]


def test_names_in_inner_braces_belong_to_them():
    # inline assembly that is expanded twice declares its registers and labels twice
    out = words([0])
    twice = (
        "{{ .reg .{} t; .reg .pred p; mov.{} t, {}; setp.gt.u32 p, %r1, 0; @p bra DONE; add.u32 %r1, %r1, {}; DONE: }}"
    )
    body = ".reg .b64 %rd0; .reg .b32 %r1; ld.param.u64 %rd0, [p0]; mov.u32 %r1, 1;"
    body += twice.format("b32", "u32", 1, 5) + " add.u32 %r1, %r1, 10; " + twice.format("b64", "u64", 2, 100)
    run_kernel(body + "st.global.u32 [%rd0], %r1;", [out], block=(1, 1, 1))
    assert bits_of(out) == [11]
