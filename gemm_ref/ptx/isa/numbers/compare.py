"""Comparison, selection and tests of numbers: PTX ISA, 9.7.3.1, 9.7.6 and 9.7.7."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, require_form
from gemm_ref.ptx.core.machine import Execute, Machine, Mask
from gemm_ref.ptx.isa.numbers.arithmetic import Function, allow_modifiers
from gemm_ref.ptx.isa.numbers.floats import KINDS, flush_subnormals
from gemm_ref.ptx.isa.numbers.rounding import widen
from gemm_ref.ptx.text.dtypes import DTYPES, PAIRS, UNSIGNED, Value
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.operands import Pair
from gemm_ref.ptx.text.parser import Instruction

_PRED = DTYPES["pred"]


def _choose(a: Value, b: Value, condition: Value) -> Value:
    return np.where(condition, a, b)[()]


def select(parts: list[str]) -> Function:
    """`selp`: by a predicate."""
    dtype = DTYPES[parts[-1]]
    allow_modifiers(parts)
    return Function((dtype, dtype, _PRED), dtype, _choose)


def select_by_sign(parts: list[str]) -> Function:
    """`slct`: by the sign of the third source."""
    dtype, condition = DTYPES[parts[-2]], DTYPES[parts[-1]]
    allow_modifiers(parts, parts[-2])
    return Function((dtype, dtype, condition), dtype, lambda a, b, c: _choose(a, b, c >= 0))


_ORDERED = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
_ORDERED |= {"ge": np.greater_equal}
_UNSIGNED_ORDER = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}


def comparison(name: str, dtype: np.dtype) -> Callable[[Value, Value], Value]:
    """Return the comparison of `setp` called `lt`, `ltu`, `lo` and the like. Raises Unsupported for another name."""
    if dtype.kind != "f" and name in _ORDERED:
        return _ORDERED[name]
    if dtype.kind == "u" and name in _UNSIGNED_ORDER:
        return _UNSIGNED_ORDER[name]
    if dtype.kind == "f":
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


def _comparison_of(name: str, kind: str, flush: bool) -> tuple[np.dtype, Callable[[Value, Value], Value]]:
    """Return the type of the sources of this format, no pair, and the comparison."""
    if kind not in KINDS:
        return DTYPES[kind], comparison(name, DTYPES[kind])
    numbers = {"bf16": lambda x: widen(x, "bf16"), "f16": lambda x: x.view(np.float16)}.get(kind, lambda x: x)
    compare = comparison(name, np.dtype(np.float32) if kind == "bf16" else KINDS[kind])
    if not flush:
        return KINDS[kind], lambda a, b: compare(numbers(a), numbers(b))
    return KINDS[kind], lambda a, b: compare(flush_subnormals(numbers(a)), flush_subnormals(numbers(b)))


def _read_halves(words: Value) -> tuple[Value, Value]:
    """Return the lower and the upper halves of words."""
    return words.astype(np.uint16), (words >> np.uint32(16)).astype(np.uint16)


def _comparer(
    decoder: Decoder, instruction: Instruction, types: int
) -> tuple[Callable[[Machine], list[Value]], Callable[[Machine, list[Value]], list[Value]]]:
    """Return what compares the sources of `set` or `setp`, and what combines its results with the third source.

    The results are one, or those of the lower and of the upper halves. types: how many the name ends with.
    """
    parts, operands = instruction.parts, instruction.operands
    combine, rest, kind = _COMBINED.get(parts[2]), parts[2:-types], parts[-1]
    flush = "ftz" in rest and kind in ("f32", "f16", "f16x2")
    known = kind in (*PAIRS, *DTYPES, *KINDS)
    require_form(known and all(part in _COMBINED or (part == "ftz" and flush) for part in rest), instruction)
    dtype, compare = _comparison_of(parts[1], PAIRS.get(kind, kind), flush)
    a, b = (decoder.source(operand, DTYPES["u32"] if kind in PAIRS else dtype) for operand in operands[1:3])
    third = decoder.source(operands[3], _PRED) if combine else None

    def compare_sources(machine: Machine) -> list[Value]:
        x, y = a(machine), b(machine)
        pairs = zip(_read_halves(x), _read_halves(y), strict=True) if kind in PAIRS else [(x, y)]
        return [compare(*pair) for pair in pairs]

    def combine_results(machine: Machine, results: list[Value]) -> list[Value]:
        return [combine(result, third(machine)) for result in results] if combine and third else results

    return compare_sources, combine_results


def set_predicate(decoder: Decoder, instruction: Instruction) -> Execute:
    """`setp`: compare, and combine with a third predicate (`.and .or .xor`); a second result is of the opposite.

    Of a pair of halves the second result is that of the upper ones.
    """
    compare, combine = _comparer(decoder, instruction, types=1)
    target = instruction.operands[0]
    targets = (target.first, target.second) if isinstance(target, Pair) else (target,)
    writes = [decoder.destination(operand) for operand in targets]

    def execute(machine: Machine, mask: Mask) -> None:
        results = compare(machine)
        if len(results) < len(writes):
            results.append(~results[0])
        for write, value in zip(writes, combine(machine, results), strict=False):
            write(machine, value, mask)

    return execute


# The result of `set` for a true comparison, as bits of the type.
_TRUE = {"u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF, "u16": 0xFFFF, "s16": 0xFFFF, "f32": 0x3F800000, "f16": 0x3C00}
_TRUE |= {"bf16": 0x3F80}


def set_value(decoder: Decoder, instruction: Instruction) -> Execute:
    """`set`: as `setp`, with 1 or all ones for true, and 0; each half of a pair has its own."""
    compare, combine = _comparer(decoder, instruction, types=2)
    to, write = instruction.parts[-2], decoder.destination(instruction.operands[0])
    pairs = instruction.parts[-1] in PAIRS
    true = _TRUE[PAIRS.get(to, "u16")] if pairs else _TRUE[to]
    bits = UNSIGNED[2 if pairs or to in ("f16", "bf16", "u16", "s16") else 4].type

    def execute(machine: Machine, mask: Mask) -> None:
        results = combine(machine, compare(machine))
        values = [np.where(result, bits(true), bits(0))[()] for result in results]
        write(machine, values[1].astype(np.uint32) << np.uint32(16) | values[0] if pairs else values[0], mask)

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
    if parts[1] not in tests or dtype.kind != "f":
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    return Function((dtype,), _PRED, tests[parts[1]])
