"""The instructions of the reference GPU: one table from opcode to what builds it, and `decode`, which looks there."""

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
from gemm_ref.ptx.isa.numbers.arithmetic import computes
from gemm_ref.ptx.isa.numbers.convert import cvt
from gemm_ref.ptx.isa.numbers.integers import with_carry
from gemm_ref.ptx.text.errors import ParseError, Unsupported
from gemm_ref.ptx.text.parser import Instruction


@dataclass(frozen=True)
class Row:
    """Opcodes, the first parts of instructions' names, that one builder makes."""

    opcodes: tuple[str, ...]
    build: Builder  # its docstring says which forms it has


MANUAL = "PTX ISA 8.7"
# By its sections.
SECTIONS: dict[str, tuple[Row, ...]] = {
    "9.7.1 and 9.7.3, integer and floating-point arithmetic": (
        Row(("add", "sub"), computes(arithmetic.add)),
        Row(("mul", "mad"), computes(arithmetic.multiply)),
        Row(("fma",), computes(arithmetic.fma)),
        Row(("div", "rem"), computes(arithmetic.divide)),
        Row(("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), computes(arithmetic.approximate)),
        Row(("abs", "neg", "copysign"), computes(arithmetic.magnitude)),
        Row(("min", "max"), computes(arithmetic.extreme)),
        Row(("popc", "clz", "brev"), computes(bitwise.count_bits)),
        Row(("testp",), computes(compare.test_number)),
        Row(("sad",), computes(integers.absolute_difference)),
        Row(("mul24", "mad24"), computes(integers.multiply_24)),
        Row(("dp4a", "dp2a"), computes(integers.dot_product)),
        Row(("addc", "subc", "madc"), with_carry),
        Row(("bfind",), computes(integers.find_bit)),
        Row(("fns",), computes(integers.find_nth)),
        Row(("bmsk",), computes(integers.bit_mask)),
        Row(("szext",), computes(integers.extend)),
        Row(("vabsdiff4",), computes(integers.absolute_differences)),
        Row(("bfe",), computes(bitwise.bit_field_extract)),
        Row(("bfi",), computes(bitwise.bit_field_insert)),
    ),
    "9.7.6, comparison and selection": (
        Row(("setp",), compare.set_predicate),
        Row(("set",), compare.set_value),
        Row(("selp",), computes(compare.select)),
        Row(("slct",), computes(compare.select_by_sign)),
    ),
    "9.7.8, logic and shift": (
        Row(("and", "or", "xor"), computes(bitwise.logic)),
        Row(("not", "cnot"), computes(bitwise.invert)),
        Row(("lop3",), computes(bitwise.lop3)),
        Row(("shl", "shr"), computes(bitwise.shift)),
        Row(("shf",), computes(bitwise.funnel_shift)),
    ),
    "9.7.9, data movement and conversion": (
        Row(("mov",), move.move),
        Row(("cvta",), move.convert_address),
        Row(("cvt",), cvt),
        Row(("prmt",), computes(bitwise.permute_bytes)),
        Row(("ld", "ldu"), load_store.load),
        Row(("st",), load_store.store),
        Row(("shfl",), warp.shuffle),
        Row(("mapa",), map_address),
        Row(("getctarank",), rank_of_address),
        Row(("cp",), cp),
        Row(("createpolicy",), move.cache_policy),
        Row(("isspacep",), move.is_space),
        Row(("prefetch", "prefetchu", "discard", "applypriority"), move.nothing),
    ),
    "9.7.12, control flow": (
        Row(("bra",), control.branch),
        Row(("brx",), control.branch_by_table),
        Row(("call",), call),
        Row(("ret", "exit"), control.leave),
    ),
    "9.7.13, parallel synchronization and communication": (
        Row(("bar", "barrier"), control.barrier),
        Row(("mbarrier",), mbarrier),
        Row(("atom", "red"), load_store.atomic),
        Row(("vote",), warp.vote),
        Row(("redux",), warp.reduce),
        Row(("match",), warp.match),
        Row(("activemask",), warp.active_mask),
        Row(("elect",), warp.elect),
        Row(("membar", "fence", "griddepcontrol"), move.nothing),
    ),
    "9.7.14, warp-level matrix multiply-accumulate": (
        Row(("wmma",), wmma),
        Row(("mma",), mma),
        Row(("movmatrix",), transpose),
        Row(("ldmatrix", "stmatrix"), load_store.matrix),
    ),
    "9.7.15, asynchronous warpgroup-level matrix multiply-accumulate": (Row(("wgmma",), wgmma),),
    "9.7.19, miscellaneous": (
        Row(("brkpt", "pmevent"), move.nothing),
        Row(("nanosleep",), move.sleep),
        Row(("setmaxnreg",), move.set_registers),
        Row(("trap",), control.trap),
    ),
}
OPCODES: dict[str, Builder] = {
    opcode: row.build for rows in SECTIONS.values() for row in rows for opcode in row.opcodes
}


def decode(decoder: Decoder, instruction: Instruction) -> Operation:
    """One instruction, ready to run. Raises Unsupported and ParseError, naming its source line."""
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
