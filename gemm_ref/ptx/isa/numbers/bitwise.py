"""What the logic, shift and bit-field instructions compute: PTX ISA, sections 9.7.1, 9.7.8 and 9.7.9.7."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.isa.numbers.arithmetic import Function, allow_modifiers, integer_type
from gemm_ref.ptx.text.dtypes import DTYPES, Value, is_signed

_U32 = DTYPES["u32"]


def logic(parts: list[str]) -> Function:
    """`and`, `or`, `xor`: of bits, and of predicates."""
    dtype = integer_type(parts)
    allow_modifiers(parts)
    apply = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[parts[0]]
    return Function((dtype, dtype), dtype, apply)


def invert(parts: list[str]) -> Function:
    """`not`, `cnot`: the opposite bits, and 1 for zero and 0 for all else."""
    dtype = integer_type(parts)
    allow_modifiers(parts)
    return Function((dtype,), dtype, np.invert if parts[0] == "not" else lambda a: (a == 0).astype(dtype))


def lop3(parts: list[str]) -> Function:
    """`lop3`: `.b32`, any logic of three sources, by its table."""
    allow_modifiers(parts)

    def apply(a: Value, b: Value, c: Value, table: Value) -> Value:
        result = np.zeros_like(a | b | c)
        for index in range(8):
            if int(table) >> index & 1:  # bit `index` of the table is the result for a, b, c = its bits 2, 1, 0
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return result

    return Function((_U32,) * 4, _U32, apply)


def shift(parts: list[str]) -> Function:
    """`shl`, `shr`: amounts past the width are clamped."""
    dtype = integer_type(parts)
    allow_modifiers(parts)
    bits = 8 * dtype.itemsize

    move = np.left_shift if parts[0] == "shl" else np.right_shift

    def apply(a: Value, amount: Value) -> Value:
        if amount.ndim == 0 and amount < bits:  # nearly always: a number of the program
            return move(a, amount.astype(dtype))
        shifted = move(a, np.minimum(amount, np.uint32(bits - 1)).astype(dtype))
        if parts[0] == "shr" and is_signed(dtype):
            return shifted  # amounts past the width leave the sign everywhere
        return np.where(amount < bits, shifted, dtype.type(0))[()]

    return Function((dtype, _U32), dtype, apply)


def funnel_shift(parts: list[str]) -> Function:
    """`shf`: `.l .r` and `.wrap .clamp`, two words shifted as one."""
    allow_modifiers(parts, "l", "r", "wrap", "clamp")

    def apply(low: Value, high: Value, amount: Value) -> Value:
        amount = amount & np.uint32(31) if "wrap" in parts else np.minimum(amount, np.uint32(32))
        both = high.astype(np.uint64) << np.uint64(32) | low
        if "r" in parts:
            return (both >> amount.astype(np.uint64)).astype(np.uint32)
        return (both << amount.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)

    return Function((_U32,) * 3, _U32, apply)


def bit_field_extract(parts: list[str]) -> Function:
    """`bfe`: a field of bits, of signed types with its sign."""
    dtype = integer_type(parts)
    allow_modifiers(parts)
    bits = 8 * dtype.itemsize

    def apply(a: Value, position: Value, length: Value) -> Value:
        pos = np.minimum(position & np.uint32(255), np.uint32(bits))
        end = np.minimum(pos + (length & np.uint32(255)), np.uint32(bits))
        # push the field to the top and back: the shift down fills with zeros or, for a signed type, with its top bit
        top = shift(["shl", parts[-1]]).apply(a, np.uint32(bits) - end)
        field = shift(["shr", parts[-1]]).apply(top, np.uint32(bits) - (end - pos))
        if not is_signed(dtype):
            return field
        # a field that starts past the end of a is all sign
        sign = a >> dtype.type(bits - 1)
        return np.where(length & np.uint32(255), np.where(pos < bits, field, sign), dtype.type(0))[()]

    return Function((dtype, _U32, _U32), dtype, apply)


def bit_field_insert(parts: list[str]) -> Function:
    """`bfi`: a word with a field of bits put into it."""
    dtype = integer_type(parts)
    allow_modifiers(parts)
    shift_left = shift(["shl", parts[-1]]).apply

    def apply(a: Value, b: Value, position: Value, length: Value) -> Value:
        pos, count = position & np.uint32(255), length & np.uint32(255)
        ones = shift_left(dtype.type(1), count) - dtype.type(1)  # count past the width gives 0 - 1: all ones
        mask = shift_left(ones, pos)
        return (b & ~mask) | (shift_left(a, pos) & mask)

    return Function((dtype, dtype, _U32, _U32), dtype, apply)


def count_bits(parts: list[str]) -> Function:
    """`popc`, `clz`, `brev`: count and reverse bits."""
    dtype = integer_type(parts)
    allow_modifiers(parts)
    bits = 8 * dtype.itemsize

    def popc(a: Value) -> Value:
        return np.bitwise_count(a).astype(np.uint32)

    def clz(a: Value) -> Value:
        for step in (1 << i for i in range(bits.bit_length() - 1)):
            a = a | a >> dtype.type(step)  # spread the leading one to the right
        return np.uint32(bits) - popc(a)

    def brev(a: Value) -> Value:
        one, places = dtype.type(1), [dtype.type(i) for i in range(bits)]
        return sum((a >> i & one) << j for i, j in zip(places, reversed(places), strict=True)).astype(dtype)

    if parts[0] == "brev":
        return Function((dtype,), dtype, brev)
    return Function((dtype,), _U32, popc if parts[0] == "popc" else clz)


def permute_bytes(parts: list[str]) -> Function:
    """`prmt`: `.b32`, four bytes of two words, by a selector."""
    allow_modifiers(parts)

    def apply(a: Value, b: Value, selector: Value) -> Value:
        both = b.astype(np.uint64) << np.uint64(32) | a
        result: Value = np.uint32(0)
        for index in range(4):
            choice = selector >> np.uint32(4 * index) & np.uint32(15)
            byte = (both >> (choice & np.uint32(7)).astype(np.uint64) * np.uint64(8)).astype(np.uint32) & np.uint32(255)
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            result = result | np.where(choice & np.uint32(8), sign, byte) << np.uint32(8 * index)
        return result[()]

    return Function((_U32,) * 3, _U32, apply)
