"""`cvt`: conversion between types, with its rounding and saturation (PTX ISA, section 9.7.9.21)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.core.machine import Execute
from gemm_ref.ptx.isa.numbers.arithmetic import Function, make_execute
from gemm_ref.ptx.isa.numbers.floats import flush_subnormals, narrow_to, relu
from gemm_ref.ptx.isa.numbers.rounding import MODES, step_toward, widen
from gemm_ref.ptx.text.dtypes import DTYPES, PAIRS, Value
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.formats import E4M3, E5M2, cut_to_tf32, round_to_tf32, round_to_tf32_away, to_e4m3, to_e5m2

_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_NUMBERS = {**DTYPES, "bf16": DTYPES["u16"]}
_FLOATS = ("f16", "bf16", "f32", "f64")


def cvt(decoder: Decoder, instruction: Instruction) -> Execute:
    """`cvt`: between integers, f16, bf16, f32, f64 in every rounding; to tf32; pairs to and from f16x2, bf16x2 and fp8.

    With `.sat`, `.satfinite`, `.relu` and `.ftz`.
    """
    function = _pair_conversion(instruction.parts) or _conversion(instruction.parts)
    return make_execute(decoder, instruction, function)


def _conversion(parts: list[str]) -> Function:
    """Return the conversion of one number to one number."""
    missing = Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    if len(parts) < 3 or parts[-2] not in _NUMBERS or parts[-1] not in _NUMBERS:
        raise missing
    to, source, modifiers = parts[-2], parts[-1], set(parts[1:-2])
    whole, rounding = modifiers & set(_TO_INTEGER), modifiers & set(MODES)
    rest = modifiers - whole - rounding
    allowed = {"ftz"} if "f32" in (to, source) else set()
    allowed |= {"relu", "satfinite"} if to in ("f16", "bf16") else set()
    allowed |= {"sat"} if to != "bf16" else set()
    if unknown := rest - allowed:
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)} (modifier {', '.join(sorted(unknown))})")
    if len(whole | rounding) > 1 or (whole and source not in _FLOATS):
        raise missing
    apply: Callable[[Value], Value]
    if source in _FLOATS and to not in _FLOATS:
        if not whole:
            raise Unsupported(f"{'.'.join(parts)} needs a rounding to an integer such as .rzi")
        apply = _float_to_integer(_NUMBERS[source], DTYPES[to], _TO_INTEGER[whole.pop()])
        apply = _compose(lambda a: widen(a, source).astype(np.float32), apply) if source == "bf16" else apply
    elif to not in _FLOATS:
        apply = _saturating(DTYPES[to]) if "sat" in rest else lambda a: a.astype(DTYPES[to])
    else:
        apply = _to_float(to, source, (whole or rounding or {"rn"}).pop())
        for name in ("sat", "satfinite", "relu"):
            if name in rest:
                apply = _compose(apply, functools.partial(_LIMITS[name], kind=to))
    if "ftz" in rest:
        apply = _compose(flush_subnormals, apply) if source == "f32" else apply
        apply = _compose(apply, flush_subnormals) if to == "f32" else apply
    return Function((_NUMBERS[source],), _NUMBERS[to], apply)


def _compose(first: Callable[[Value], Value], second: Callable[[Value], Value]) -> Callable[[Value], Value]:
    return lambda a: second(first(a))


def _to_float(to: str, source: str, mode: str) -> Callable[[Value], Value]:
    """Return the conversion to a float, rounded once; in modes such as `rni` to an integral value."""
    dtype = _NUMBERS[to]
    if mode in _TO_INTEGER:
        return lambda a: narrow_to(_TO_INTEGER[mode](widen(a, source)), to)
    if "bf16" not in (to, source) and mode == "rn":
        return lambda a: a.astype(dtype)
    wide = source in ("s64", "u64")
    if to == "f64" and wide:
        return _integer_to_f64(mode)
    return lambda a: narrow_to(_round_to_odd(a) if wide else widen(a, source), to, mode)


def _round_to_odd(a: Value) -> Value:
    """Convert 64-bit integers to float64, rounded to odd, so that the result can be rounded again."""
    negative = a < 0
    size = np.where(negative, -a, a).astype(np.uint64)
    low = np.uint64(0x7FF)
    size = np.where(size >> np.uint64(53), (size & ~low) | ((size & low) != 0).astype(np.uint64) << np.uint64(11), size)
    return np.where(negative, -(size.astype(np.float64)), size.astype(np.float64))[()]


def _integer_to_f64(mode: str) -> Callable[[Value], Value]:
    def one(a: int) -> Value:
        return step_toward(np.float64(a), int(a) - int(float(a)), mode)

    return lambda a: np.vectorize(one, otypes=[np.float64])(a)[()]


def _saturate(a: Value, kind: str) -> Value:
    """`.sat`: between 0 and 1, and NaN as 0."""
    return np.nan_to_num(np.clip(a, 0, 1), nan=0.0).astype(_NUMBERS[kind])


def _saturate_finite(a: Value, kind: str) -> Value:
    """`.satfinite`: infinities as the largest number of their sign."""
    bits = a.view(np.uint16)
    infinite, largest = (0x7F80, 0x7F7F) if kind == "bf16" else (0x7C00, 0x7BFF)
    clamped = np.where(bits & 0x7FFF == infinite, (bits & 0x8000) | largest, bits).astype(np.uint16)
    return clamped.view(_NUMBERS[kind])[()]


_LIMITS: dict[str, Callable[..., Value]] = {"sat": _saturate, "satfinite": _saturate_finite, "relu": relu}


def _float_to_integer(source: np.dtype, to: np.dtype, rounded: np.ufunc) -> Callable[[Value], Value]:
    limits = np.iinfo(to)
    # PTX ISA: NaN gives zero, or only the top bit if one side has 64 bits
    nan = to.type(0)
    if source.itemsize == 8 or to.itemsize == 8:
        nan = to.type(limits.min if to.kind == "i" else 1 << 8 * to.itemsize - 1)

    def apply(a: Value) -> Value:
        # out of range clamps; 2.0**63 is not below the limit, so compare before converting
        whole = rounded(a.astype(np.float64))
        inside = np.where((whole >= float(limits.min)) & (whole < float(limits.max) + 1), whole, 0.0).astype(to)
        high = whole >= float(limits.max) + 1
        result = np.where(high, to.type(limits.max), np.where(whole < float(limits.min), to.type(limits.min), inside))
        return np.where(np.isnan(a), nan, result)[()]

    return apply


def _saturating(to: np.dtype) -> Callable[[Value], Value]:
    limits = np.iinfo(to)

    def apply(a: Value) -> Value:
        source = np.iinfo(a.dtype)
        return np.clip(a, max(limits.min, source.min), min(limits.max, source.max)).astype(to)

    return apply


_F16, _F32 = DTYPES["f16"], DTYPES["f32"]


def _packed(convert: Callable[[Value], Value], whole: type[np.unsignedinteger]) -> Callable[[Value, Value], Value]:
    """Return what packs two sources into one register, the first in its upper half."""
    bits = whole(4 * whole().itemsize)
    return lambda a, b: convert(a).astype(whole) << bits | convert(b).astype(whole)


def _unpacked(values: np.ndarray) -> Callable[[Value], Value]:
    """Return what converts two fp8 numbers in 16 bits to two fp16 in 32, exactly."""
    halves = values.astype(_F16).view(np.uint16).astype(np.uint32)
    return lambda a: halves[a >> np.uint16(8)] << np.uint32(16) | halves[a & np.uint16(255)]


def _from_halves(convert: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Return what converts two fp16 numbers in 32 bits to two fp8 in 16."""

    def apply(a: Value) -> Value:
        high, low = ((a >> np.uint32(shift)).astype(np.uint16).view(_F16) for shift in (16, 0))
        return _packed(convert, np.uint16)(high, low)

    return apply


_U8X2, _U32 = np.dtype(np.uint16), np.dtype(np.uint32)
_FP8 = {"e4m3x2": (to_e4m3, E4M3), "e5m2x2": (to_e5m2, E5M2)}
_TF32 = {"rna": round_to_tf32_away, "rn": round_to_tf32, "rz": cut_to_tf32}


def _pair_conversion(parts: list[str]) -> Function | None:
    """Return a conversion to tf32, or between pairs of numbers; None for another one."""
    if len(parts) < 4:
        return None
    to, source, modifiers = parts[-2], parts[-1], set(parts[1:-2])
    mode = (modifiers & {*MODES, "rna"} or {""}).pop()
    rest = modifiers - {mode}
    if (to, source) == ("tf32", "f32") and mode in _TF32 and rest <= {"relu"}:
        first = _clamp_negative if rest else _identity
        return Function((_F32,), _U32, lambda a: _TF32[mode](first(a)))
    if to in PAIRS and source == "f32" and mode in ("rn", "rz") and rest <= {"relu", "satfinite"}:
        one = _conversion(["cvt", mode, *rest, PAIRS[to], "f32"]).apply
        return Function((_F32, _F32), _U32, _packed(lambda a: one(a).view(np.uint16), np.uint32))
    if to in _FP8 and mode == "rn" and rest in ({"satfinite"}, {"satfinite", "relu"}):
        convert, first = _FP8[to][0], _clamp_negative if "relu" in rest else _identity
        if source == "f32":
            return Function((_F32, _F32), _U8X2, _packed(lambda a: convert(first(a)), np.uint16))
        if source == "f16x2":
            return Function((_U32,), _U8X2, _from_halves(lambda a: convert(first(a))))
    if to == "f16x2" and source in _FP8 and mode == "rn" and rest <= {"relu"}:
        values = _FP8[source][1]
        return Function((_U8X2,), _U32, _unpacked(_clamp_negative(values) if rest else values))
    return None


def _clamp_negative(a: Value) -> Value:
    return np.where(a < 0, a.dtype.type(0), a)[()]


def _identity(a: Value) -> Value:
    return a
