"""What each arithmetic instruction computes, as a function of NumPy values: PTX ISA, section 9.7.

`function_for(instruction name)` returns the types of the sources, the type of the result and the function. Values
are arrays with one element a lane, or single numbers where all lanes agree; every function takes both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.errors import Unsupported
from gemm_ref.ptx.types import DTYPES, SIGNED, UNSIGNED, Value, is_float, is_signed


@dataclass(frozen=True)
class Function:
    """`apply(*sources) -> result`, with the types that the sources are read as."""

    sources: tuple[np.dtype, ...]
    result: np.dtype
    apply: Callable[..., Value]


Builder = Callable[[list[str]], Function]
BUILDERS: dict[str, Builder] = {}  # by the first part of the instruction's name

_U32, _F32, _PRED = DTYPES["u32"], DTYPES["f32"], DTYPES["pred"]
_BELOW_FLOAT32, _MIDDLE = np.uint64(0x1FFFFFFF), np.uint64(0x10000000)  # the 29 bits that float32 drops, and half
_SMALLEST_NORMAL = np.finfo(np.float32).smallest_normal
_HARMLESS = {"rn", "full", "approx"}  # rounding to nearest, or instructions that promise less than that


def function_for(name: str) -> Function:
    """The arithmetic of an instruction such as `add.s32`. Raises Unsupported for one that is not here."""
    parts = name.split(".")
    builder = BUILDERS.get(parts[0])
    if builder is None or parts[-1] not in DTYPES:
        raise Unsupported(f"the reference GPU has no instruction {name}")
    return builder(parts)


def _builds(*names: str) -> Callable[[Builder], Builder]:
    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(names, builder))
        return builder

    return register


def _only(parts: list[str], *allowed: str) -> None:
    """Refuse modifiers that would change the meaning and are not handled."""
    unknown = set(parts[1:-1]) - set(allowed)
    if unknown:
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)} (modifier {', '.join(sorted(unknown))})")


def _no_floats(parts: list[str]) -> np.dtype:
    dtype = DTYPES[parts[-1]]
    if is_float(dtype):
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    return dtype


# --- add, sub, mul, mad, fma, div, rem -----------------------------------------------------------------------


@_builds("add", "sub")
def _add(parts: list[str]) -> Function:
    dtype = DTYPES[parts[-1]]
    _only(parts, *_HARMLESS)
    return Function((dtype, dtype), dtype, np.add if parts[0] == "add" else np.subtract)


@_builds("mul", "mad")
def _mul(parts: list[str]) -> Function:
    dtype = DTYPES[parts[-1]]
    if is_float(dtype):
        _only(parts, *_HARMLESS)
        if parts[0] == "mad":
            return _fma(parts)
        return Function((dtype, dtype), dtype, np.multiply)
    _only(parts, "lo", "hi", "wide")
    if "wide" in parts:
        wide = (SIGNED if is_signed(dtype) else UNSIGNED)[2 * dtype.itemsize]
        product, result = lambda a, b: a.astype(wide) * b.astype(wide), wide
    elif "hi" in parts:
        product, result = _high_product(dtype), dtype
    else:
        product, result = np.multiply, dtype
    if parts[0] == "mul":
        return Function((dtype, dtype), result, product)
    return Function((dtype, dtype, result), result, lambda a, b, c: product(a, b) + c)


def _high_product(dtype: np.dtype) -> Callable[[Value, Value], Value]:
    bits = 8 * dtype.itemsize
    if bits < 64:
        wide = (SIGNED if is_signed(dtype) else UNSIGNED)[2 * dtype.itemsize]
        return lambda a, b: (a.astype(wide) * b.astype(wide) >> wide.type(bits)).astype(dtype)

    def high64(a: Value, b: Value) -> Value:
        # schoolbook, in halves of 32 bits: no NumPy integer holds 128
        x, y, half, low = a.view(np.uint64), b.view(np.uint64), np.uint64(32), np.uint64(0xFFFFFFFF)
        x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
        middle = x1 * y0 + (x0 * y0 >> half)
        high = x1 * y1 + (middle >> half) + ((middle & low) + x0 * y1 >> half)
        if is_signed(dtype):  # two's complement: a negative factor stands for itself plus 2**64
            high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
        return high.view(dtype)

    return high64


@_builds("fma")
def _fma(parts: list[str]) -> Function:
    _only(parts, *_HARMLESS)
    if parts[-1] != "f32":
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    return Function((_F32,) * 3, _F32, fma32)


def fma32(a: Value, b: Value, c: Value) -> Value:
    """a * b + c in float32, rounded once.

    The product is exact in float64, so only two roundings in a row (of the sum to 53 bits, then to 24) could go
    wrong, and only where the first lands on the middle between two float32 values, or below float32's normal range.
    """
    product = a.astype(np.float64) * b
    total = product + c
    result = total.astype(np.float32)
    suspect = (total.view(np.uint64) & _BELOW_FLOAT32) == _MIDDLE
    small = np.abs(result) <= _SMALLEST_NORMAL
    if suspect.any() or small.any():
        suspect = np.flatnonzero(suspect | (small & (total != 0)))
        if suspect.size:
            result, shape = np.atleast_1d(result), total.shape
            odd = _round_to_odd(*(np.broadcast_to(x, shape).reshape(-1)[suspect] for x in (product, c, total)))
            result[suspect] = odd.astype(np.float32)
            return result.reshape(shape)[()]
    return result


def _round_to_odd(product: np.ndarray, c: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The float64 sum with its last bit set when it is inexact, so that rounding it again cannot go wrong.

    Boldo and Melquiond, 'Emulation of FMA and correctly rounded sums', IEEE Trans. Computers 57 (2008); the
    error of the sum is Knuth's TwoSum.
    """
    shadow = total - product
    error = (product - (total - shadow)) + (c - shadow)
    toward = np.where((error > 0) == (total > 0), np.int64(0), np.int64(-1))  # truncate the magnitude
    odd = (total.view(np.int64) + toward) | np.int64(1)
    return np.where(error == 0, total, odd.view(np.float64))


@_builds("div", "rem")
def _div(parts: list[str]) -> Function:
    dtype = DTYPES[parts[-1]]
    if is_float(dtype):
        if parts[0] == "rem":
            raise Unsupported("rem is an integer instruction")
        _only(parts, *_HARMLESS)
        return Function((dtype, dtype), dtype, np.divide)
    _only(parts)
    return Function((dtype, dtype), dtype, _truncated(np.floor_divide if parts[0] == "div" else np.remainder))


def _truncated(floored: np.ufunc) -> Callable[[Value, Value], Value]:
    """C's division from NumPy's: the quotient toward zero, the remainder with the dividend's sign."""

    def apply(a: Value, b: Value) -> Value:
        if not is_signed(a.dtype):
            return floored(a, b)
        unsigned = UNSIGNED[a.dtype.itemsize]
        magnitude = floored(np.abs(a).view(unsigned), np.abs(b).view(unsigned)).view(a.dtype)
        negative = (a < 0) != (b < 0) if floored is np.floor_divide else a < 0
        return np.where(negative, -magnitude, magnitude)[()]

    return apply


@_builds("rcp", "sqrt", "rsqrt")
def _reciprocal(parts: list[str]) -> Function:
    dtype = DTYPES[parts[-1]]
    _only(parts, *_HARMLESS)
    apply = {
        "rcp": lambda a: dtype.type(1) / a,
        "sqrt": np.sqrt,
        "rsqrt": lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(dtype),
    }[parts[0]]
    return Function((dtype,), dtype, apply)


# --- abs, neg, min, max --------------------------------------------------------------------------------------


@_builds("abs", "neg")
def _abs(parts: list[str]) -> Function:
    dtype = DTYPES[parts[-1]]
    _only(parts)
    return Function((dtype,), dtype, np.abs if parts[0] == "abs" else np.negative)


@_builds("min", "max")
def _min(parts: list[str]) -> Function:
    dtype = DTYPES[parts[-1]]
    _only(parts, "NaN")
    smaller = parts[0] == "min"
    if not is_float(dtype):
        return Function((dtype, dtype), dtype, np.minimum if smaller else np.maximum)
    if "NaN" in parts:
        choose = np.minimum if smaller else np.maximum
    else:
        choose = np.fmin if smaller else np.fmax  # a NaN loses against a number
    bits, zero_sign = UNSIGNED[dtype.itemsize], np.bitwise_or if smaller else np.bitwise_and

    def apply(a: Value, b: Value) -> Value:
        # -0 is below +0, which a comparison does not see: of two equal numbers take the sign by their bits
        return np.where(a == b, zero_sign(a.view(bits), b.view(bits)).view(dtype), choose(a, b))[()]

    return Function((dtype, dtype), dtype, apply)


# --- logic and shifts ----------------------------------------------------------------------------------------


@_builds("and", "or", "xor")
def _logic(parts: list[str]) -> Function:
    dtype = _no_floats(parts)
    _only(parts)
    apply = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[parts[0]]
    return Function((dtype, dtype), dtype, apply)


@_builds("not", "cnot")
def _not(parts: list[str]) -> Function:
    dtype = _no_floats(parts)
    _only(parts)
    return Function((dtype,), dtype, np.invert if parts[0] == "not" else lambda a: (a == 0).astype(dtype))


@_builds("lop3")
def _lop3(parts: list[str]) -> Function:
    _only(parts)

    def apply(a: Value, b: Value, c: Value, table: Value) -> Value:
        result = np.zeros_like(a | b | c)
        for index in range(8):
            if int(table) >> index & 1:  # bit `index` of the table is the result for a, b, c = its bits 2, 1, 0
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return result

    return Function((_U32,) * 4, _U32, apply)


@_builds("shl", "shr")
def _shift(parts: list[str]) -> Function:
    dtype = _no_floats(parts)
    _only(parts)
    bits = 8 * dtype.itemsize

    def left(a: Value, amount: Value) -> Value:
        shifted = a << np.minimum(amount, np.uint32(bits - 1)).astype(dtype)
        return np.where(amount < bits, shifted, dtype.type(0))[()]

    def right(a: Value, amount: Value) -> Value:
        shifted = a >> np.minimum(amount, np.uint32(bits - 1)).astype(dtype)
        if is_signed(dtype):
            return shifted  # amounts past the width leave the sign everywhere
        return np.where(amount < bits, shifted, dtype.type(0))[()]

    return Function((dtype, _U32), dtype, left if parts[0] == "shl" else right)


@_builds("shf")
def _funnel_shift(parts: list[str]) -> Function:
    _only(parts, "l", "r", "wrap", "clamp")

    def apply(low: Value, high: Value, amount: Value) -> Value:
        amount = amount & np.uint32(31) if "wrap" in parts else np.minimum(amount, np.uint32(32))
        both = high.astype(np.uint64) << np.uint64(32) | low
        if "r" in parts:
            return (both >> amount.astype(np.uint64)).astype(np.uint32)
        return (both << amount.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)

    return Function((_U32,) * 3, _U32, apply)


# --- bit fields ----------------------------------------------------------------------------------------------


@_builds("bfe")
def _bit_field_extract(parts: list[str]) -> Function:
    dtype = _no_floats(parts)
    _only(parts)
    bits = 8 * dtype.itemsize

    def apply(a: Value, position: Value, length: Value) -> Value:
        pos = np.minimum(position & np.uint32(255), np.uint32(bits))
        end = np.minimum(pos + (length & np.uint32(255)), np.uint32(bits))
        # push the field to the top and back: the shift down fills with zeros or, for a signed type, with its top bit
        top = _shift(["shl", parts[-1]]).apply(a, np.uint32(bits) - end)
        field = _shift(["shr", parts[-1]]).apply(top, np.uint32(bits) - (end - pos))
        if not is_signed(dtype):
            return field
        # a field that starts past the end of a is all sign
        sign = a >> dtype.type(bits - 1)
        return np.where(length & np.uint32(255), np.where(pos < bits, field, sign), dtype.type(0))[()]

    return Function((dtype, _U32, _U32), dtype, apply)


@_builds("bfi")
def _bit_field_insert(parts: list[str]) -> Function:
    dtype = _no_floats(parts)
    _only(parts)
    shift_left = _shift(["shl", parts[-1]]).apply

    def apply(a: Value, b: Value, position: Value, length: Value) -> Value:
        pos, count = position & np.uint32(255), length & np.uint32(255)
        ones = shift_left(dtype.type(1), count) - dtype.type(1)  # count past the width gives 0 - 1: all ones
        mask = shift_left(ones, pos)
        return (b & ~mask) | (shift_left(a, pos) & mask)

    return Function((dtype, dtype, _U32, _U32), dtype, apply)


@_builds("popc", "clz", "brev")
def _count_bits(parts: list[str]) -> Function:
    dtype = _no_floats(parts)
    _only(parts)
    bits = 8 * dtype.itemsize

    def bit(a: Value, index: int) -> Value:
        return a >> dtype.type(index) & dtype.type(1)

    def popc(a: Value) -> Value:
        return np.bitwise_count(a).astype(np.uint32)

    def clz(a: Value) -> Value:
        for step in (1 << i for i in range(bits.bit_length() - 1)):
            a = a | a >> dtype.type(step)  # spread the leading one to the right
        return np.uint32(bits) - popc(a)

    def brev(a: Value) -> Value:
        return sum(bit(a, i) << dtype.type(bits - 1 - i) for i in range(bits)).astype(dtype)

    if parts[0] == "brev":
        return Function((dtype,), dtype, brev)
    return Function((dtype,), _U32, popc if parts[0] == "popc" else clz)


@_builds("prmt")
def _permute_bytes(parts: list[str]) -> Function:
    _only(parts)

    def apply(a: Value, b: Value, selector: Value) -> Value:
        both = b.astype(np.uint64) << np.uint64(32) | a
        result = np.uint32(0)
        for index in range(4):
            choice = selector >> np.uint32(4 * index) & np.uint32(15)
            byte = (both >> (choice & np.uint32(7)).astype(np.uint64) * np.uint64(8)).astype(np.uint32) & np.uint32(255)
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            result = result | np.where(choice & np.uint32(8), sign, byte) << np.uint32(8 * index)
        return result[()]

    return Function((_U32,) * 3, _U32, apply)


# --- selection -----------------------------------------------------------------------------------------------


@_builds("selp")
def _select(parts: list[str]) -> Function:
    dtype = DTYPES[parts[-1]]
    _only(parts)
    return Function((dtype, dtype, _PRED), dtype, lambda a, b, p: np.where(p, a, b)[()])


@_builds("slct")
def _select_by_sign(parts: list[str]) -> Function:
    dtype, condition = DTYPES[parts[-2]], DTYPES[parts[-1]]
    _only(parts, parts[-2])
    return Function((dtype, dtype, condition), dtype, lambda a, b, c: np.where(c >= 0, a, b)[()])


_ORDERED = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED_ORDER = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}


def comparison(name: str, dtype: np.dtype) -> Callable[[Value, Value], Value]:
    """The predicate of a `setp` comparison such as `lt`, `ltu` or `lo`. Raises Unsupported for another name."""
    if not is_float(dtype) and name in _ORDERED:
        return _ORDERED[name]
    if dtype.kind == "u" and name in _UNSIGNED_ORDER:
        return _UNSIGNED_ORDER[name]
    if is_float(dtype):
        if name == "ne":  # ordered: false for NaN, where NumPy's is true
            return lambda a, b: (a < b) | (a > b)
        if name in _ORDERED:
            return _ORDERED[name]
        if name == "neu":
            return np.not_equal
        if name.endswith("u") and name[:-1] in _ORDERED:
            return lambda a, b: _ORDERED[name[:-1]](a, b) | np.isnan(a) | np.isnan(b)
        if name == "num":
            return lambda a, b: ~(np.isnan(a) | np.isnan(b))
        if name == "nan":
            return lambda a, b: np.isnan(a) | np.isnan(b)
    raise Unsupported(f"the reference GPU has no comparison {name} of {dtype}")
