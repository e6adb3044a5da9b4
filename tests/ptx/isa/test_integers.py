"""Integer, logic and bit-field instructions against the PTX manual's definition, bit for bit."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import pytest

from tests.ptx.harness import OpCase, check, covers, evaluate
from tests.ptx.ieee import decode, number, signed, width

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
BITS = ("b16", "b32", "b64")
SHIFTS = (0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 0x80000000, 0xFFFFFFFF)


def of_integers(name: str, function: Callable[..., int], count: int, result: str = "") -> OpCase:
    """Returns an instruction of one integer type; the function computes with Python's unbounded integers."""
    kind = name.rpartition(".")[2]
    to = result or kind

    def reference(*codes: int) -> int:
        return function(*(number(code, kind) for code in codes)) & (1 << width(to)) - 1

    return OpCase(name, (kind,) * count, to, reference)


# --- integer arithmetic --------------------------------------------------------------------------------------


def quotient(a: int, b: int) -> int:
    size = abs(a) // abs(b)
    return size if (a < 0) == (b < 0) else -size


def division(opcode: str, kind: str) -> OpCase:
    def reference(x: int, y: int) -> int | None:
        a, b = number(x, kind), number(y, kind)
        if b == 0:
            return None  # the manual leaves it open
        return (quotient(a, b) if opcode == "div" else a - b * quotient(a, b)) & (1 << width(kind)) - 1

    return OpCase(f"{opcode}.{kind}", (kind, kind), kind, reference)


def wide_sum(kind: str) -> OpCase:
    wide = f"{kind[0]}{2 * width(kind)}"

    def reference(a: int, b: int, c: int) -> int:
        return number(a, kind) * number(b, kind) + c & (1 << width(wide)) - 1

    return OpCase(f"mad.wide.{kind}", (kind, kind, wide), wide, reference)


def product_24(kind: str, high: bool) -> Callable[[int, int], int]:
    def function(a: int, b: int) -> int:
        x, y = ((signed(v, 24) if kind == "s32" else v & 0xFFFFFF) for v in (a, b))
        return (x * y >> 16 if high else x * y) & 0xFFFFFFFF

    return function


def bytes_of(word: int, kind: str) -> list[int]:
    return [number(word >> 8 * i, f"{kind[0]}8") for i in range(4)]


def dot(a: list[int], b: list[int], c: int) -> int:
    return c + sum(x * y for x, y in zip(a, b, strict=True)) & 0xFFFFFFFF


def absolute_differences(a: int, b: int) -> list[int]:
    return [abs(x - y) for x, y in zip(bytes_of(a, "u32"), bytes_of(b, "u32"), strict=True)]


def clamped(a: int) -> int:
    return max(-(1 << 31), min(a, (1 << 31) - 1))


WHOLE = [
    *(of_integers(f"{o}.{k}", f, 2) for o, f in (("add", operator.add), ("sub", operator.sub)) for k in INTEGERS),
    *(of_integers(f"mul.lo.{k}", operator.mul, 2) for k in INTEGERS),
    *(of_integers(f"mul.hi.{k}", lambda a, b, k=k: a * b >> width(k), 2) for k in INTEGERS),
    *(of_integers(f"mad.lo.{k}", lambda a, b, c: a * b + c, 3) for k in INTEGERS),
    *(of_integers(f"mad.hi.{k}", lambda a, b, c, k=k: (a * b >> width(k)) + c, 3) for k in INTEGERS),
    *(of_integers(f"mul.wide.{k}", operator.mul, 2, f"{k[0]}{2 * width(k)}") for k in INTEGERS[:4]),
    *map(wide_sum, INTEGERS[:4]),
    *(division(opcode, kind) for opcode in ("div", "rem") for kind in INTEGERS),
    *(of_integers(f"{o}.{k}", f, 1) for o, f in (("abs", abs), ("neg", operator.neg)) for k in ("s16", "s32", "s64")),
    *(of_integers(f"{o}.{k}", f, 2) for o, f in (("min", min), ("max", max)) for k in INTEGERS),
    *(of_integers(f"sad.{kind}", lambda a, b, c: abs(a - b) + c, 3) for kind in INTEGERS),
    *(
        OpCase(f"mul24.{part}.{kind}", (kind, kind), kind, product_24(kind, part == "hi"))
        for part in ("lo", "hi")
        for kind in ("u32", "s32")
    ),
    of_integers("mad24.lo.s32", lambda a, b, c: product_24("s32", False)(a, b) + c, 3),
    *(
        OpCase(f"dp4a.{x}.{y}", ("b32",) * 3, "b32", lambda a, b, c, x=x, y=y: dot(bytes_of(a, x), bytes_of(b, y), c))
        for x, y in itertools.product(("u32", "s32"), repeat=2)
    ),
    *(
        OpCase(
            f"dp2a.{part}.s32.s32", ("b32",) * 3, "b32",
            lambda a, b, c, at=at: dot([signed(a, 16), signed(a >> 16, 16)], bytes_of(b, "s32")[at : at + 2], c),
        )
        for part, at in (("lo", 0), ("hi", 2))
    ),
    OpCase(
        "vabsdiff4.u32.u32.u32", ("b32",) * 3, "b32",
        lambda a, b, c: sum(size << 8 * i for i, size in enumerate(absolute_differences(a, b))),
    ),
    OpCase(
        "vabsdiff4.u32.u32.u32.add", ("b32",) * 3, "b32",
        lambda a, b, c: c + sum(absolute_differences(a, b)) & 0xFFFFFFFF,
    ),
    of_integers("add.sat.s32", lambda a, b: clamped(a + b), 2),
    of_integers("sub.sat.s32", lambda a, b: clamped(a - b), 2),
    of_integers("max.relu.s32", lambda a, b: max(a, b, 0), 2),
]  # fmt: skip

# --- logic, shifts, bit fields and selection -----------------------------------------------------------------


def shift(kind: str, left: bool) -> OpCase:
    def reference(a: int, amount: int) -> int:
        amount = min(amount, width(kind))  # the manual: amounts past the width are clamped to it
        return (number(a, kind) << amount if left else number(a, kind) >> amount) & (1 << width(kind)) - 1

    return OpCase(f"{'shl' if left else 'shr'}.{kind}", (kind, "u32"), kind, reference, values={1: SHIFTS})


def funnel(left: bool, wraps: bool) -> Callable[[int, int, int], int]:
    def function(a: int, b: int, c: int) -> int:
        n = c & 31 if wraps else min(c, 32)
        return ((b << n) | (a >> (32 - n)) if left else (b << (32 - n)) | (a >> n)) & 0xFFFFFFFF

    return function


def look_up(table: int) -> Callable[[int, int, int], int]:
    return lambda a, b, c: sum(
        (table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32)
    )


def extract(kind: str) -> Callable[[int, int, int], int]:
    """Returns the manual's loop, word for word; the same holds for the next functions."""
    msb = width(kind) - 1

    def function(a: int, b: int, c: int) -> int:
        pos, length = b & 255, c & 255
        sign = 0 if kind[0] == "u" or length == 0 else a >> min(pos + length - 1, msb) & 1
        bits = (a >> (pos + i) & 1 if i < length and pos + i <= msb else sign for i in range(msb + 1))
        return sum(bit << i for i, bit in enumerate(bits))

    return function


def insert(kind: str) -> Callable[[int, int, int, int], int]:
    def function(a: int, b: int, c: int, d: int) -> int:
        pos, length = c & 255, d & 255
        field = (1 << length) - 1 << pos & (1 << width(kind)) - 1
        return b & ~field | a << pos & field

    return function


def permute(a: int, b: int, c: int) -> int:
    source, result = (b << 32 | a).to_bytes(8, "little"), 0
    for i in range(4):
        choice = c >> 4 * i & 15
        byte = source[choice & 7]
        result |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
    return result


def find(kind: str, is_amount: bool) -> Callable[[int], int]:
    top = width(kind) - 1

    def function(a: int) -> int:
        value = ~a & (1 << top + 1) - 1 if kind[0] == "s" and a >> top else a
        place = value.bit_length() - 1
        return 0xFFFFFFFF if value == 0 else top - place if is_amount else place

    return function


def find_nth(mask: int, base: int, offset: int) -> int:
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


def limited(value: int, how: str) -> int:
    return min(value, 32) if how == "clamp" else value & 31


def ones(how: str) -> Callable[[int, int], int]:
    return lambda place, count: ((1 << limited(count, how)) - 1 << limited(place, how)) & 0xFFFFFFFF


def extension(kind: str, how: str) -> Callable[[int, int], int]:
    def function(a: int, count: int) -> int:
        count = limited(count, how)
        low = a & (1 << count) - 1
        return (signed(low, count) if kind == "s32" and count else low) & 0xFFFFFFFF

    return function


def select_by_sign(kind: str, condition: str) -> OpCase:
    def reference(a: int, b: int, c: int) -> int:
        # -0 counts as zero, and NaN as not at least zero
        return a if (decode(c, "f32") >= 0 if condition == "f32" else number(c, condition) >= 0) else b

    return OpCase(f"slct.{kind}.{condition}", (kind, kind, condition), kind, reference)


PLACES = (0, 1, 5, 31, 32, 33, 255)
LOGIC = [
    *(
        OpCase(f"{name}.{kind}", (kind, kind), kind, function)
        for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor))
        for kind in (*BITS, "pred")
    ),
    *(of_integers(f"not.{kind}", operator.invert, 1) for kind in BITS),
    OpCase("not.pred", ("pred",), "pred", lambda a: 1 - a),
    *(of_integers(f"cnot.{kind}", lambda a: int(a == 0), 1) for kind in BITS),
    *(shift(kind, left=True) for kind in BITS),
    *(shift(kind, left=False) for kind in (*BITS, *INTEGERS)),
    *(
        OpCase("lop3.b32", ("b32",) * 3, "b32", look_up(table), suffix=f", {table:#x}")
        for table in (0, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x3C, 0x1A, 0xFF)
    ),
    *(
        OpCase(f"shf.{way}.{mode}.b32", ("b32",) * 3, "b32", funnel(way == "l", mode == "wrap"), values={2: SHIFTS})
        for way in "lr"
        for mode in ("wrap", "clamp")
    ),
    *(OpCase(f"bfe.{k}", (k, "u32", "u32"), k, extract(k), values={1: SHIFTS, 2: SHIFTS}) for k in INTEGERS[2:]),
    *(OpCase(f"bfi.{k}", (k, k, "u32", "u32"), k, insert(k), values={2: SHIFTS, 3: SHIFTS}) for k in BITS[1:]),
    *(OpCase(f"popc.{k}", (k,), "u32", int.bit_count) for k in BITS[1:]),
    *(OpCase(f"clz.{k}", (k,), "u32", lambda a, k=k: width(k) - a.bit_length()) for k in BITS[1:]),
    *(OpCase(f"brev.{k}", (k,), k, lambda a, k=k: int(f"{a:0{width(k)}b}"[::-1], 2)) for k in BITS[1:]),
    OpCase(
        "prmt.b32", ("b32",) * 3, "b32", permute,
        values={2: (0x3210, 0x7654, 0xFEDC, 0x0123, 0x5410, 0x8888, 0xFFFF7632)},
    ),
    *(
        OpCase(f"bfind{how}.{kind}", (kind,), "b32", find(kind, bool(how)))
        for how in ("", ".shiftamt")
        for kind in INTEGERS[2:]
    ),
    OpCase(
        "fns.b32", ("b32", "u32", "s32"), "b32", find_nth,
        values={1: (0, 5, 31), 2: (0, 1, 2, 9, 0xFFFFFFFF, 0xFFFFFFFD)},
    ),
    *(OpCase(f"bmsk.{how}.b32", ("u32", "u32"), "b32", ones(how), values=dict.fromkeys((0, 1), PLACES))
      for how in ("clamp", "wrap")),
    *(OpCase(f"szext.{how}.{kind}", (kind, "u32"), kind, extension(kind, how), values={1: PLACES})
      for how in ("clamp", "wrap") for kind in ("u32", "s32")),
    *(OpCase(f"selp.{k}", (k, k, "pred"), k, lambda a, b, p: a if p else b) for k in (*BITS, *INTEGERS, "f32", "f64")),
    *(select_by_sign(kind, condition) for kind in ("b32", "u64", "f32") for condition in ("s32", "f32")),
]  # fmt: skip
CASES = WHOLE + LOGIC


@pytest.mark.parametrize("opcode", dict.fromkeys(case.opcode for case in CASES))
def test_an_instruction_computes_what_the_manual_says(opcode):
    check([case for case in CASES if case.opcode == opcode])


# --- carries -------------------------------------------------------------------------------------------------

WORDS = (0, 1, 0xFFFFFFFF, 0x80000000, 0x12345678, 0xFFFFFFFE)


@covers("addc", "subc", "madc")
def test_words_are_added_with_their_carry():
    rows = list(itertools.product(WORDS, WORDS, WORDS[:3], WORDS[:3]))
    inputs = {name: ("b32", [row[i] for row in rows]) for i, name in enumerate("abcd")}
    for sign, combine in (("add", operator.add), ("sub", operator.sub)):
        code = f"{sign}.cc.u32 %low, %a, %b; {sign}c.cc.u32 %high, %c, %d; addc.u32 %more, 0, 0;"
        found = evaluate(code, inputs, {"low": "b32", "high": "b32", "more": "b32"})
        for (a, b, c, d), low, high, more in zip(rows, *found.values(), strict=True):
            assert more << 64 | high << 32 | low == combine(c << 32 | a, d << 32 | b) & (1 << 65) - 1, (
                sign,
                a,
                b,
                c,
                d,
            )


def test_a_long_product():
    rows = list(itertools.product(WORDS, WORDS))
    code = """.reg .b32 %z; mov.u32 %z, 0; mul.lo.u32 %low, %a, %b; mad.lo.cc.u32 %low, %a, %b, %low;
        madc.hi.u32 %high, %a, %b, %z;"""
    inputs = {name: ("b32", [row[i] for row in rows]) for i, name in enumerate("ab")}
    found = evaluate(code, inputs, {"low": "b32", "high": "b32"})
    for (a, b), low, high in zip(rows, *found.values(), strict=True):
        total = (a * b & 0xFFFFFFFF) + (a * b & 0xFFFFFFFF)
        assert (low, high) == (total & 0xFFFFFFFF, (a * b >> 32) + (total >> 32) & 0xFFFFFFFF)
