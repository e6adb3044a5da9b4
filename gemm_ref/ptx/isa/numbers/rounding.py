"""Results of floating-point arithmetic, rounded once: to nearest, toward zero, down or up, in every format."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from gemm_ref.ptx.text.dtypes import Value
from gemm_ref.ptx.units.formats import from_bf16

# bits of the significand, exponents of the smallest normal and of the largest number
_FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127)}
MODES: dict[str, np.ufunc] = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}
_NAN16 = np.uint16(0x7FFF)
# Of a float64 in two words (the low one first: NumPy's machines are little-endian): the 29 bits that float32 drops, and
# half of them; the sign cleared, and the high word of float32's smallest normal number.
_BELOW_FLOAT32, _MIDDLE = np.uint32(0x1FFFFFFF), np.uint32(0x10000000)
_MAGNITUDE, _SMALLEST_NORMAL, _ONE = np.uint32(0x7FFFFFFF), np.uint32(0x38100000), np.uint32(1)


def widen(value: Value, kind: str) -> Value:
    """The numbers of a format, exactly, in float64."""
    return (from_bf16(value) if kind == "bf16" else value).astype(np.float64)


def narrow(x: Value, kind: str, mode: str = "rn") -> Value:
    """float64 -> a format, rounded once. What x stands for may have more bits, if it was rounded to odd (`odd_sum`)."""
    if mode == "rn" and kind != "bf16":
        return x.astype(np.float16 if kind == "f16" else np.float32)
    precision, lowest, highest = _FORMATS[kind]
    _, exponent = np.frexp(x)
    step = np.ldexp(1.0, np.maximum(exponent - 1, lowest) - precision + 1)
    result = MODES[mode](x / step) * step
    largest = math.ldexp(2 - 2.0 ** (1 - precision), highest)
    # beyond the largest number: infinity, but where rounding goes the other way; what is infinite stays so
    bound = np.where((mode == "rn") | (x > 0 if mode == "rp" else (x < 0) & (mode == "rm")), np.inf, largest)
    past = (np.abs(result) > largest) & np.isfinite(x)
    result = np.where(past, np.copysign(bound, x), result).astype(np.float16 if kind == "f16" else np.float32)
    if kind != "bf16":
        return result[()]
    return np.where(np.isnan(x), _NAN16, (result.view(np.uint32) >> np.uint32(16)).astype(np.uint16))[()]


def odd_sum(a: Value, b: Value, down: bool = False) -> Value:
    """a + b in float64, with its last bit set where it is inexact, so that rounding it again cannot go wrong.

    Boldo and Melquiond, 'Emulation of FMA and correctly rounded sums', IEEE Trans. Computers 57 (2008); the
    error of the sum is Knuth's TwoSum. down: a sum of zero is -0, but of two +0, as where it is rounded down.
    """
    total, error = _two_sum(a, b)
    if down:
        total = np.where((total == 0) & (np.signbit(a) | np.signbit(b)), -0.0, total)[()]
    toward = np.where((error > 0) == (total > 0), np.int64(0), np.int64(-1))  # truncate the magnitude
    odd = (np.asarray(total).view(np.int64) + toward) | np.int64(1)
    return np.where((error == 0) | ~np.isfinite(total), total, odd.view(np.float64))[()]


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def fma32(a: Value, b: Value, c: Value) -> Value:
    """a * b + c in float32, rounded once.

    The product is exact in float64, so only two roundings in a row (of the sum to 53 bits, then to 24) could go
    wrong, and only where the first lands on the middle between two float32 values, or below float32's normal range.
    Where the second changes nothing, as for small integers, there is nothing to look for.
    """
    product = a.astype(np.float64) * b
    total = product + c
    result = total.astype(np.float32)
    if not np.count_nonzero(result != total):
        return result
    words = np.atleast_1d(total).view(np.uint32)  # the low word of each float64, then its high word
    suspect = (words[0::2] & _BELOW_FLOAT32) == _MIDDLE
    suspect |= (words[1::2] & _MAGNITUDE) - _ONE < _SMALLEST_NORMAL  # 0, which is exact, wraps round to the largest
    if np.count_nonzero(suspect):
        at, shape = np.flatnonzero(suspect), total.shape
        result = np.atleast_1d(result)
        exact, addend = (np.broadcast_to(x, shape).reshape(-1)[at] for x in (product, c.astype(np.float64)))
        result[at] = odd_sum(exact, addend).astype(np.float32)
        return result.reshape(shape)[()]
    return result


# --- float64 -------------------------------------------------------------------------------------------------

_SPLIT = 2.0**27 + 1
_SMALL, _LARGE = 2.0**-900, 2.0**500  # within these, no part of a product or a sum is lost to the range of float64


def fma64(a: Value, b: Value, c: Value) -> Value:
    """a * b + c in float64, rounded once: Boldo and Melquiond's, with Dekker's product; extreme numbers exactly."""
    product = a * b
    error = _error_of_product(a, b, product)
    if not np.count_nonzero(error):  # NaN counts
        total = product + c
    else:
        low, rest = _two_sum(c, error)
        high, more = _two_sum(product, low)
        total = np.where(error == 0, product + c, high + odd_sum(rest, more))  # a sum of zeros has its sign
    size = np.abs(product)
    plain = (size < _LARGE) & ((size > _SMALL) | (a == 0) | (b == 0))
    plain &= (np.abs(a) < _LARGE) & (np.abs(b) < _LARGE) & (np.abs(c) < _LARGE) & ((np.abs(c) > _SMALL) | (c == 0))
    if np.all(plain):
        return total
    return np.where(plain, total, exactly("fma", "f64", "rn")(a, b, c))[()]


def _error_of_product(a: Value, b: Value, product: Value) -> Value:
    def halves(x: Value) -> tuple[Value, Value]:
        scaled = x * _SPLIT
        high = scaled - (scaled - x)
        return high, x - high

    (ah, al), (bh, bl) = halves(a), halves(b)
    return ((ah * bh - product) + ah * bl + al * bh) + al * bl


def exactly(operation: str, kind: str, mode: str) -> Callable[..., Value]:
    """`add`, `sub`, `mul`, `fma`, `div`, `rcp` or `sqrt` of f32 or f64, rounded once: in fractions, lane by lane."""
    dtype = np.dtype(np.float32 if kind == "f32" else np.float64)

    def one(*operands: float) -> float:
        special = _special(operation, *map(np.float64, operands))
        if special is not None:
            return float(special)
        value, negative = _EXACT[operation](mode, *operands)
        return math.copysign(0.0, -1.0 if negative else 1.0) if value == 0 else _rounded(value, kind, mode)

    def apply(*operands: Value) -> Value:
        found = np.vectorize(one, otypes=[np.float64])(*(np.asarray(x, np.float64) for x in operands))
        return found.astype(dtype)[()]

    return apply


def _special(operation: str, a: np.float64, b: np.float64 | None = None, c: np.float64 | None = None) -> Value | None:
    """What infinities, NaN, divisions by zero and roots give; None for all else."""
    zero, one = np.float64(0), np.float64(1)
    if operation == "rcp":
        a, b = one, a
    if operation in ("div", "rcp") and b is not None:
        return None if np.isfinite(a) and np.isfinite(b) and b != 0 else a / b
    if operation == "sqrt":
        return None if np.isfinite(a) and a > 0 else np.sqrt(a)
    if b is None or np.isfinite([a, b, zero if c is None else c]).all():
        return None
    if operation in ("add", "sub"):
        return a + b if operation == "add" else a - b
    return a * b if c is None else c if np.isfinite(a) and np.isfinite(b) else a * b + c


def _signed(value: float) -> bool:
    return math.copysign(1.0, value) < 0


def _sum(mode: str, a: float, b: float, c: float) -> tuple[Fraction, bool]:
    """a * b + c, and whether it is negative if it is zero."""
    signs = {_signed(a) != _signed(b), _signed(c)}
    return Fraction(a) * Fraction(b) + Fraction(c), signs == {True} or (len(signs) == 2 and mode == "rm")


def _root(value: Fraction) -> Fraction:
    """The root of a number, with enough bits for any rounding, the last of which says that it is not exact."""
    scaled = value * 4**1200
    root = math.isqrt(scaled.numerator // scaled.denominator)
    return Fraction(2 * root + (root * root != scaled), 2 * 2**1200)


# The exact result, and its sign where it is zero.
_EXACT: dict[str, Callable[..., tuple[Fraction, bool]]] = {
    "add": lambda mode, a, b: _sum(mode, 1.0, a, b),
    "sub": lambda mode, a, b: _sum(mode, 1.0, a, -b),
    "fma": _sum,
    "mul": lambda mode, a, b: (Fraction(a) * Fraction(b), _signed(a) != _signed(b)),
    "div": lambda mode, a, b: (Fraction(a) / Fraction(b), _signed(a) != _signed(b)),
    "rcp": lambda mode, a: (1 / Fraction(a), False),
    "sqrt": lambda mode, a: (_root(Fraction(a)), False),
}


def _rounded(value: Fraction, kind: str, mode: str) -> float:
    try:
        near = value.numerator / value.denominator  # Python rounds this to nearest
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    if kind == "f32":
        if Fraction(near) != value:  # to odd
            near = math.nextafter(near, 0) if abs(Fraction(near)) > abs(value) else near
            near = float((np.float64(near).view(np.int64) | np.int64(1)).view(np.float64))
        return float(narrow(np.float64(near), kind, mode))
    above = near == math.inf or (math.isfinite(near) and Fraction(near) > value)
    below = near == -math.inf or (math.isfinite(near) and Fraction(near) < value)
    if (above and mode == "rm") or (above and mode == "rz" and value > 0):
        return math.nextafter(near, -math.inf)
    if (below and mode == "rp") or (below and mode == "rz" and value < 0):
        return math.nextafter(near, math.inf)
    return near
