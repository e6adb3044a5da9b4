"""`cvt` to and from bf16, tf32, e4m3 and e5m2 against the formats' definitions, in exact fractions."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import pytest

from tests.ptx.harness import OpCase, check, covers, edge_values, evaluate
from tests.ptx.ieee import from_bits, to_bits

# bits of the exponent, bits of the fraction
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "e4m3": (4, 3), "e5m2": (5, 2)}
LOW_BITS = {"tf32": 13}  # that its register has below it


@functools.cache
def size_of(code: int, kind: str) -> Fraction | float:
    """The number of a code without its sign."""
    exponent_bits, fraction_bits = FORMATS[kind]
    exponent, fraction = code >> fraction_bits, code & (1 << fraction_bits) - 1
    last, bias = (1 << exponent_bits) - 1, (1 << exponent_bits - 1) - 1
    if kind == "e4m3":
        if (exponent, fraction) == (last, 7):
            return math.nan
    elif exponent == last:
        return math.nan if fraction else math.inf
    whole = fraction if exponent == 0 else fraction + (1 << fraction_bits)
    return whole * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def nearest(value: float, kind: str, away: bool = False, clamp: bool = False) -> int | None:
    """The code of the nearest number; of two as near, the even one, or the one away from zero. None for NaN."""
    exponent_bits, fraction_bits = FORMATS[kind]
    sign = int(math.copysign(1, value) < 0) << exponent_bits + fraction_bits
    if math.isnan(value):
        return None
    top = (1 << exponent_bits + fraction_bits) - 1  # codes count up with the numbers
    while not isinstance(size_of(top, kind), Fraction):
        top -= 1
    if math.isinf(value):
        return sign | (top if clamp else top + 1)
    size, low, high = abs(Fraction(value)), 0, top + 1
    while high - low > 1:  # the largest code whose number is not above
        middle = (low + high) // 2
        low, high = (middle, high) if size_of(middle, kind) <= size else (low, middle)
    below = size_of(low, kind)
    step = below - size_of(low - 1, kind) if low == top else size_of(low + 1, kind) - below
    rest = size - below
    up = rest > step / 2 or (rest == step / 2 and (away or low % 2 == 1))
    return sign | (low if clamp and low == top else low + up)


def _ties(kind: str) -> tuple[int, ...]:
    """Numbers of the format, half-way points between neighbours, and a little beside those, as fp32."""
    found = []
    top = (1 << sum(FORMATS[kind])) - 1
    for code in sorted(
        {0, 1, 2, 3, 7, 8, 9, top // 3, top // 2, top // 2 + 1, top - 4, top - 3, top - 2, top - 1, top}
    ):
        here, there = size_of(code, kind), size_of(code + 1, kind) if code < top else math.nan
        if isinstance(here, Fraction):
            middle = here + (there - here) / 2 if isinstance(there, Fraction) else here * Fraction(17, 16)
            found += [to_bits(float(here), "f32"), to_bits(float(middle), "f32")]
    beside = [bits + off for bits in found for off in (-1, 0, 1) if bits + off >= 0]
    return tuple(dict.fromkeys(bits | sign for bits in beside for sign in (0, 1 << 31)))


def one(to: str, instruction: str, away: bool = False) -> OpCase:
    low, bits = LOW_BITS.get(to, 0), 16 if to == "bf16" else 32
    nan = (1 << bits - 1) - 1

    def function(a: int) -> int:
        code = nearest(from_bits(a, "f32"), to, away)
        return nan if code is None else code << low

    return OpCase(instruction, ("f32",), f"b{bits}", function, values={0: edge_values("f32") + _ties(to)})


def two(to: str, instruction: str, clamp: bool = False, source: str = "f32") -> OpCase:
    """The first source goes into the upper half."""
    bits = 8 if to[0] == "e" else 16
    nan = (1 << bits - 1) - 1
    ties = _ties(to)[::3] if source == "f32" else ()

    def half(value: float) -> int:
        code = nearest(value, to, clamp=clamp)
        return nan if code is None else code

    def function(*sources: int) -> int | None:
        values = [from_bits(x, source) for x in sources]
        if to == "f16" and any(map(math.isnan, values)):
            return None  # the manual asks for the canonical NaN, and NumPy keeps a payload: compared as NaN below
        high, low = map(half, values)
        return high << bits | low

    return OpCase(
        instruction, (source, source), f"b{2 * bits}", function, values={i: edge_values(source) + ties for i in (0, 1)}
    )


CASES = [
    one("bf16", "cvt.rn.bf16.f32"),
    one("tf32", "cvt.rna.tf32.f32", away=True),
    one("tf32", "cvt.rn.tf32.f32"),
    two("bf16", "cvt.rn.bf16x2.f32"),
    two("f16", "cvt.rn.f16x2.f32"),
    two("e4m3", "cvt.rn.satfinite.e4m3x2.f32", clamp=True),
    two("e5m2", "cvt.rn.satfinite.e5m2x2.f32", clamp=True),
    OpCase("cvt.f32.bf16", ("b16",), "f32", lambda a: a << 16),
]


@covers("cvt")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_number_goes_to_the_nearest_of_a_narrow_format(case):
    check(case)


@covers("cvt")
def test_a_pair_keeps_its_nan_in_its_half():
    inputs = {"a": ("f32", [0x7F800001, 0x3F800000]), "b": ("f32", [0x40000000, 0xFFC00000])}
    high, low = evaluate("cvt.rn.f16x2.f32 %d, %a, %b;", inputs, {"d": "b32"})["d"]
    assert math.isnan(from_bits(high >> 16, "f16")) and high & 0xFFFF == 0x4000
    assert low >> 16 == 0x3C00 and math.isnan(from_bits(low & 0xFFFF, "f16"))


@covers("cvt")
@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_pair_of_fp8_is_two_fp16_and_back(kind):
    codes = [code | (255 - code) << 8 for code in range(256)]
    code = f"cvt.rn.f16x2.{kind}x2 %d, %a; cvt.rn.satfinite.{kind}x2.f16x2 %e, %d;"
    found = evaluate(code, {"a": ("b16", codes)}, {"d": "b32", "e": "b16"})
    for pair, halves, back in zip(codes, found["d"], found["e"], strict=True):
        for shift in (0, 8):
            eight, sixteen = pair >> shift & 255, halves >> 2 * shift & 0xFFFF
            size, got, again = size_of(eight & 127, kind), from_bits(sixteen, "f16"), back >> shift & 255
            if isinstance(size, Fraction):
                assert got == (-size if eight >> 7 else size) and again == eight
            elif math.isnan(size):
                assert math.isnan(got) and again == 0x7F
            else:  # e5m2 has infinities; back they are clamped
                assert math.isinf(got) and (got < 0) == bool(eight >> 7) and again == eight - 1
