"""The instructions of the reference GPU: one table from opcode to builder, by the sections of the PTX ISA manual."""

from __future__ import annotations

from dataclasses import dataclass

from gemm_ref.ptx.core.decode import Builder, Decoder
from gemm_ref.ptx.core.machine import Operation
from gemm_ref.ptx.isa import control, load_store, move, warp
from gemm_ref.ptx.isa.async_copy import cp
from gemm_ref.ptx.isa.call import call
from gemm_ref.ptx.isa.cluster import map_address, rank_of_address
from gemm_ref.ptx.isa.matrix.mma import mma, transpose
from gemm_ref.ptx.isa.matrix.wgmma import wgmma
from gemm_ref.ptx.isa.matrix.wmma import wmma
from gemm_ref.ptx.isa.mbarrier import mbarrier
from gemm_ref.ptx.isa.numbers import arithmetic, bitwise, compare, integers
from gemm_ref.ptx.isa.numbers.arithmetic import builder_of
from gemm_ref.ptx.isa.numbers.convert import cvt
from gemm_ref.ptx.isa.numbers.integers import with_carry
from gemm_ref.ptx.text.errors import ParseError, Unsupported
from gemm_ref.ptx.text.parser import Instruction


@dataclass(frozen=True)
class OpcodeRow:
    """Opcodes, the first parts of instructions' names, with their builder."""

    opcodes: tuple[str, ...]
    build: Builder  # its docstring lists the forms


MANUAL = "PTX ISA 8.7"
# By its sections.
SECTIONS: dict[str, tuple[OpcodeRow, ...]] = {
    "9.7.1 and 9.7.3, integer and floating-point arithmetic": (
        OpcodeRow(("add", "sub"), builder_of(arithmetic.add)),
        OpcodeRow(("mul", "mad"), builder_of(arithmetic.multiply)),
        OpcodeRow(("fma",), builder_of(arithmetic.fma)),
        OpcodeRow(("div", "rem"), builder_of(arithmetic.divide)),
        OpcodeRow(("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), builder_of(arithmetic.approximate)),
        OpcodeRow(("abs", "neg", "copysign"), builder_of(arithmetic.magnitude)),
        OpcodeRow(("min", "max"), builder_of(arithmetic.extreme)),
        OpcodeRow(("popc", "clz", "brev"), builder_of(bitwise.count_bits)),
        OpcodeRow(("testp",), builder_of(compare.test_number)),
        OpcodeRow(("sad",), builder_of(integers.absolute_difference)),
        OpcodeRow(("mul24", "mad24"), builder_of(integers.multiply_24)),
        OpcodeRow(("dp4a", "dp2a"), builder_of(integers.dot_product)),
        OpcodeRow(("addc", "subc", "madc"), with_carry),
        OpcodeRow(("bfind",), builder_of(integers.find_bit)),
        OpcodeRow(("fns",), builder_of(integers.find_nth)),
        OpcodeRow(("bmsk",), builder_of(integers.bit_mask)),
        OpcodeRow(("szext",), builder_of(integers.extend)),
        OpcodeRow(("vabsdiff4",), builder_of(integers.absolute_differences)),
        OpcodeRow(("bfe",), builder_of(bitwise.bit_field_extract)),
        OpcodeRow(("bfi",), builder_of(bitwise.bit_field_insert)),
    ),
    "9.7.6, comparison and selection": (
        OpcodeRow(("setp",), compare.set_predicate),
        OpcodeRow(("set",), compare.set_value),
        OpcodeRow(("selp",), builder_of(compare.select)),
        OpcodeRow(("slct",), builder_of(compare.select_by_sign)),
    ),
    "9.7.8, logic and shift": (
        OpcodeRow(("and", "or", "xor"), builder_of(bitwise.logic)),
        OpcodeRow(("not", "cnot"), builder_of(bitwise.invert)),
        OpcodeRow(("lop3",), builder_of(bitwise.lop3)),
        OpcodeRow(("shl", "shr"), builder_of(bitwise.shift)),
        OpcodeRow(("shf",), builder_of(bitwise.funnel_shift)),
    ),
    "9.7.9, data movement and conversion": (
        OpcodeRow(("mov",), move.move),
        OpcodeRow(("cvta",), move.convert_address),
        OpcodeRow(("cvt",), cvt),
        OpcodeRow(("prmt",), builder_of(bitwise.permute_bytes)),
        OpcodeRow(("ld", "ldu"), load_store.load),
        OpcodeRow(("st",), load_store.store),
        OpcodeRow(("shfl",), warp.shuffle),
        OpcodeRow(("mapa",), map_address),
        OpcodeRow(("getctarank",), rank_of_address),
        OpcodeRow(("cp",), cp),
        OpcodeRow(("createpolicy",), move.cache_policy),
        OpcodeRow(("isspacep",), move.is_space),
        OpcodeRow(("prefetch", "prefetchu", "discard", "applypriority"), move.nothing),
    ),
    "9.7.12, control flow": (
        OpcodeRow(("bra",), control.branch),
        OpcodeRow(("brx",), control.branch_by_table),
        OpcodeRow(("call",), call),
        OpcodeRow(("ret", "exit"), control.leave),
    ),
    "9.7.13, parallel synchronization and communication": (
        OpcodeRow(("bar", "barrier"), control.barrier),
        OpcodeRow(("mbarrier",), mbarrier),
        OpcodeRow(("atom", "red"), load_store.atomic),
        OpcodeRow(("vote",), warp.vote),
        OpcodeRow(("redux",), warp.reduce),
        OpcodeRow(("match",), warp.match),
        OpcodeRow(("activemask",), warp.active_mask),
        OpcodeRow(("elect",), warp.elect),
        OpcodeRow(("membar", "fence", "griddepcontrol"), move.nothing),
    ),
    "9.7.14, warp-level matrix multiply-accumulate": (
        OpcodeRow(("wmma",), wmma),
        OpcodeRow(("mma",), mma),
        OpcodeRow(("movmatrix",), transpose),
        OpcodeRow(("ldmatrix", "stmatrix"), load_store.matrix),
    ),
    "9.7.15, asynchronous warpgroup-level matrix multiply-accumulate": (OpcodeRow(("wgmma",), wgmma),),
    "9.7.19, miscellaneous": (
        OpcodeRow(("brkpt", "pmevent"), move.nothing),
        OpcodeRow(("nanosleep",), move.sleep),
        OpcodeRow(("setmaxnreg",), move.set_registers),
        OpcodeRow(("trap",), control.trap),
    ),
}
OPCODES: dict[str, Builder] = {
    opcode: row.build for rows in SECTIONS.values() for row in rows for opcode in row.opcodes
}


def decode(decoder: Decoder, instruction: Instruction) -> Operation:
    """Decode one instruction. Raises Unsupported and ParseError, naming its source line."""
    build = with_carry if "cc" in instruction.parts else OPCODES.get(instruction.parts[0])
    try:
        guard = decoder.guard(instruction.guard) if instruction.guard else None
        if build is None:
            raise Unsupported(f"the reference GPU has no instruction {instruction.name}")
        step = build(decoder, instruction)
    except (Unsupported, ParseError) as error:
        message = str(error)
        raise type(error)(message if instruction.place in message else f"{instruction.place}: {message}") from None
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise ParseError(f"{instruction.place}: operands not understood ({error})") from error
    return Operation(instruction, guard, instruction.guard_negated, step)
