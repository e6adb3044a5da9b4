"""Integer instructions beyond those of C against the manual's definition; carries through several words."""

from __future__ import annotations

import pytest

from tests.ptx.harness import OpCase, check, covers, evaluate
from tests.ptx.ieee import number, signed, width
from tests.ptx.isa.test_opcodes import integer

PLACES = (0, 1, 5, 31, 32, 33, 255)


def product_24(kind: str, high: bool):
    def function(a: int, b: int) -> int:
        x, y = ((signed(v, 24) if kind == "s32" else v & 0xFFFFFF) for v in (a, b))
        return (x * y >> 16 if high else x * y) & 0xFFFFFFFF

    return function


def bytes_of(word: int, kind: str) -> list[int]:
    return [number(word >> 8 * i, f"{kind[0]}8") for i in range(4)]


def dp4a(first: str, second: str):
    def function(a: int, b: int, c: int) -> int:
        return c + sum(x * y for x, y in zip(bytes_of(a, first), bytes_of(b, second), strict=True)) & 0xFFFFFFFF

    return function


def dp2a(high: bool):
    def function(a: int, b: int, c: int) -> int:
        halves, two = [signed(a, 16), signed(a >> 16, 16)], bytes_of(b, "s32")[2 * high :][:2]
        return c + sum(x * y for x, y in zip(halves, two, strict=True)) & 0xFFFFFFFF

    return function


def find(kind: str, amount: bool):
    """The manual's loop."""
    top = width(kind) - 1

    def function(a: int) -> int:
        value = ~a & (1 << top + 1) - 1 if kind[0] == "s" and a >> top else a
        if value == 0:
            return 0xFFFFFFFF
        place = value.bit_length() - 1
        return top - place if amount else place

    return function


def nth(mask: int, base: int, offset: int) -> int:
    """The manual's loop."""
    offset = signed(offset, 32)
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    place, step, left = base, 1 if offset > 0 else -1, abs(offset)
    while 0 <= place < 32:
        left -= mask >> place & 1
        if left == 0:
            return place
        place += step
    return 0xFFFFFFFF


def ones(clamp: bool):
    def function(place: int, count: int) -> int:
        place, count = (min(v, 32) if clamp else v & 31 for v in (place, count))
        return ((1 << count) - 1 << place) & 0xFFFFFFFF

    return function


def extension(kind: str, clamp: bool):
    def function(a: int, count: int) -> int:
        count = min(count, 32) if clamp else count & 31
        low = a & (1 << count) - 1
        return (signed(low, count) if kind == "s32" and count else low) & 0xFFFFFFFF

    return function


def differences(adds: bool):
    def function(a: int, b: int, c: int) -> int:
        sizes = [abs(x - y) for x, y in zip(bytes_of(a, "u32"), bytes_of(b, "u32"), strict=True)]
        return (c + sum(sizes)) & 0xFFFFFFFF if adds else sum(size << 8 * i for i, size in enumerate(sizes))

    return function


def clamped(a: int) -> int:
    return max(-(1 << 31), min(a, (1 << 31) - 1))


CASES = [
    *(integer(f"sad.{kind}", lambda a, b, c: abs(a - b) + c, 3) for kind in ("u16", "s16", "u32", "s32", "u64", "s64")),
    *(
        OpCase(f"mul24.{part}.{kind}", (kind, kind), kind, product_24(kind, part == "hi"))
        for part in ("lo", "hi")
        for kind in ("u32", "s32")
    ),
    OpCase("mad24.lo.s32", ("s32",) * 3, "s32", lambda a, b, c: product_24("s32", False)(a, b) + c & 0xFFFFFFFF),
    *(OpCase(f"dp4a.{x}.{y}", ("b32",) * 3, "b32", dp4a(x, y)) for x in ("u32", "s32") for y in ("u32", "s32")),
    *(OpCase(f"dp2a.{part}.s32.s32", ("b32",) * 3, "b32", dp2a(part == "hi")) for part in ("lo", "hi")),
    *(
        OpCase(f"bfind{how}.{kind}", (kind,), "b32", find(kind, bool(how)))
        for how in ("", ".shiftamt")
        for kind in ("u32", "s32", "u64", "s64")
    ),
    OpCase(
        "fns.b32", ("b32", "u32", "s32"), "b32", nth, values={1: (0, 5, 31), 2: (0, 1, 2, 9, 0xFFFFFFFF, 0xFFFFFFFD)}
    ),
    *(
        OpCase(f"bmsk.{how}.b32", ("u32", "u32"), "b32", ones(how == "clamp"), values={0: PLACES, 1: PLACES})
        for how in ("clamp", "wrap")
    ),
    *(
        OpCase(f"szext.{how}.{kind}", (kind, "u32"), kind, extension(kind, how == "clamp"), values={1: PLACES})
        for how in ("clamp", "wrap")
        for kind in ("u32", "s32")
    ),
    OpCase("vabsdiff4.u32.u32.u32", ("b32",) * 3, "b32", differences(False)),
    OpCase("vabsdiff4.u32.u32.u32.add", ("b32",) * 3, "b32", differences(True)),
    integer("add.sat.s32", lambda a, b: clamped(a + b), 2),
    integer("sub.sat.s32", lambda a, b: clamped(a - b), 2),
    integer("max.relu.s32", lambda a, b: max(a, b, 0), 2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_instruction_computes_what_the_manual_says(case):
    check(case)


WORDS = (0, 1, 0xFFFFFFFF, 0x80000000, 0x12345678, 0xFFFFFFFE)


@covers("addc", "subc", "madc")
@pytest.mark.parametrize("sign", ["add", "sub"])
def test_words_are_added_with_their_carry(sign):
    rows = [(a, b, c, d) for a in WORDS for b in WORDS for c in WORDS[:3] for d in WORDS[:3]]
    code = f"{sign}.cc.u32 %low, %a, %b; {sign}c.cc.u32 %high, %c, %d; addc.u32 %more, 0, 0;"
    inputs = {name: ("b32", [row[i] for row in rows]) for i, name in enumerate("abcd")}
    found = evaluate(code, inputs, {"low": "b32", "high": "b32", "more": "b32"})
    for i, (a, b, c, d) in enumerate(rows):
        x, y = c << 32 | a, d << 32 | b
        want = (x + y if sign == "add" else x - y) & (1 << 65) - 1
        got = found["more"][i] << 64 | found["high"][i] << 32 | found["low"][i]
        assert got == want, (hex(x), hex(y))


def test_a_long_product():
    rows = [(a, b) for a in WORDS for b in WORDS]
    code = """.reg .b32 %z; mov.u32 %z, 0; mul.lo.u32 %low, %a, %b; mad.lo.cc.u32 %low, %a, %b, %low;
        madc.hi.u32 %high, %a, %b, %z;"""
    inputs = {name: ("b32", [row[i] for row in rows]) for i, name in enumerate("ab")}
    found = evaluate(code, inputs, {"low": "b32", "high": "b32"})
    for (a, b), low, high in zip(rows, found["low"], found["high"], strict=True):
        total = (a * b & 0xFFFFFFFF) + (a * b & 0xFFFFFFFF)
        assert (low, high) == (total & 0xFFFFFFFF, (a * b >> 32) + (total >> 32) & 0xFFFFFFFF)
