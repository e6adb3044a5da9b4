"""Numbers as codes (bit patterns) of every format, and IEEE arithmetic in exact fractions, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

# Rounds a number in steps of the format's last bit; round() of a Fraction takes ties to even.
ROUND: dict[str, Callable[[Fraction], int]] = {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}
ROUND["rna"] = lambda x: math.floor(abs(x) + Fraction(1, 2)) * (1 if x > 0 else -1)  # ties away from zero


class Format(NamedTuple):
    exponent_bits: int
    fraction_bits: int
    unread_bits: int = 0  # of the register, below the fraction

    @property
    def lowest(self) -> int:
        """The exponent of the smallest normal number."""
        return 2 - (1 << self.exponent_bits - 1)

    @property
    def sign(self) -> int:
        return 1 << self.exponent_bits + self.fraction_bits

    @property
    def largest(self) -> int:
        """The code of the largest number; the next one is infinity, or NaN in e4m3, which uses its last exponent."""
        return self.sign - (2 if self == FORMATS["e4m3"] else (1 << self.fraction_bits) + 1)


FORMATS = {"f16": Format(5, 10), "f32": Format(8, 23), "f64": Format(11, 52), "bf16": Format(8, 7)}
FORMATS |= {"tf32": Format(8, 10, unread_bits=13), "e4m3": Format(4, 3), "e5m2": Format(5, 2)}


def width(kind: str) -> int:
    """Bits of a type such as `s32` or of a format; a predicate travels as 32, and the name of a pair has x2."""
    if kind in FORMATS:
        return (2 * FORMATS[kind].sign).bit_length() - 1 + FORMATS[kind].unread_bits
    return 2 * width(kind[:-2]) if kind.endswith("x2") else 32 if kind == "pred" else int(kind.lstrip("bus"))


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def number(bits: int, kind: str) -> int:
    """Returns the integer that a pattern stands for; bits above the type's are ignored."""
    return signed(bits, width(kind)) if kind[0] == "s" else bits & (1 << width(kind)) - 1


def decode(code: int, kind: str) -> float:
    """Returns the number of a code; Python's float holds those of every format exactly."""
    form = FORMATS[kind]
    code >>= form.unread_bits
    size, negative = code & form.sign - 1, bool(code & form.sign)
    if size > form.largest:
        value = math.inf if size == form.largest + 1 and kind != "e4m3" else math.nan
    else:
        exponent = max(size >> form.fraction_bits, 1) - 1
        value = math.ldexp(size - (exponent << form.fraction_bits), exponent + form.lowest - form.fraction_bits)
    return -value if negative else value


def encode(
    value: Fraction | float, kind: str, mode: str = "rn", zero_negative: bool = False, clamp: bool = False
) -> int:
    """Returns the code of a number, rounded to the format.

    NaN is 0x7F...; too large numbers become infinities, or the largest number with `clamp`, as directed modes do.
    zero_negative: the sign of a zero that is a Fraction, which has none.
    """
    form = FORMATS[kind]
    if isinstance(value, float):
        if math.isnan(value):
            return (form.sign << form.unread_bits) - 1
        zero_negative = is_negative(value)
    sign = form.sign if value < 0 or (value == 0 and zero_negative) else 0
    if isinstance(value, float) and math.isinf(value):
        return (sign | form.largest + (not clamp)) << form.unread_bits
    exact = Fraction(value)
    exponent = max(_floor_log2(exact), form.lowest) if exact else form.lowest
    steps = abs(ROUND[mode](exact / Fraction(2) ** (exponent - form.fraction_bits)))
    size = (exponent - form.lowest << form.fraction_bits) + steps
    if size > form.largest:
        toward_zero = mode == "rz" or mode == ("rp" if sign else "rm")
        size = form.largest + (not (clamp or toward_zero))
    return (sign | size) << form.unread_bits


def _floor_log2(value: Fraction) -> int:
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    return exponent - (Fraction(2) ** exponent > size)


def is_negative(x: float) -> bool:
    return math.copysign(1, x) < 0


def add(x: float, y: float, kind: str, mode: str = "rn") -> int:
    return fma(x, 1.0, y, kind, mode)


def multiply(x: float, y: float, kind: str, mode: str = "rn") -> int:
    return fma(x, y, -0.0 if is_negative(x) != is_negative(y) else 0.0, kind, mode)


def fma(x: float, y: float, z: float, kind: str, mode: str = "rn") -> int:
    """Returns the code of x * y + z."""
    product_negative = is_negative(x) != is_negative(y)
    if not all(map(math.isfinite, (x, y, z))):
        return encode(z if math.isfinite(x) and math.isfinite(y) else x * y + z, kind)
    zero_negative = (product_negative and is_negative(z)) or (mode == "rm" and product_negative != is_negative(z))
    return encode(Fraction(x) * Fraction(y) + Fraction(z), kind, mode, zero_negative)


def divide(x: float, y: float, kind: str, mode: str = "rn") -> int:
    sign = -1.0 if is_negative(x) != is_negative(y) else 1.0
    if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
        return encode(math.nan, kind)
    if math.isinf(x) or y == 0:
        return encode(sign * math.inf, kind)
    if math.isinf(y) or x == 0:
        return encode(sign * 0.0, kind)
    return encode(Fraction(x) / Fraction(y), kind, mode)


def square_root(x: float, kind: str, mode: str = "rn") -> int:
    if x == 0 or x == math.inf:
        return encode(x, kind)
    if math.isnan(x) or x < 0:
        return encode(math.nan, kind)
    scaled = Fraction(x) * 4**1200
    root = math.isqrt(scaled.numerator // scaled.denominator)
    sticky = root * root != scaled  # far below the last bit that counts, but decides what is a tie
    return encode(Fraction(2 * root + sticky, 2 * 2**1200), kind, mode)
