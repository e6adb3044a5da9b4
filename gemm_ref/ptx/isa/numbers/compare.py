"""Comparison, selection and tests of numbers: PTX ISA, 9.7.3.1, 9.7.6 and 9.7.7."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.core.machine import Execute, Machine, Mask
from gemm_ref.ptx.isa.numbers.arithmetic import Function, only
from gemm_ref.ptx.isa.numbers.floats import KINDS, without_subnormals
from gemm_ref.ptx.isa.numbers.rounding import widen
from gemm_ref.ptx.text.dtypes import DTYPES, Value, is_float
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.operands import Pair
from gemm_ref.ptx.text.parser import Instruction

_PRED = DTYPES["pred"]


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


_COMBINED: dict[str, np.ufunc] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_HALVES = {"f16x2": "f16", "bf16x2": "bf16"}


def _comparison_of(name: str, kind: str, flush: bool) -> tuple[np.dtype, Callable[[Value, Value], Value]]:
    """The type of the sources of this format, and the comparison of them; without halves of a pair."""
    if kind not in KINDS:
        return DTYPES[kind], comparison(name, DTYPES[kind])
    numbers = {"bf16": lambda x: widen(x, "bf16"), "f16": lambda x: x.view(np.float16)}.get(kind, lambda x: x)
    compare = comparison(name, np.dtype(np.float32) if kind == "bf16" else KINDS[kind])
    if not flush:
        return KINDS[kind], lambda a, b: compare(numbers(a), numbers(b))
    return KINDS[kind], lambda a, b: compare(without_subnormals(numbers(a)), without_subnormals(numbers(b)))


def _lower(words: Value) -> Value:
    return words.astype(np.uint16)


def _upper(words: Value) -> Value:
    return (words >> np.uint32(16)).astype(np.uint16)


def _read_name(parts: list[str], types: int) -> tuple[str, np.ufunc | None, bool]:
    """Comparison, combination with a predicate, and `.ftz` in a name that ends with so many types."""
    combine, rest = _COMBINED.get(parts[2]), parts[2:-types]
    flush = "ftz" in rest and parts[-1] in ("f32", "f16", "f16x2")
    if [part for part in rest if not (part == "ftz" and flush) and part not in _COMBINED]:
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    return parts[1], combine, flush


def set_predicate(decoder: Decoder, instruction: Instruction) -> Execute:
    """`setp`: compare, and combine with a third predicate (`.and .or .xor`); a second result is of the opposite.

    Of a pair of halves the second result is that of the upper ones.
    """
    parts, operands = instruction.parts, instruction.operands
    name, combine, flush = _read_name(parts, 1)
    half = _HALVES.get(parts[-1])
    if half is None and parts[-1] not in DTYPES and parts[-1] not in KINDS:
        raise Unsupported(f"the reference GPU has no {instruction.name} (type {parts[-1]})")
    dtype, compare = _comparison_of(name, half or parts[-1], flush)
    pair = operands[0] if isinstance(operands[0], Pair) else Pair(operands[0], None)
    writes = [(p, decoder.destination(r)) for p, r in ((True, pair.first), (False, pair.second)) if r is not None]
    a, b = (decoder.source(operand, DTYPES["u32"] if half else dtype) for operand in operands[1:3])
    third = decoder.source(operands[3], DTYPES["pred"]) if combine else None

    both = isinstance(operands[0], Pair)

    def results(x: Value, y: Value) -> tuple[Value, Value]:
        if half is None:
            result = compare(x, y)
            return result, ~result if both else result
        return compare(_lower(x), _lower(y)), compare(_upper(x), _upper(y))

    def execute(machine: Machine, mask: Mask) -> None:
        first, second = results(a(machine), b(machine))
        also = third(machine) if third else None  # read first: it may be one of the destinations
        for is_first, write in writes:
            value = first if is_first else second
            write(machine, combine(value, also) if combine else value, mask)

    return execute


# What `set` gives where a comparison is true, as the bits of the type.
_TRUE = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF, "s16": 0xFFFF, "f32": 0x3F800000, "f16": 0x3C00}
_TRUE |= {"bf16": 0x3F80}


def set_value(decoder: Decoder, instruction: Instruction) -> Execute:
    """`set`: as `setp`, with 1 or all ones for true, and 0; each half of a pair has its own."""
    parts = instruction.parts
    name, combine, flush = _read_name(parts, 2)
    half, to = _HALVES.get(parts[-1]), parts[-2]
    dtype, compare = _comparison_of(name, half or parts[-1], flush)
    operands = instruction.operands
    write, a, b = (
        decoder.destination(operands[0]),
        *(decoder.source(operand, DTYPES["u32"] if half else dtype) for operand in operands[1:3]),
    )
    third = decoder.source(operands[3], _PRED) if combine else None
    true = _TRUE[_HALVES.get(to, "u16")] if half else _TRUE[to]
    bits = np.dtype(np.uint16 if half or to in ("f16", "bf16", "u16", "s16") else np.uint32)

    def chosen(x: Value, y: Value, also: Value | None) -> Value:
        result = compare(x, y)
        return np.where(combine(result, also) if combine else result, bits.type(true), bits.type(0))[()]

    def execute(machine: Machine, mask: Mask) -> None:
        x, y, also = a(machine), b(machine), third(machine) if third else None
        if half is None:
            write(machine, chosen(x, y, also), mask)
            return
        lower, upper = chosen(_lower(x), _lower(y), also), chosen(_upper(x), _upper(y), also)
        write(machine, upper.astype(np.uint32) << np.uint32(16) | lower, mask)

    return execute


def test_number(parts: list[str]) -> Function:
    """`testp`: `.finite .infinite .number .notanumber .normal .subnormal`, of f32 and f64."""
    dtype = DTYPES[parts[-1]]
    tests: dict[str, Callable[[Value], Value]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(dtype).smallest_normal),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(dtype).smallest_normal),
    }
    if parts[1] not in tests or not is_float(dtype):
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    return Function((dtype,), _PRED, tests[parts[1]])
