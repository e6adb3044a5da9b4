"""`cvt`: conversion between types, with its rounding and saturation (PTX ISA, section 9.7.9.21)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.context import Execute
from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.isa.arithmetic import Function, execution
from gemm_ref.ptx.text.dtypes import DTYPES, Value, is_float
from gemm_ref.ptx.text.errors import Unsupported
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.ptx.units.formats import (
    E4M3,
    E5M2,
    from_bf16,
    round_to_tf32,
    round_to_tf32_away,
    to_bf16,
    to_e4m3,
    to_e5m2,
)

_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def cvt(decoder: Decoder, instruction: Instruction) -> Execute:
    """`cvt`: between integers and floats with their roundings and `.sat`; to and from tf32, bf16, f16x2, e4m3, e5m2."""
    return execution(decoder, instruction, _ALTERNATE.get(instruction.name) or _conversion(instruction.parts))


def _conversion(parts: list[str]) -> Function:
    if len(parts) < 3 or parts[-2] not in DTYPES or parts[-1] not in DTYPES:
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
    to, source = DTYPES[parts[-2]], DTYPES[parts[-1]]
    modifiers = set(parts[1:-2])
    rounding = modifiers & set(_TO_INTEGER)
    unknown = modifiers - rounding - {"rn", "sat"}
    if unknown:
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)} (modifier {', '.join(sorted(unknown))})")
    if is_float(source) and (rounding or not is_float(to)):
        if not rounding:
            raise Unsupported(f"{'.'.join(parts)} needs a rounding to an integer such as .rzi")
        if is_float(to) and "sat" in modifiers:
            raise Unsupported(f"the reference GPU has no {'.'.join(parts)}")
        return Function((source,), to, _float_to_integral(source, to, _TO_INTEGER[rounding.pop()]))
    if "sat" in modifiers:
        return Function((source,), to, _saturating(to))
    return Function((source,), to, lambda a: a.astype(to))


def _float_to_integral(source: np.dtype, to: np.dtype, rounded: np.ufunc) -> Callable[[Value], Value]:
    if is_float(to):
        return lambda a: rounded(a).astype(to)
    limits = np.iinfo(to)
    # the manual: NaN gives zero, but the top bit alone where one side has 64 bits
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
    if is_float(to):
        return lambda a: np.nan_to_num(np.clip(a, 0, 1), nan=0.0).astype(to)
    limits = np.iinfo(to)

    def apply(a: Value) -> Value:
        source = np.iinfo(a.dtype)
        return np.clip(a, max(limits.min, source.min), min(limits.max, source.max)).astype(to)

    return apply


# --- alternate formats ---------------------------------------------------------------------------------------

_F16, _F32 = DTYPES["f16"], DTYPES["f32"]


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
_ALTERNATE: dict[str, Function] = {
    "cvt.rna.tf32.f32": Function((_F32,), _U32, round_to_tf32_away),
    "cvt.rn.tf32.f32": Function((_F32,), _U32, round_to_tf32),
    "cvt.rn.bf16.f32": Function((_F32,), np.dtype(np.uint16), to_bf16),
    "cvt.f32.bf16": Function((np.dtype(np.uint16),), _F32, from_bf16),
    "cvt.rn.bf16x2.f32": Function((_F32, _F32), _U32, _packed(to_bf16, np.uint32)),
    "cvt.rn.f16x2.f32": Function((_F32, _F32), _U32, _packed(_to_f16, np.uint32)),
    "cvt.rn.satfinite.e4m3x2.f32": Function((_F32, _F32), _U8X2, _packed(to_e4m3, np.uint16)),
    "cvt.rn.satfinite.e5m2x2.f32": Function((_F32, _F32), _U8X2, _packed(to_e5m2, np.uint16)),
    "cvt.rn.satfinite.e4m3x2.f16x2": Function((_U32,), _U8X2, _from_halves(to_e4m3)),
    "cvt.rn.satfinite.e5m2x2.f16x2": Function((_U32,), _U8X2, _from_halves(to_e5m2)),
    "cvt.rn.f16x2.e4m3x2": Function((_U8X2,), _U32, _unpacked(E4M3)),
    "cvt.rn.f16x2.e5m2x2": Function((_U8X2,), _U32, _unpacked(E5M2)),
}
