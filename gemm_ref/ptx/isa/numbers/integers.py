"""Integer instructions beyond those of C: PTX ISA, 9.7.1, 9.7.2 and 9.7.18."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, dtype_named, require_form
from gemm_ref.ptx.core.machine import Execute, Machine, Mask
from gemm_ref.ptx.isa.numbers.arithmetic import Function, allow_modifiers, integer_type, multiply
from gemm_ref.ptx.isa.numbers.bitwise import count_bits
from gemm_ref.ptx.text.dtypes import DTYPES, UNSIGNED, Value, is_signed
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.parser import Instruction

_U32 = DTYPES["u32"]


def absolute_difference(parts: list[str]) -> Function:
    """`sad`: |a - b| + c."""
    dtype = integer_type(parts)
    allow_modifiers(parts)
    # the larger less the smaller wraps to the same bits whether signed or not
    return Function((dtype,) * 3, dtype, lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b)))


def multiply_24(parts: list[str]) -> Function:
    """`mul24`, `mad24`: `.lo .hi`, the lower or upper 32 of the 48 bits of a product of numbers of 24 bits."""
    dtype = integer_type(parts)
    allow_modifiers(parts, "lo", "hi")
    wide = np.int64 if is_signed(dtype) else np.uint64
    shift = dtype.type(8)

    def product(a: Value, b: Value) -> Value:
        whole = (a << shift >> shift).astype(wide) * (b << shift >> shift).astype(wide)
        return (whole >> wide(16) if "hi" in parts else whole).astype(dtype)

    if parts[0] == "mul24":
        return Function((dtype,) * 2, dtype, product)
    return Function((dtype,) * 3, dtype, lambda a, b, c: product(a, b) + c)


def _parts_of(word: Value, width: int, signed: bool) -> list[Value]:
    """The bytes or halves of a word as int32, the lowest first."""
    dtype = np.dtype(f"{'i' if signed else 'u'}{width}")
    shifts = range(0, 32, 8 * width)
    return [(word >> np.uint32(s)).astype(UNSIGNED[width]).view(dtype).astype(np.int32) for s in shifts]


def dot_product(parts: list[str]) -> Function:
    """`dp4a`, `dp2a`: four bytes of a by those of b, or two halves of a by the lower or upper bytes of b, plus c."""
    first, second = parts[-2:]
    allow_modifiers(parts[:-1], "lo", "hi")

    def apply(a: Value, b: Value, c: Value) -> Value:
        left = _parts_of(a, 1 if parts[0] == "dp4a" else 2, first == "s32")
        right = _parts_of(b, 1, second == "s32")
        right = right[2:] if "hi" in parts else right
        return sum((x * y for x, y in zip(left, right, strict=False)), start=c.view(np.int32)).view(np.uint32)

    return Function((_U32,) * 3, _U32, apply)


def find_bit(parts: list[str]) -> Function:
    """`bfind`: the place of the highest bit that is not the sign; with `.shiftamt` how far it is from the top."""
    dtype = integer_type(parts)
    allow_modifiers(parts, "shiftamt")
    bits = 8 * dtype.itemsize
    leading = count_bits(["clz", f"u{bits}"]).apply
    none = np.uint32(0xFFFFFFFF)

    def apply(a: Value) -> Value:
        size = (np.where(a < 0, ~a, a)[()] if is_signed(dtype) else a).view(UNSIGNED[dtype.itemsize])
        zeros = leading(size)
        found = zeros if "shiftamt" in parts else np.uint32(bits - 1) - zeros
        return np.where(size == 0, none, found)[()]

    return Function((dtype,), _U32, apply)


def find_nth(parts: list[str]) -> Function:
    """`fns`: the place of the n-th bit that is set, from a place on, up or down; all ones where there is none."""
    allow_modifiers(parts)

    def apply(mask: Value, base: Value, nth: Value) -> Value:
        shape = np.broadcast_shapes(mask.shape, base.shape, nth.shape)
        words, start, left = (np.broadcast_to(x, shape).astype(np.int64) for x in (mask, base, nth))
        step, found = np.where(left < 0, -1, 1), np.full(shape, 0xFFFFFFFF, np.int64)
        left = np.where(left == 0, 1, np.abs(left))  # n of 0 asks for the bit at the place itself
        only_here = np.broadcast_to(nth, shape) == 0
        for distance in range(32):
            place = start + step * distance
            inside = (place >= 0) & (place < 32) & ~(only_here & (distance > 0))
            hit = inside & (words >> np.where(inside, place, 0) & 1 == 1) & (left > 0)
            left = left - hit
            found = np.where(hit & (left == 0), place, found)
        return found.astype(np.uint32)[()]

    return Function((_U32, _U32, DTYPES["s32"]), _U32, apply)


def bit_mask(parts: list[str]) -> Function:
    """`bmsk`: `.clamp .wrap`, so many ones from a place on."""
    allow_modifiers(parts, "clamp", "wrap")

    def apply(place: Value, count: Value) -> Value:
        if "wrap" in parts:
            place, count = place & np.uint32(31), count & np.uint32(31)
        low, length = (np.minimum(x, np.uint32(32)).astype(np.uint64) for x in (place, count))
        return (((np.uint64(1) << length) - np.uint64(1)) << low).astype(np.uint32)

    return Function((_U32, _U32), _U32, apply)


def extend(parts: list[str]) -> Function:
    """`szext`: `.clamp .wrap`, the lowest bits of a number, so many, with the sign or zeros above."""
    dtype = integer_type(parts)
    allow_modifiers(parts, "clamp", "wrap")

    def apply(a: Value, count: Value) -> Value:
        count = count & np.uint32(31) if "wrap" in parts else np.minimum(count, np.uint32(32))
        shift = (np.uint32(32) - count).astype(np.int64)
        wide = (a.astype(np.int64) << shift).astype(np.uint32).view(dtype).astype(np.int64)
        return (wide >> shift).astype(dtype)

    return Function((dtype, _U32), dtype, apply)


def absolute_differences(parts: list[str]) -> Function:
    """`vabsdiff4`: of the four bytes of two words; with `.add` their sum, and the third word's."""
    to, first, second = parts[1:4]
    if set(parts[4:]) - {"add"} or {to, first, second} - {"u32", "s32"}:
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")

    def apply(a: Value, b: Value, c: Value) -> Value:
        pairs = zip(_parts_of(a, 1, first == "s32"), _parts_of(b, 1, second == "s32"), strict=True)
        sizes = [np.abs(x - y).astype(np.uint32) for x, y in pairs]
        if "add" in parts:
            return sum(sizes, start=c)
        return sum((size & np.uint32(255)) << np.uint32(8 * i) for i, size in enumerate(sizes)).astype(np.uint32)

    return Function((_U32,) * 3, _U32, apply)


_CARRY = "%the carry flag"


def with_carry(decoder: Decoder, instruction: Instruction) -> Execute:
    """`addc`, `subc`, `madc`, and `add`, `sub`, `mad` with `.cc`: integers of any length, word by word (9.7.2)."""
    opcode, parts, dtype = instruction.parts[0].removesuffix("c"), instruction.parts, dtype_named(instruction)
    uses, gives, unsigned = instruction.parts[0].endswith("c"), "cc" in parts, UNSIGNED[dtype.itemsize]
    known = set(parts[1:-1]) <= {"cc", "lo", "hi"}
    require_form(known and ("lo" in parts or "hi" in parts) == (opcode == "mad"), instruction)
    decoder.entry.registers.setdefault(_CARRY, "pred")
    slot = decoder.slot(_CARRY)
    write = decoder.destination(instruction.operands[0])
    reads = [decoder.source(operand, dtype) for operand in instruction.operands[1:]]
    product: Callable[..., Value] | None = None
    if opcode == "mad":
        product = multiply(["mul", "hi" if "hi" in parts else "lo", parts[-1]]).apply

    def execute(machine: Machine, mask: Mask) -> None:
        values = [read(machine) for read in reads]
        if product is not None:
            values = [product(*values[:2]), values[2]]
        a, b = (value.view(unsigned) for value in values)
        before = machine.registers[slot]
        carry = (np.bool_(False) if before is None or not uses else before).astype(unsigned)
        if opcode == "sub":
            total = a - b - carry
            over = (a < b) | ((a == b) & (carry != 0))
        else:
            total = a + b + carry
            over = (total < a) | ((total == a) & (carry != 0))
        write(machine, total.view(dtype), mask)
        if gives:
            flags = np.where(mask, over, np.bool_(False) if before is None else before) if mask is not None else over
            machine.registers[slot] = flags

    return execute
