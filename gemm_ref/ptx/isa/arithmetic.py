"""What arithmetic, comparisons and selections compute: PTX ISA, 9.7.1, 9.7.3 and 9.7.6.

Most are a `Function` of NumPy values, which the instruction's name says. Values are arrays with one element per lane,
or single numbers where all lanes agree; every function takes both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.context import Execute, Machine, Mask
from gemm_ref.ptx.core.decode import Builder, Decoder, dtype_named
from gemm_ref.ptx.text.dtypes import DTYPES, SIGNED, UNSIGNED, Value, is_float, is_signed
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.operands import Pair
from gemm_ref.ptx.text.parser import Instruction


@dataclass(frozen=True)
class Function:
    """`apply(*sources) -> result`, with the types that the sources are read as."""

    sources: tuple[np.dtype, ...]
    result: np.dtype
    apply: Callable[..., Value]


_U32, _F32, _PRED = DTYPES["u32"], DTYPES["f32"], DTYPES["pred"]
# Of a float64 in two words (the low one first: NumPy's machines are little-endian): the 29 bits that float32 drops, and
# half of them; the sign cleared, and the high word of float32's smallest normal number.
_BELOW_FLOAT32, _MIDDLE = np.uint32(0x1FFFFFFF), np.uint32(0x10000000)
_MAGNITUDE, _SMALLEST_NORMAL, _ONE = np.uint32(0x7FFFFFFF), np.uint32(0x38100000), np.uint32(1)
_HARMLESS = {"rn", "full", "approx"}  # rounding to nearest, or instructions that promise less than that


def execution(decoder: Decoder, instruction: Instruction, function: Function) -> Execute:
    """Write what a function makes of the sources to the destination. Raises ValueError for another number of them."""
    write, apply = decoder.destination(instruction.operands[0]), function.apply
    reads = [decoder.source(o, t) for o, t in zip(instruction.operands[1:], function.sources, strict=True)]
    if len(reads) == 2:
        one, two = reads
        return lambda machine, mask: write(machine, apply(one(machine), two(machine)), mask)
    if len(reads) == 3:
        one, two, three = reads
        return lambda machine, mask: write(machine, apply(one(machine), two(machine), three(machine)), mask)
    return lambda machine, mask: write(machine, apply(*[read(machine) for read in reads]), mask)


def computes(function_of: Callable[[list[str]], Function]) -> Builder:
    """The builder of instructions that compute a function, which the parts of their names say."""

    @functools.wraps(function_of)
    def build(decoder: Decoder, instruction: Instruction) -> Execute:
        if instruction.parts[-1] not in DTYPES:
            raise Unsupported(f"the reference GPU has no instruction {instruction.name}")
        return execution(decoder, instruction, function_of(instruction.parts))

    return build


def only(parts: list[str], *allowed: str) -> None:
    """Refuse modifiers that would change the meaning and are not handled."""
    unknown = set(parts[1:-1]) - set(allowed)
    if unknown:
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)} (modifier {', '.join(sorted(unknown))})")


def no_floats(parts: list[str]) -> np.dtype:
    dtype = DTYPES[parts[-1]]
    if is_float(dtype):
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    return dtype


# --- add, sub, mul, mad, fma, div, rem -----------------------------------------------------------------------


def add(parts: list[str]) -> Function:
    """`add`, `sub`: of all types, floats to nearest."""
    dtype = DTYPES[parts[-1]]
    only(parts, *_HARMLESS)
    return Function((dtype, dtype), dtype, np.add if parts[0] == "add" else np.subtract)


def multiply(parts: list[str]) -> Function:
    """`mul`, `mad`: integers `.lo .hi .wide`, floats to nearest, `mad.f32` as `fma`."""
    dtype = DTYPES[parts[-1]]
    if is_float(dtype):
        only(parts, *_HARMLESS)
        if parts[0] == "mad":
            return fma(parts)
        return Function((dtype, dtype), dtype, np.multiply)
    only(parts, "lo", "hi", "wide")
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


def fma(parts: list[str]) -> Function:
    """`fma`: `.rn.f32`, a * b + c rounded once."""
    only(parts, *_HARMLESS)
    if parts[-1] != "f32":
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    return Function((_F32,) * 3, _F32, fma32)


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
        odd = _round_to_odd(*(np.broadcast_to(x, shape).reshape(-1)[at] for x in (product, c, total)))
        result[at] = odd.astype(np.float32)
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


def divide(parts: list[str]) -> Function:
    """`div`, `rem`: integers toward zero; of floats the quotient alone."""
    dtype = DTYPES[parts[-1]]
    if is_float(dtype):
        if parts[0] == "rem":
            raise Unsupported("rem is an integer instruction")
        only(parts, *_HARMLESS)
        return Function((dtype, dtype), dtype, np.divide)
    only(parts)
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


def reciprocal(parts: list[str]) -> Function:
    """`rcp`, `sqrt`, `rsqrt`, `ex2`: of floats, `.rn` or `.approx`, with `.ftz` as well.

    Each result is rounded to nearest once; a GPU's `.approx` may be off by 2^-22 of it (`ex2` and `rcp` of float32).
    """
    dtype = DTYPES[parts[-1]]
    only(parts, *_HARMLESS, "ftz")
    functions: dict[str, Callable[[Value], Value]] = {
        "rcp": lambda a: dtype.type(1) / a,
        "sqrt": np.sqrt,
        "rsqrt": lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(dtype),
        "ex2": lambda a: np.exp2(a.astype(np.float64)).astype(dtype),
    }
    apply = functions[parts[0]]
    if "ftz" in parts:
        return Function((dtype,), dtype, lambda a: _no_subnormals(apply(_no_subnormals(a))))
    return Function((dtype,), dtype, apply)


def _no_subnormals(x: Value) -> Value:
    """Subnormal numbers as zeros of their sign (`.ftz`)."""
    return np.where(np.abs(x) < np.finfo(x.dtype).smallest_normal, x * x.dtype.type(0), x)[()]


# --- abs, neg, min, max --------------------------------------------------------------------------------------


def magnitude(parts: list[str]) -> Function:
    """`abs`, `neg`: a number without its sign, and with the other."""
    dtype = DTYPES[parts[-1]]
    only(parts)
    return Function((dtype,), dtype, np.abs if parts[0] == "abs" else np.negative)


def extreme(parts: list[str]) -> Function:
    """`min`, `max`: a NaN loses against a number; with `.NaN` it wins."""
    dtype = DTYPES[parts[-1]]
    only(parts, "NaN")
    smaller = parts[0] == "min"
    if not is_float(dtype):
        return Function((dtype, dtype), dtype, np.minimum if smaller else np.maximum)
    choose: np.ufunc
    if "NaN" in parts:
        choose = np.minimum if smaller else np.maximum
    else:
        choose = np.fmin if smaller else np.fmax  # a NaN loses against a number
    bits, zero_sign = UNSIGNED[dtype.itemsize], np.bitwise_or if smaller else np.bitwise_and

    def apply(a: Value, b: Value) -> Value:
        # -0 is below +0, which a comparison does not see: of two equal numbers take the sign by their bits
        return np.where(a == b, zero_sign(a.view(bits), b.view(bits)).view(dtype), choose(a, b))[()]

    return Function((dtype, dtype), dtype, apply)


# --- selection -----------------------------------------------------------------------------------------------


def _choose(a: Value, b: Value, condition: Value) -> Value:
    return np.where(condition, a, b)[()]


def select(parts: list[str]) -> Function:
    """`selp`: by a predicate."""
    dtype = DTYPES[parts[-1]]
    only(parts)
    return Function((dtype, dtype, _PRED), dtype, _choose)


def select_by_sign(parts: list[str]) -> Function:
    """`slct`: by the sign of the third source."""
    dtype, condition = DTYPES[parts[-2]], DTYPES[parts[-1]]
    only(parts, parts[-2])
    return Function((dtype, dtype, condition), dtype, lambda a, b, c: _choose(a, b, c >= 0))


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


def set_predicate(decoder: Decoder, instruction: Instruction) -> Execute:
    """`setp`: compare, and combine with a third predicate (`.and .or .xor`); a second result is of the opposite."""
    parts, operands = instruction.parts, instruction.operands
    dtype = dtype_named(instruction)
    combinations: dict[str, np.ufunc] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
    combine = combinations.get(parts[2])
    unknown = parts[2:-1] if combine is None else parts[3:-1]
    if unknown:
        raise Unsupported(f"the reference GPU has no {instruction.name}")
    compare = comparison(parts[1], dtype)
    pair = operands[0] if isinstance(operands[0], Pair) else Pair(operands[0], None)
    writes = [(p, decoder.destination(r)) for p, r in ((True, pair.first), (False, pair.second)) if r is not None]
    a, b = (decoder.source(operand, dtype) for operand in operands[1:3])
    third = decoder.source(operands[3], DTYPES["pred"]) if combine else None

    def execute(machine: Machine, mask: Mask) -> None:
        result = compare(a(machine), b(machine))
        also = third(machine) if third else None  # read first: it may be one of the destinations
        for positive, write in writes:
            value = result if positive else ~result
            write(machine, combine(value, also) if combine else value, mask)

    return execute
