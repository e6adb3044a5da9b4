"""Rounding of floating-point results, once: to nearest, toward zero, down or up (PTX ISA, 9.7.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from gemm_ref.ptx.text.dtypes import FORMATS, Value
from gemm_ref.ptx.units.formats import from_bf16

MODES: dict[str, np.ufunc] = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}
_NAN16 = np.uint16(0x7FFF)
_BELOW_FLOAT32, _MIDDLE = np.uint64(0x1FFFFFFF), np.uint64(0x10000000)  # the 29 bits that float32 drops; half of them
_MAGNITUDE, _SMALLEST_NORMAL = np.uint32(0x7FFFFFFF), np.float32(2**-126).view(np.uint32)  # of float32
_TWICE_SMALLEST_NORMAL, _ONE = np.float64(2**-126).view(np.uint64) << np.uint64(1), np.uint64(1)


def widen(value: Value, kind: str) -> Value:
    """Convert numbers of a format to float64, exactly."""
    return (from_bf16(value) if kind == "bf16" else value).astype(np.float64)


def narrow(x: Value, kind: str, mode: str = "rn") -> Value:
    """Round float64 to a format, once: x may itself be rounded, if to odd (`odd_sum`)."""
    if mode == "rn" and kind != "bf16":
        return x.astype(np.float16 if kind == "f16" else np.float32)
    _, precision, lowest, highest = FORMATS[kind]
    _, exponent = np.frexp(x)
    step = np.ldexp(1.0, np.maximum(exponent - 1, lowest) - precision + 1)
    result = MODES[mode](x / step) * step
    largest = math.ldexp(2 - 2.0 ** (1 - precision), highest)
    # beyond the largest number: infinity, unless the mode rounds toward zero there
    bound = np.where((mode == "rn") | (x > 0 if mode == "rp" else (x < 0) & (mode == "rm")), np.inf, largest)
    past = (np.abs(result) > largest) & np.isfinite(x)
    result = np.where(past, np.copysign(bound, x), result).astype(np.float16 if kind == "f16" else np.float32)
    if kind != "bf16":
        return result[()]
    return np.where(np.isnan(x), _NAN16, (result.view(np.uint32) >> np.uint32(16)).astype(np.uint16))[()]


def odd_sum(a: Value, b: Value, down: bool = False) -> Value:
    """Return a + b in float64, rounded to odd: its last bit is set if it is inexact, so that it can be rounded again.

    Boldo and Melquiond, 'Emulation of FMA and correctly rounded sums', IEEE Trans. Computers 57 (2008); the
    error of the sum is Knuth's TwoSum. down: a sum of zero is -0 unless both are +0, as when it is rounded down.
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
    """Return a * b + c in float32, rounded once."""
    return add_to_product(a.astype(np.float64) * b, c)


def add_to_product(product: Value, c: Value) -> Value:
    """Return the sum of an exact product of two float32, in float64, and a float32: a float32, rounded once.

    Only two roundings in a row (of the sum to 53 bits, then to 24) could go wrong, and only where the first lands on
    the middle between two float32 values, or below float32's normal range.
    """
    total = product + c
    result = total.astype(np.float32)
    words = np.atleast_1d(total).view(np.uint64)
    suspect = (words & _BELOW_FLOAT32) == _MIDDLE
    if (result.view(np.uint32) & _MAGNITUDE).min() <= _SMALLEST_NORMAL:
        suspect |= (words << _ONE) - _ONE < _TWICE_SMALLEST_NORMAL  # 0, which is exact, wraps round to the largest
    if np.count_nonzero(suspect):
        at, shape = np.flatnonzero(suspect), total.shape
        result = result.reshape(-1)
        exact, addend = (np.broadcast_to(x, shape).reshape(-1)[at] for x in (product, c.astype(np.float64)))
        result[at] = odd_sum(exact, addend).astype(np.float32)
        return result.reshape(shape)[()]
    return result


_SPLIT = 2.0**27 + 1
_SMALL, _LARGE = 2.0**-900, 2.0**500  # between these nothing of a product or a sum under- or overflows


def fma64(a: Value, b: Value, c: Value) -> Value:
    """Return a * b + c in float64, rounded once: Boldo and Melquiond; extreme numbers in fractions."""
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
    return np.where(plain, total, round_once("fma", "f64", "rn")(a, b, c))[()]


def _error_of_product(a: Value, b: Value, product: Value) -> Value:
    def halves(x: Value) -> tuple[Value, Value]:
        scaled = x * _SPLIT
        high = scaled - (scaled - x)
        return high, x - high

    (ah, al), (bh, bl) = halves(a), halves(b)
    return ((ah * bh - product) + ah * bl + al * bh) + al * bl


def round_once(operation: str, kind: str, mode: str) -> Callable[..., Value]:
    """Return `add`, `sub`, `mul`, `fma`, `div`, `rcp` or `sqrt` of f32 or f64, rounded once, lane by lane.

    A directed result is the nearest one or its neighbour: the error of the nearest, in fractions, says which.
    """
    dtype = np.dtype(np.float32 if kind == "f32" else np.float64)

    def one(*values: float) -> Value:
        operands = [dtype.type(value) for value in values]
        near = NEAREST[operation](*operands)
        divides_by_zero = operation in ("div", "rcp") and operands[-1] == 0
        if divides_by_zero or np.isnan(near) or not np.isfinite(operands).all():
            return near
        error = -near  # of an overflow
        if np.isfinite(near):
            error = _ERRORS[operation](*(Fraction(float(value)) for value in (near, *operands)))
        if mode == "rm" and near == 0 and error == 0 and operation in _ADDENDS:  # -0, but of two +0
            return -abs(near) if np.signbit(_ADDENDS[operation](*operands)).any() else near
        return step_toward(near, error, mode)

    return lambda *operands: np.vectorize(one, otypes=[dtype])(*operands)[()]


def step_toward(near: Value, error: Value, mode: str) -> Value:
    """Return the nearest number, or its neighbour where the rounding mode asks for it; error: exact minus nearest."""
    if error > 0 and (mode == "rp" or (mode == "rz" and near < 0)):
        return np.nextafter(near, near.dtype.type(np.inf))
    if error < 0 and (mode == "rm" or (mode == "rz" and near > 0)):
        return np.nextafter(near, near.dtype.type(-np.inf))
    return near


def _nearest_fma(a: Value, b: Value, c: Value) -> Value:
    if not np.isfinite([a, b, c]).all():
        return c if np.isfinite(a) and np.isfinite(b) else a * b + c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    try:
        return np.float64(exact.numerator / exact.denominator) if exact else a * b + c  # Python rounds to nearest
    except OverflowError:
        return np.float64(np.inf if exact > 0 else -np.inf)


NEAREST: dict[str, Callable[..., Value]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": lambda a: a.dtype.type(1) / a,
    "sqrt": np.sqrt,
    "fma": _nearest_fma,
}
# The exact result less a near one, in fractions; of a root, something of the same sign.
_ERRORS: dict[str, Callable[..., Fraction]] = {
    "add": lambda near, a, b: a + b - near,
    "sub": lambda near, a, b: a - b - near,
    "mul": lambda near, a, b: a * b - near,
    "div": lambda near, a, b: a / b - near,
    "rcp": lambda near, a: 1 / a - near,
    "sqrt": lambda near, a: a - near * near,
    "fma": lambda near, a, b, c: a * b + c - near,
}
_ADDENDS: dict[str, Callable[..., tuple]] = {
    "add": lambda a, b: (a, b),
    "sub": lambda a, b: (a, -b),
    "fma": lambda a, b, c: (a * b, c),
}
