"""`cvt`: conversion between types, with its rounding and saturation (PTX ISA, section 9.7.9.21)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.isa.arithmetic import BUILDERS, Function
from gemm_ref.ptx.isa.narrow import CONVERSIONS
from gemm_ref.ptx.text.dtypes import DTYPES, Value, is_float
from gemm_ref.ptx.text.errors import Unsupported

_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _cvt(parts: list[str]) -> Function:
    if exact := CONVERSIONS.get(".".join(parts)):
        return exact
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


BUILDERS["cvt"] = _cvt
