"""Arithmetic instructions: PTX ISA, 9.7.1, 9.7.3 and 9.7.4.

Most are a `Function` of NumPy values, which follows from the instruction's name. Values are arrays with one element per
lane, or single numbers if all lanes agree; every function takes both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.decode import Builder, Decoder
from gemm_ref.ptx.core.machine import Execute
from gemm_ref.ptx.isa.numbers import floats
from gemm_ref.ptx.isa.numbers.floats import KINDS
from gemm_ref.ptx.text.dtypes import DTYPES, SIGNED, UNSIGNED, Value, is_signed
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.parser import Instruction


@dataclass(frozen=True)
class Function:
    """`apply(*sources) -> result`, with the types as which the sources are read."""

    sources: tuple[np.dtype, ...]
    result: np.dtype
    apply: Callable[..., Value]


_U32, _PRED = DTYPES["u32"], DTYPES["pred"]


def make_execute(decoder: Decoder, instruction: Instruction, function: Function) -> Execute:
    """Return what writes a function of the sources to the destination. Raises ValueError for a wrong number."""
    write, apply = decoder.destination(instruction.operands[0]), function.apply
    reads = [decoder.source(o, t) for o, t in zip(instruction.operands[1:], function.sources, strict=True)]
    if len(reads) == 2:
        one, two = reads
        return lambda machine, mask: write(machine, apply(one(machine), two(machine)), mask)
    if len(reads) == 3:
        one, two, three = reads
        return lambda machine, mask: write(machine, apply(one(machine), two(machine), three(machine)), mask)
    return lambda machine, mask: write(machine, apply(*[read(machine) for read in reads]), mask)


def builder_of(function_of: Callable[[list[str]], Function]) -> Builder:
    """Return the builder of instructions that compute a function, which follows from the parts of their names."""

    @functools.cache
    def function(name: str) -> Function:
        parts = name.split(".")
        if parts[-1] not in (*DTYPES, *KINDS, "add"):  # `vabsdiff4.add` ends with a modifier
            raise Unsupported(f"the reference GPU has no instruction {name}")
        return function_of(parts)

    @functools.wraps(function_of)
    def build(decoder: Decoder, instruction: Instruction) -> Execute:
        return make_execute(decoder, instruction, function(instruction.name))

    return build


def allow_modifiers(parts: list[str], *allowed: str) -> None:
    """Raise Unsupported for modifiers that would change the meaning and are not handled."""
    unknown = set(parts[1:-1]) - set(allowed)
    if unknown:
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)} (modifier {', '.join(sorted(unknown))})")


def float_function(parts: list[str]) -> Function:
    """Return the function of a floating-point instruction, from the table of `floats`."""
    count, dtype, apply = floats.operation(parts)
    return Function((dtype,) * count, dtype, apply)


def integer_type(parts: list[str]) -> np.dtype:
    dtype = DTYPES[parts[-1]]
    if dtype.kind == "f":
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    return dtype


def add(parts: list[str]) -> Function:
    """`add`, `sub`: of all types; floats in every rounding, `.ftz`, `.sat`, and s32 `.sat`."""
    if parts[-1] in KINDS:
        return float_function(parts)
    dtype, apply = DTYPES[parts[-1]], np.add if parts[0] == "add" else np.subtract
    if "sat" not in parts:
        allow_modifiers(parts)
        return Function((dtype, dtype), dtype, apply)
    allow_modifiers(parts, "sat") if dtype == np.int32 else allow_modifiers(parts)
    limits = np.iinfo(dtype)
    return Function(
        (dtype, dtype), dtype, lambda a, b: np.clip(apply(a.astype(np.int64), b), limits.min, limits.max).astype(dtype)
    )


def multiply(parts: list[str]) -> Function:
    """`mul`, `mad`: integers `.lo .hi .wide`, floats in every rounding, `mad` of them as `fma`."""
    if parts[-1] in KINDS:
        return float_function(parts)
    dtype = DTYPES[parts[-1]]
    allow_modifiers(parts, "lo", "hi", "wide")
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
        # in halves of 32 bits, since no NumPy integer has 128
        x, y, half, low = a.view(np.uint64), b.view(np.uint64), np.uint64(32), np.uint64(0xFFFFFFFF)
        x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
        middle = x1 * y0 + (x0 * y0 >> half)
        high = x1 * y1 + (middle >> half) + ((middle & low) + x0 * y1 >> half)
        if is_signed(dtype):  # two's complement: a negative factor stands for itself plus 2**64
            high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
        return high.view(dtype)

    return high64


def fma(parts: list[str]) -> Function:
    """`fma`: a * b + c rounded once, of f16, bf16, f32, f64 and pairs of halves, in every rounding."""
    return float_function(parts)


def divide(parts: list[str]) -> Function:
    """`div`, `rem`: integers toward zero; of floats the quotient, in every rounding, to nearest where approximate."""
    if parts[-1] in KINDS:
        return float_function(parts)
    dtype = DTYPES[parts[-1]]
    allow_modifiers(parts)
    return Function((dtype, dtype), dtype, _truncated(np.floor_divide if parts[0] == "div" else np.remainder))


def _truncated(floored: np.ufunc) -> Callable[[Value, Value], Value]:
    """Return C's division from NumPy's: the quotient toward zero, the remainder with the dividend's sign."""

    def apply(a: Value, b: Value) -> Value:
        if not is_signed(a.dtype):
            return floored(a, b)
        unsigned = UNSIGNED[a.dtype.itemsize]
        magnitude = floored(np.abs(a).view(unsigned), np.abs(b).view(unsigned)).view(a.dtype)
        negative = (a < 0) != (b < 0) if floored is np.floor_divide else a < 0
        return np.where(negative, -magnitude, magnitude)[()]

    return apply


def approximate(parts: list[str]) -> Function:
    """`rcp`, `sqrt`, `rsqrt`, `ex2`, `lg2`, `sin`, `cos`, `tanh`: the true value to nearest, also where `.approx`."""
    return float_function(parts)


def magnitude(parts: list[str]) -> Function:
    """`abs`, `neg`, `copysign`: a number without its sign, with the other, and with the first source's."""
    if parts[-1] in KINDS:
        return float_function(parts)
    dtype = DTYPES[parts[-1]]
    allow_modifiers(parts)
    return Function((dtype,), dtype, np.abs if parts[0] == "abs" else np.negative)


def extreme(parts: list[str]) -> Function:
    """`min`, `max`: a NaN loses against a number; with `.NaN` it wins; `.xorsign.abs`, and s32 `.relu`."""
    if parts[-1] in KINDS:
        return float_function(parts)
    dtype, choose = DTYPES[parts[-1]], np.minimum if parts[0] == "min" else np.maximum
    allow_modifiers(parts, *(["relu"] if dtype == np.int32 else []))
    if "relu" in parts:
        return Function((dtype, dtype), dtype, lambda a, b: np.maximum(choose(a, b), 0))
    return Function((dtype, dtype), dtype, choose)
