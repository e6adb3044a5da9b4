"""Every arithmetic opcode of the reference GPU against the PTX manual's definition, bit for bit."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import pytest

from tests.ptx.harness import OpCase, check, edge_values
from tests.ptx.ieee import divide, fma, from_bits, negative, number, rounded, square_root, to_bits, width

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "f32", "f64")
SHIFTS = (0, 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 0x80000000, 0xFFFFFFFF)


def wrap(value: int, kind: str) -> int:
    return value & (1 << width(kind)) - 1


def integer(instruction: str, function, sources: int, result: str | None = None, **more) -> OpCase:
    """A case over one integer type, the function on Python's unbounded integers."""
    kind = instruction.split(".")[-1]
    to = result or kind
    return OpCase(
        instruction, (kind,) * sources, to, lambda *v: wrap(function(*(number(x, kind) for x in v)), to), **more
    )


# --- add, sub, mul, mad, div, rem, fma, rcp, sqrt, rsqrt -----------------------------------------------------


def quotient(a: int, b: int) -> int:
    if b == 0:
        return 0
    size = abs(a) // abs(b)
    return size if (a < 0) == (b < 0) else -size


def division_cases(kind: str) -> list[OpCase]:
    def defined(function):
        # the manual leaves a division by zero open
        return lambda a, b: None if b == 0 else wrap(function(number(a, kind), number(b, kind)), kind)

    div = OpCase(f"div.{kind}", (kind, kind), kind, defined(quotient))
    rem = OpCase(f"rem.{kind}", (kind, kind), kind, defined(lambda a, b: a - b * quotient(a, b)))
    return [div, rem]


def products(kind: str) -> list[OpCase]:
    bits = width(kind)
    cases = [
        integer(f"mul.lo.{kind}", operator.mul, 2),
        integer(f"mul.hi.{kind}", lambda a, b: a * b >> bits, 2),
        integer(f"mad.lo.{kind}", lambda a, b, c: a * b + c, 3),
        integer(f"mad.hi.{kind}", lambda a, b, c: (a * b >> bits) + c, 3),
    ]
    if bits < 64:
        wide = f"{kind[0]}{2 * bits}"
        cases.append(integer(f"mul.wide.{kind}", operator.mul, 2, wide))

        def wide_sum(a: int, b: int, c: int) -> int:
            return wrap(number(a, kind) * number(b, kind) + c, wide)

        cases.append(OpCase(f"mad.wide.{kind}", (kind, kind, wide), wide, wide_sum))
    return cases


def floating(instruction: str, function, sources: int, **more) -> OpCase:
    kind = instruction.split(".")[-1]
    return OpCase(
        instruction, (kind,) * sources, kind, lambda *v: function(*(from_bits(x, kind) for x in v), kind), **more
    )


# Products whose sum with c lies so near the middle of two float32 values that rounding twice goes wrong.
HALFWAY = {
    0: (0x3F800001, 0x3FFFFFFF, 0x3F800000, 0x00800000, 0x00800001, 0x1F800001, 0x7F7FFFFF, 0xBF800001),
    1: (0x3F800001, 0x3F7FFFFF, 0x33800000, 0x3F000000, 0x3F000001, 0x1F800001, 0x3FFFFFFF, 0xBF800001),
    2: (0x3F800000, 0x3F800001, 0x33800001, 0x00000001, 0x80000001, 0x24800000, 0x4B800001, 0x7F7FFFFF, 0xB3800000),
}


def float_cases(kind: str) -> list[OpCase]:
    rn = "" if kind == "f16" else ".rn"
    cases = [
        floating(f"add{rn}.{kind}", lambda a, b, k: fma(a, 1.0, b, k), 2),
        floating(f"sub{rn}.{kind}", lambda a, b, k: fma(b, -1.0, a, k), 2),
        floating(f"mul{rn}.{kind}", lambda a, b, k: fma(a, b, -0.0, k), 2),
    ]
    if kind != "f16":
        cases += [
            floating(f"div.rn.{kind}", divide, 2),
            floating(f"rcp.rn.{kind}", lambda a, k: divide(1.0, a, k), 1),
            floating(f"sqrt.rn.{kind}", square_root, 1),
        ]
    return cases


def reciprocal_root(x: float, kind: str) -> int:
    if x == 0:
        return to_bits(math.copysign(math.inf, x), kind)
    if x == math.inf:
        return to_bits(0.0, kind)
    if math.isnan(x) or x < 0:
        return to_bits(math.nan, kind)
    return rounded(1 / Fraction(math.sqrt(x)), kind)


def power_of_two(x: float, kind: str) -> int:
    if math.isnan(x) or x == math.inf or x > 1024:
        return to_bits(abs(x) if math.isnan(x) else math.inf, kind)
    if x < -1024:
        return to_bits(0.0, kind)
    return rounded(Fraction(2.0 ** (x - math.floor(x))) * Fraction(2) ** math.floor(x), kind)


def flushed(function):
    """The same with subnormal float32 numbers taken for zero, before and after."""

    def zero(x: float) -> float:
        return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x

    return lambda x, kind: to_bits(zero(from_bits(function(zero(x), kind), kind)), kind)


ARITHMETIC = [
    *(integer(f"add.{kind}", operator.add, 2) for kind in INTEGERS),
    *(integer(f"sub.{kind}", operator.sub, 2) for kind in INTEGERS),
    *(case for kind in INTEGERS for case in products(kind)),
    *(case for kind in INTEGERS for case in division_cases(kind)),
    *(case for kind in FLOATS for case in float_cases(kind)),
    floating("fma.rn.f32", fma, 3),
    floating("fma.rn.f32", fma, 3, suffix=" ", values=HALFWAY),
    floating("mad.rn.f32", fma, 3),
    # approximate instructions: the manual bounds their error (2 ulp and less), the machine rounds to nearest
    floating("div.approx.f32", divide, 2, ulps=2),
    floating("div.full.f32", divide, 2, ulps=2),
    floating("rcp.approx.f32", lambda a, k: divide(1.0, a, k), 1, ulps=1),
    floating("sqrt.approx.f32", square_root, 1, ulps=2),
    floating("rsqrt.approx.f32", reciprocal_root, 1, ulps=2),
    floating("ex2.approx.f32", power_of_two, 1, ulps=2),
    floating("ex2.approx.ftz.f32", flushed(power_of_two), 1, ulps=2),
    floating("rcp.approx.ftz.f32", flushed(lambda a, k: divide(1.0, a, k)), 1, ulps=1),
]


# --- abs, neg, min, max, logic, shifts -----------------------------------------------------------------------


def smaller(a: float, b: float) -> float:
    return a if (a, not negative(a)) <= (b, not negative(b)) else b  # -0 is below +0


def extreme(kind: str, want_max: bool, propagate: bool):
    def function(x: int, y: int) -> int:
        a, b = from_bits(x, kind), from_bits(y, kind)
        if math.isnan(a) or math.isnan(b):
            if propagate or (math.isnan(a) and math.isnan(b)):
                return to_bits(math.nan, kind)
            return y if math.isnan(a) else x
        low = smaller(a, b)
        high = b if low is a else a
        return to_bits(high if want_max else low, kind)

    return function


def shift(kind: str, left: bool) -> OpCase:
    def function(a: int, amount: int) -> int:
        amount = min(amount, width(kind))  # the manual: amounts past the width are clamped to it
        return wrap(number(a, kind) << amount if left else number(a, kind) >> amount, kind)

    return OpCase(f"{'shl' if left else 'shr'}.{kind}", (kind, "u32"), kind, function, values={1: SHIFTS})


def look_up(table: int):
    def function(a: int, b: int, c: int) -> int:
        return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))

    return function


def funnel(left: bool, wraps: bool):
    def function(a: int, b: int, c: int) -> int:
        n = c & 31 if wraps else min(c, 32)
        return wrap((b << n) | (a >> (32 - n)) if left else (b << (32 - n)) | (a >> n), "u32")

    return function


LOGIC_KINDS = ("b16", "b32", "b64")
LOGIC = [
    *(integer(f"abs.{kind}", abs, 1) for kind in ("s16", "s32", "s64")),
    *(integer(f"neg.{kind}", operator.neg, 1) for kind in ("s16", "s32", "s64")),
    *(floating(f"abs.{kind}", lambda a, k: to_bits(abs(a), k), 1) for kind in FLOATS),
    *(floating(f"neg.{kind}", lambda a, k: to_bits(-a, k), 1) for kind in FLOATS),
    *(integer(f"{name}.{kind}", f, 2) for kind in INTEGERS for name, f in (("min", min), ("max", max))),
    *(
        OpCase(f"{name}{nan}.{kind}", (kind, kind), kind, extreme(kind, name == "max", bool(nan)))
        for kind in FLOATS
        for name in ("min", "max")
        for nan in ("", ".NaN")
    ),
    *(
        OpCase(f"{name}.{kind}", (kind, kind), kind, function)
        for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor))
        for kind in (*LOGIC_KINDS, "pred")
    ),
    *(integer(f"not.{kind}", operator.invert, 1) for kind in LOGIC_KINDS),
    OpCase("not.pred", ("pred",), "pred", lambda a: 1 - a),
    *(integer(f"cnot.{kind}", lambda a: int(a == 0), 1) for kind in LOGIC_KINDS),
    *(shift(kind, left=True) for kind in LOGIC_KINDS),
    *(shift(kind, left=False) for kind in (*LOGIC_KINDS, *INTEGERS)),
    *(
        OpCase("lop3.b32", ("b32",) * 3, "b32", look_up(table), suffix=f", {table:#x}")
        for table in (0, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x3C, 0x1A, 0xFF)
    ),
    *(
        OpCase(f"shf.{way}.{mode}.b32", ("b32",) * 3, "b32", funnel(way == "l", mode == "wrap"), values={2: SHIFTS})
        for way in "lr"
        for mode in ("wrap", "clamp")
    ),
]


# --- bit fields and selection --------------------------------------------------------------------------------


def extract(kind: str):
    """The manual's loop, word for word."""
    msb = width(kind) - 1

    def function(a: int, b: int, c: int) -> int:
        pos, length = b & 255, c & 255
        sign = 0 if kind[0] == "u" or length == 0 else a >> min(pos + length - 1, msb) & 1
        bits = (a >> (pos + i) & 1 if i < length and pos + i <= msb else sign for i in range(msb + 1))
        return sum(bit << i for i, bit in enumerate(bits))

    return function


def insert(kind: str):
    msb = width(kind) - 1

    def function(a: int, b: int, c: int, d: int) -> int:
        pos, length, result = c & 255, d & 255, b
        for i in range(msb + 1):
            if i < length and pos + i <= msb:
                result = result & ~(1 << pos + i) | (a >> i & 1) << pos + i
        return result

    return function


def permute(a: int, b: int, c: int) -> int:
    source, result = (b << 32 | a).to_bytes(8, "little"), 0
    for i in range(4):
        choice = c >> 4 * i & 15
        byte = source[choice & 7]
        result |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
    return result


def select_by_sign(kind: str, condition: str):
    def function(a: int, b: int, c: int) -> int:
        # -0 counts as zero, and NaN as not at least zero
        return a if (from_bits(c, "f32") >= 0 if condition == "f32" else number(c, condition) >= 0) else b

    return OpCase(f"slct.{kind}.{condition}", (kind, kind, condition), kind, function)


FIELD_KINDS = ("u32", "s32", "u64", "s64")
ALL_KINDS = (*LOGIC_KINDS, *INTEGERS, "f32", "f64")
FIELDS = [
    *(OpCase(f"bfe.{k}", (k, "u32", "u32"), k, extract(k), values={1: SHIFTS, 2: SHIFTS}) for k in FIELD_KINDS),
    *(
        OpCase(f"bfi.{k}", (k, k, "u32", "u32"), k, insert(k), values={1: edge_values(k)[:6], 2: SHIFTS, 3: SHIFTS})
        for k in ("b32", "b64")
    ),
    *(OpCase(f"popc.{k}", (k,), "u32", lambda a: a.bit_count()) for k in ("b32", "b64")),
    *(OpCase(f"clz.{k}", (k,), "u32", lambda a, k=k: width(k) - a.bit_length()) for k in ("b32", "b64")),
    *(OpCase(f"brev.{k}", (k,), k, lambda a, k=k: int(format(a, f"0{width(k)}b")[::-1], 2)) for k in ("b32", "b64")),
    OpCase(
        "prmt.b32",
        ("b32",) * 3,
        "b32",
        permute,
        values={2: (0x3210, 0x7654, 0xFEDC, 0x0123, 0x5410, 0x8888, 0xFFFF7632)},
    ),
    *(OpCase(f"selp.{k}", (k, k, "pred"), k, lambda a, b, p: a if p else b) for k in ALL_KINDS),
    *(select_by_sign(k, condition) for k in ("b32", "u64", "f32") for condition in ("s32", "f32")),
]

CASES = ARITHMETIC + LOGIC + FIELDS


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_instruction_computes_what_the_manual_says(case):
    check(case)
