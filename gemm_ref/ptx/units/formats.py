"""Conversions of the number formats that NumPy does not have: bf16, tf32, e4m3 and e5m2.

PTX ISA, 5.2.3 'Alternate floating-point data formats'. FP8 is that of Micikevicius et al., 'FP8 formats for deep
learning' (2022): e5m2 is the upper half of an fp16; e4m3 has no infinity, and one NaN of each sign.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.text.dtypes import FORMATS, UNSIGNED, Value

INTEGERS = {"s8": np.int8, "u8": np.uint8}
BITS = {kind: form.bits for kind, form in FORMATS.items()} | dict.fromkeys(INTEGERS, UNSIGNED[1])  # of an element
_TF32_MASK = np.uint32(0xFFFFE000)  # tf32 is an fp32 without the 13 low bits of its fraction
_NAN32, _NAN16 = np.uint32(0x7FFFFFFF), np.uint16(0x7FFF)  # what cvt makes of any NaN


def _e4m3_values() -> np.ndarray:
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    size = np.where(exponent == 0, np.ldexp(fraction, -9), np.ldexp(8 + fraction, exponent - 10))
    size[(code & 127) == 127] = np.nan
    return np.where(code & 128, -size, size)


E4M3 = _e4m3_values()  # float64, by code
E5M2 = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float64)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """Convert bf16, as uint16, to float32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


_FLOAT8 = {"e4m3": E4M3, "e5m2": E5M2}


def numbers(bits: np.ndarray, kind: str, to: type[np.floating]) -> np.ndarray:
    """Convert elements of a format of BITS to float32 or float64, exactly, as a tensor core reads them.

    It ignores the low 13 bits of a tf32 element.
    """
    if kind == "f16":
        return bits.view(np.float16).astype(to)
    if kind == "bf16":
        return from_bf16(bits).astype(to, copy=False)
    if kind == "tf32":
        return (bits & _TF32_MASK).view(np.float32).astype(to, copy=False)
    if kind in INTEGERS:
        return bits.view(INTEGERS[kind]).astype(to)
    return _FLOAT8[kind][bits].astype(to, copy=False)


def to_bf16(a: Value) -> Value:
    """Round float32 to bf16, as uint16, to nearest and ties to even."""
    bits = a.view(np.uint32)
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(a), _NAN16, (bits + half >> np.uint32(16)).astype(np.uint16))[()]


def _to_tf32(half: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Return what rounds float32 to tf32, as uint32; half: what is added to the bits before the low ones are cut."""

    def apply(a: Value) -> Value:
        bits = a.view(np.uint32)
        return np.where(np.isnan(a), _NAN32, (bits + half(bits)) & _TF32_MASK)[()]

    return apply


round_to_tf32_away = _to_tf32(lambda bits: np.uint32(0x1000))  # ties away from zero
cut_to_tf32 = _to_tf32(lambda bits: np.uint32(0))
round_to_tf32 = _to_tf32(lambda bits: np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1)))


def _to_fp8(values: np.ndarray) -> Callable[[Value], Value]:
    """Return what rounds floats to fp8, as uint8, to nearest and ties to even; larger numbers become the largest."""
    finite = values[:128][np.isfinite(values[:128])]  # their codes count from 0, in order of size
    middles = (finite[:-1] + finite[1:]) / 2

    def apply(a: Value) -> Value:
        size = np.abs(a.astype(np.float64))
        # at a middle the two searches differ by one, and the even code is the one that is wanted
        low, high = np.searchsorted(middles, size, "left"), np.searchsorted(middles, size, "right")
        code = np.where(low % 2 == 0, low, high).astype(np.uint8)
        code = np.where(np.isnan(a), np.uint8(127), code | np.signbit(a).astype(np.uint8) << np.uint8(7))
        return code.astype(np.uint8)[()]

    return apply


to_e4m3, to_e5m2 = _to_fp8(E4M3), _to_fp8(E5M2)
