"""IEEE arithmetic in exact fractions: numbers as bit patterns, each operation rounded once."""

from __future__ import annotations

import math
import struct
from fractions import Fraction


def width(kind: str) -> int:
    """Bits of a type such as `s32`; a predicate travels as 32."""
    return 32 if kind == "pred" else int(kind.lstrip("busf"))


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def number(bits: int, kind: str) -> int:
    """The integer that a pattern stands for; bits above the type's are left out."""
    return signed(bits, width(kind)) if kind[0] == "s" else bits & (1 << width(kind)) - 1


# letter of struct, bits of the significand, exponents of the smallest normal and of the largest number
FORMATS = {"f16": ("e", 11, -14, 15), "f32": ("f", 24, -126, 127), "f64": ("d", 53, -1022, 1023)}


def from_bits(bits: int, kind: str) -> float:
    """Exact: each of the three formats fits into Python's float."""
    return struct.unpack("<" + FORMATS[kind][0], bits.to_bytes(width(kind) // 8, "little"))[0]


def to_bits(value: float, kind: str) -> int:
    """The pattern of a number that the format holds, rounded to it otherwise."""
    if math.isnan(value) or math.isinf(value) or value == 0:
        return int.from_bytes(struct.pack("<" + FORMATS[kind][0], value), "little")
    return rounded(Fraction(value), kind)


# Of a number in steps of the format's last bit; round() of a Fraction takes ties to even.
MODES = {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}


def rounded(value: Fraction, kind: str, zero_sign: bool = False, mode: str = "rn") -> int:
    """An exact number to one of the format: the nearest, ties to even, too large to infinity; or by another mode."""
    letter, precision, lowest, highest = FORMATS[kind]
    if value == 0:
        return to_bits(-0.0 if zero_sign else 0.0, kind)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, lowest) - precision + 1)
    number = abs(MODES[mode](value / step)) * step
    if number >= Fraction(2) ** (highest + 1):
        down = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
        largest = (2 - 2.0 ** (1 - precision)) * 2.0**highest if down else math.inf
        return to_bits(largest if value > 0 else -largest, kind)
    return int.from_bytes(struct.pack("<" + letter, float(number) if value > 0 else -float(number)), "little")


def negative(x: float) -> bool:
    return math.copysign(1, x) < 0


def fma(x: float, y: float, z: float, kind: str, mode: str = "rn") -> int:
    """x * y + z rounded once; add, sub and mul are special cases of it."""
    nan, product_negative = to_bits(math.nan, kind), negative(x) != negative(y)
    if math.isnan(x + y + z) and any(math.isnan(v) for v in (x, y, z)):
        return nan
    if math.isinf(x) or math.isinf(y):
        if x == 0 or y == 0 or (math.isinf(z) and negative(z) != product_negative):
            return nan
        return to_bits(-math.inf if product_negative else math.inf, kind)
    if math.isinf(z):
        return to_bits(z, kind)
    zero_negative = (product_negative and negative(z)) or (mode == "rm" and product_negative != negative(z))
    return rounded(Fraction(x) * Fraction(y) + Fraction(z), kind, zero_negative, mode)


def divide(x: float, y: float, kind: str, mode: str = "rn") -> int:
    sign = -1.0 if negative(x) != negative(y) else 1.0
    if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
        return to_bits(math.nan, kind)
    if math.isinf(x) or y == 0:
        return to_bits(sign * math.inf, kind)
    if math.isinf(y) or x == 0:
        return to_bits(sign * 0.0, kind)
    return rounded(Fraction(x) / Fraction(y), kind, mode=mode)


def square_root(x: float, kind: str, mode: str = "rn") -> int:
    if x == 0 or x == math.inf:
        return to_bits(x, kind)
    if math.isnan(x) or x < 0:
        return to_bits(math.nan, kind)
    scaled = Fraction(x) * 4**1200
    root = math.isqrt(scaled.numerator // scaled.denominator)
    sticky = root * root != scaled  # far below the last bit that counts, but decides what is a tie
    return rounded(Fraction(2 * root + sticky, 2 * 2**1200), kind, mode=mode)
