"""Number formats that NumPy lacks, bf16, tf32, e4m3 and e5m2, and the `cvt` instructions to and from them.

PTX ISA, 5.2.3 'Alternate floating-point data formats' and 9.7.9.21 'cvt'. FP8 is that of Micikevicius et al., 'FP8
formats for deep learning' (2022): e5m2 is the upper half of an fp16; e4m3 has no infinity, and one NaN of each sign.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.isa.arithmetic import Function
from gemm_ref.ptx.text.dtypes import DTYPES, Value

_F16, _F32 = DTYPES["f16"], DTYPES["f32"]
_TF32_MASK = np.uint32(0xFFFFE000)  # tf32 is an fp32 without the 13 low bits of its fraction
_NAN32, _NAN16 = np.uint32(0x7FFFFFFF), np.uint16(0x7FFF)  # what cvt makes of any NaN


# --- to float ------------------------------------------------------------------------------------------------


def _e4m3_values() -> np.ndarray:
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    size = np.where(exponent == 0, np.ldexp(fraction, -9), np.ldexp(8 + fraction, exponent - 10))
    size[(code & 127) == 127] = np.nan
    return np.where(code & 128, -size, size)


E4M3 = _e4m3_values()  # float64, by code
E5M2 = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float64)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """uint16 -> float32, exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def from_tf32(bits: np.ndarray) -> np.ndarray:
    """uint32 -> float32: what a tensor core sees, which ignores the bits that tf32 lacks."""
    return (bits & _TF32_MASK).view(np.float32)


# --- from float ----------------------------------------------------------------------------------------------


def to_bf16(a: Value) -> Value:
    """float32 -> uint16, to nearest, ties to even."""
    bits = a.view(np.uint32)
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(a), _NAN16, (bits + half >> np.uint32(16)).astype(np.uint16))[()]


def _to_tf32(half: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """float32 -> uint32; `half` is what to add to the bits before the low ones are cut."""

    def apply(a: Value) -> Value:
        bits = a.view(np.uint32)
        return np.where(np.isnan(a), _NAN32, (bits + half(bits)) & _TF32_MASK)[()]

    return apply


_tf32_away = _to_tf32(lambda bits: np.uint32(0x1000))  # ties away from zero
round_to_tf32 = _to_tf32(lambda bits: np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1)))


def _to_fp8(values: np.ndarray) -> Callable[[Value], Value]:
    """Float -> uint8, to nearest, ties to even, past the largest number to that number."""
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


_to_e4m3, _to_e5m2 = _to_fp8(E4M3), _to_fp8(E5M2)


def _to_f16(a: Value) -> Value:
    return a.astype(_F16).view(np.uint16)


def _packed(convert: Callable[[Value], Value], whole: type[np.unsignedinteger]) -> Callable[[Value, Value], Value]:
    """Two sources into one register, the first in its upper half."""
    bits = whole(4 * whole().itemsize)
    return lambda a, b: convert(a).astype(whole) << bits | convert(b).astype(whole)


def _unpacked(values: np.ndarray) -> Callable[[Value], Value]:
    """Two fp8 numbers in 16 bits -> two fp16 in 32; both formats fit."""
    halves = values.astype(_F16).view(np.uint16).astype(np.uint32)
    return lambda a: halves[a >> np.uint16(8)] << np.uint32(16) | halves[a & np.uint16(255)]


def _from_halves(convert: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Two fp16 numbers in 32 bits -> two fp8 in 16."""

    def apply(a: Value) -> Value:
        high, low = ((a >> np.uint32(shift)).astype(np.uint16).view(_F16) for shift in (16, 0))
        return _packed(convert, np.uint16)(high, low)

    return apply


_U8X2, _U32 = np.dtype(np.uint16), np.dtype(np.uint32)
# By the instruction's whole name.
CONVERSIONS: dict[str, Function] = {
    "cvt.rna.tf32.f32": Function((_F32,), _U32, _tf32_away),
    "cvt.rn.tf32.f32": Function((_F32,), _U32, round_to_tf32),
    "cvt.rn.bf16.f32": Function((_F32,), np.dtype(np.uint16), to_bf16),
    "cvt.f32.bf16": Function((np.dtype(np.uint16),), _F32, from_bf16),
    "cvt.rn.bf16x2.f32": Function((_F32, _F32), _U32, _packed(to_bf16, np.uint32)),
    "cvt.rn.f16x2.f32": Function((_F32, _F32), _U32, _packed(_to_f16, np.uint32)),
    "cvt.rn.satfinite.e4m3x2.f32": Function((_F32, _F32), _U8X2, _packed(_to_e4m3, np.uint16)),
    "cvt.rn.satfinite.e5m2x2.f32": Function((_F32, _F32), _U8X2, _packed(_to_e5m2, np.uint16)),
    "cvt.rn.satfinite.e4m3x2.f16x2": Function((_U32,), _U8X2, _from_halves(_to_e4m3)),
    "cvt.rn.satfinite.e5m2x2.f16x2": Function((_U32,), _U8X2, _from_halves(_to_e5m2)),
    "cvt.rn.f16x2.e4m3x2": Function((_U8X2,), _U32, _unpacked(E4M3)),
    "cvt.rn.f16x2.e5m2x2": Function((_U8X2,), _U32, _unpacked(E5M2)),
}
