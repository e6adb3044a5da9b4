"""Integer, logic and bit-field instructions against the PTX manual's definition, bit for bit."""

from __future__ import annotations

import itertools
import operator
from dataclasses import replace

import pytest

from tests.ptx.harness import OpCase, check, evaluate, on_numbers
from tests.ptx.ieee import number, signed, width

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
BITS = ("b16", "b32", "b64")
SHIFTS = (0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 0x80000000, 0xFFFFFFFF)
PLACES = (0, 1, 5, 31, 32, 33, 255)


def over(kinds, opcode: str, function, count: int) -> list[OpCase]:
    """Returns an instruction in each of these types, of `count` sources of the type."""
    return [on_numbers(f"{opcode}.{kind}", (kind,) * count, kind, function) for kind in kinds]


def of_words(name: str, function, count: int = 3, **more) -> OpCase:
    return on_numbers(name, ("b32",) * count, "b32", function, **more)


# --- arithmetic ----------------------------------------------------------------------------------------------


def quotient(a: int, b: int) -> int | None:
    if b == 0:
        return None  # the manual leaves it open
    size = abs(a) // abs(b)
    return size if (a < 0) == (b < 0) else -size


def remainder(a: int, b: int) -> int | None:
    return a - b * quotient(a, b) if b else None


def product_24(a: int, b: int, kind: str) -> int:
    x, y = ((signed(v, 24) if kind == "s32" else v & 0xFFFFFF) for v in (a, b))
    return x * y


def bytes_of(word: int, kind: str) -> list[int]:
    return [number(word >> 8 * i, f"{kind[0]}8") for i in range(4)]


def dot(a: list[int], b: list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def halves_of(word: int) -> list[int]:
    return [signed(word, 16), signed(word >> 16, 16)]


def absolute_differences(a: int, b: int) -> list[int]:
    return [abs(x - y) for x, y in zip(bytes_of(a, "u32"), bytes_of(b, "u32"), strict=True)]


def clamped(a: int) -> int:
    return max(-(1 << 31), min(a, (1 << 31) - 1))


ARITHMETIC = [
    *over(INTEGERS, "add", operator.add, 2),
    *over(INTEGERS, "sub", operator.sub, 2),
    *over(INTEGERS, "mul.lo", operator.mul, 2),
    *over(INTEGERS, "mad.lo", lambda a, b, c: a * b + c, 3),
    *over(INTEGERS, "div", quotient, 2),
    *over(INTEGERS, "rem", remainder, 2),
    *over(INTEGERS, "min", min, 2),
    *over(INTEGERS, "max", max, 2),
    *over(INTEGERS, "sad", lambda a, b, c: abs(a - b) + c, 3),
    *over(INTEGERS[1::2], "abs", abs, 1),
    *over(INTEGERS[1::2], "neg", operator.neg, 1),
    *over(("s32",), "add.sat", lambda a, b: clamped(a + b), 2),
    *over(("s32",), "sub.sat", lambda a, b: clamped(a - b), 2),
    *over(("s32",), "max.relu", lambda a, b: max(a, b, 0), 2),
    *over(("s32",), "mad24.lo", lambda a, b, c: product_24(a, b, "s32") + c, 3),
    of_words("vabsdiff4.u32.u32.u32.add", lambda a, b, c: c + sum(absolute_differences(a, b))),
    of_words(
        "vabsdiff4.u32.u32.u32", lambda a, b, c: sum(size << 8 * i for i, size in enumerate(absolute_differences(a, b)))
    ),
    of_words("dp2a.lo.s32.s32", lambda a, b, c: c + dot(halves_of(a), bytes_of(b, "s32")[:2])),
    of_words("dp2a.hi.s32.s32", lambda a, b, c: c + dot(halves_of(a), bytes_of(b, "s32")[2:])),
    *(
        of_words(f"dp4a.{x}.{y}", lambda a, b, c, x=x, y=y: c + dot(bytes_of(a, x), bytes_of(b, y)))
        for x, y in itertools.product(("u32", "s32"), repeat=2)
    ),
]
for kind in INTEGERS:
    bits = width(kind)
    ARITHMETIC += over((kind,), "mul.hi", lambda a, b, bits=bits: a * b >> bits, 2)
    ARITHMETIC += over((kind,), "mad.hi", lambda a, b, c, bits=bits: (a * b >> bits) + c, 3)
for kind, wide in zip(INTEGERS[:4], INTEGERS[2:], strict=True):
    ARITHMETIC.append(on_numbers(f"mul.wide.{kind}", (kind, kind), wide, operator.mul))
    ARITHMETIC.append(on_numbers(f"mad.wide.{kind}", (kind, kind, wide), wide, lambda a, b, c: a * b + c))
for kind in ("u32", "s32"):
    ARITHMETIC += over((kind,), "mul24.lo", lambda a, b, kind=kind: product_24(a, b, kind), 2)
    ARITHMETIC += over((kind,), "mul24.hi", lambda a, b, kind=kind: product_24(a, b, kind) >> 16, 2)

# --- logic, shifts, bit fields and selection; the functions that are loops are the manual's ------------------


def look_up(table: int, a: int, b: int, c: int) -> int:
    return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))


def extract(kind: str, a: int, b: int, c: int) -> int:
    msb, pos, length = width(kind) - 1, b & 255, c & 255
    sign = 0 if kind[0] == "u" or length == 0 else a >> min(pos + length - 1, msb) & 1
    bits = (a >> (pos + i) & 1 if i < length and pos + i <= msb else sign for i in range(msb + 1))
    return sum(bit << i for i, bit in enumerate(bits))


def insert(a: int, b: int, c: int, d: int) -> int:
    pos, length = c & 255, d & 255
    field = (1 << length) - 1 << pos
    return b & ~field | a << pos & field


def permute(a: int, b: int, c: int) -> int:
    source, result = (b << 32 | a).to_bytes(8, "little"), 0
    for i in range(4):
        choice = c >> 4 * i & 15
        byte = source[choice & 7]
        result |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
    return result


def find(a: int) -> int:
    """Returns the place of the highest bit that is not the sign; -1 for none."""
    return (~a if a < 0 else a).bit_length() - 1


def find_nth(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else -1
    place, step, left = base, 1 if offset > 0 else -1, abs(offset)
    while 0 <= place < 32:
        left -= mask >> place & 1
        if left == 0:
            return place
        place += step
    return -1


LIMITS = {"clamp": lambda value: min(value, 32), "wrap": lambda value: value & 31}


def ones(place: int, count: int, how: str) -> int:
    return (1 << LIMITS[how](count)) - 1 << LIMITS[how](place)


def extension(a: int, count: int, kind: str, how: str) -> int:
    count = LIMITS[how](count)
    low = a & (1 << count) - 1
    return signed(low, count) if kind == "s32" and count else low


LOGIC = [
    *over((*BITS, "pred"), "and", operator.and_, 2),
    *over((*BITS, "pred"), "or", operator.or_, 2),
    *over((*BITS, "pred"), "xor", operator.xor, 2),
    *over(BITS, "not", operator.invert, 1),
    *over(BITS, "cnot", lambda a: int(a == 0), 1),
    *over(("pred",), "not", lambda a: 1 - a, 1),
    *(
        of_words("lop3.b32", lambda a, b, c, table=table: look_up(table, a, b, c), suffix=f", {table:#x}")
        for table in (0, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x3C, 0x1A, 0xFF)
    ),
    of_words("prmt.b32", permute, values={2: (0x3210, 0x7654, 0xFEDC, 0x0123, 0x5410, 0x8888, 0xFFFF7632)}),
    on_numbers(
        "fns.b32",
        ("b32", "u32", "s32"),
        "b32",
        find_nth,
        values={1: (0, 5, 31), 2: (0, 1, 2, 9, 0xFFFFFFFF, 0xFFFFFFFD)},
    ),
]
for kind in (*BITS, *INTEGERS):
    bits = width(kind)
    amounts = {"sources": (kind, "u32"), "result": kind, "values": {1: SHIFTS}}  # past the width they are clamped to it
    LOGIC.append(on_numbers(f"shr.{kind}", function=lambda a, n, bits=bits: a >> min(n, bits), **amounts))
    if kind in BITS:
        LOGIC.append(on_numbers(f"shl.{kind}", function=lambda a, n, bits=bits: a << min(n, bits), **amounts))
for kind in BITS[1:]:
    bits = width(kind)
    LOGIC += [
        on_numbers(f"popc.{kind}", (kind,), "u32", int.bit_count),
        on_numbers(f"clz.{kind}", (kind,), "u32", lambda a, bits=bits: bits - a.bit_length()),
        on_numbers(f"brev.{kind}", (kind,), kind, lambda a, bits=bits: int(f"{a:0{bits}b}"[::-1], 2)),
        on_numbers(f"bfi.{kind}", (kind, kind, "u32", "u32"), kind, insert, values={2: SHIFTS, 3: SHIFTS}),
    ]
for kind in INTEGERS[2:]:
    top, fields = width(kind) - 1, {1: SHIFTS, 2: SHIFTS}
    LOGIC += [
        on_numbers(f"bfe.{kind}", (kind, "u32", "u32"), kind, lambda *v, k=kind: extract(k, *v), values=fields),
        on_numbers(f"bfind.{kind}", (kind,), "b32", find),
        on_numbers(f"bfind.shiftamt.{kind}", (kind,), "b32", lambda a, t=top: -1 if find(a) < 0 else t - find(a)),
    ]
for how in LIMITS:
    values = {2: SHIFTS}
    LOGIC += [
        of_words(f"shf.l.{how}.b32", lambda a, b, n, h=how: (b << 32 | a) << LIMITS[h](n) >> 32, values=values),
        of_words(f"shf.r.{how}.b32", lambda a, b, n, h=how: (b << 32 | a) >> LIMITS[h](n), values=values),
        of_words(f"bmsk.{how}.b32", lambda *v, h=how: ones(*v, h), 2, values={0: PLACES, 1: PLACES}),
    ]
    for kind in ("u32", "s32"):
        extend = on_numbers(f"szext.{how}.{kind}", (kind, "u32"), kind, lambda *v, k=kind, h=how: extension(*v, k, h))
        LOGIC.append(replace(extend, values={1: PLACES}))
for kind in (*BITS, *INTEGERS, "f32", "f64"):
    bits_kind = f"b{width(kind)}"
    choice = on_numbers(f"selp.{kind}", (bits_kind, bits_kind, "pred"), bits_kind, lambda a, b, p: a if p else b)
    LOGIC.append(choice)
    if kind in ("b32", "u64", "f32"):  # -0 counts as zero, and NaN as not at least zero
        for condition in ("s32", "f32"):
            sources = (bits_kind, bits_kind, condition)
            LOGIC.append(on_numbers(f"slct.{kind}.{condition}", sources, bits_kind, lambda a, b, c: a if c >= 0 else b))
CASES = ARITHMETIC + LOGIC


@pytest.mark.parametrize("opcode", dict.fromkeys(case.opcode for case in CASES))
def test_an_instruction_computes_what_the_manual_says(opcode):
    check([case for case in CASES if case.opcode == opcode])


# --- carries -------------------------------------------------------------------------------------------------

WORDS = (0, 1, 0xFFFFFFFF, 0x80000000, 0x12345678, 0xFFFFFFFE)


def test_words_are_added_with_their_carry():
    rows = list(itertools.product(WORDS, WORDS, WORDS[:3], WORDS[:3]))
    inputs = {name: ("b32", [row[i] for row in rows]) for i, name in enumerate("abcd")}
    for sign, combine in (("add", operator.add), ("sub", operator.sub)):
        code = f"{sign}.cc.u32 %low, %a, %b; {sign}c.cc.u32 %high, %c, %d; addc.u32 %more, 0, 0;"
        found = evaluate(code, inputs, {"low": "b32", "high": "b32", "more": "b32"})
        for (a, b, c, d), low, high, more in zip(rows, *found.values(), strict=True):
            want = combine(c << 32 | a, d << 32 | b) & (1 << 65) - 1
            assert more << 64 | high << 32 | low == want, (sign, a, b, c, d)


def test_a_long_product():
    rows = list(itertools.product(WORDS, WORDS))
    code = """.reg .b32 %z; mov.u32 %z, 0; mul.lo.u32 %low, %a, %b; mad.lo.cc.u32 %low, %a, %b, %low;
        madc.hi.u32 %high, %a, %b, %z;"""
    inputs = {name: ("b32", [row[i] for row in rows]) for i, name in enumerate("ab")}
    found = evaluate(code, inputs, {"low": "b32", "high": "b32"})
    for (a, b), low, high in zip(rows, *found.values(), strict=True):
        total = (a * b & 0xFFFFFFFF) + (a * b & 0xFFFFFFFF)
        assert (low, high) == (total & 0xFFFFFFFF, (a * b >> 32) + (total >> 32) & 0xFFFFFFFF)
