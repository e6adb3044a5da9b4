"""Floating-point instructions: PTX ISA, 9.7.3 to 9.7.5, of f16, bf16, f32, f64, and pairs of halves.

One table holds the modifiers of each opcode and format. A pair is two numbers in one register: an operation on single
numbers is applied to the halves of all lanes at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.isa.numbers.rounding import MODES, NEAREST, fma32, fma64, narrow, odd_sum, round_once, widen
from gemm_ref.ptx.text.dtypes import ALTERNATE, DTYPES, PAIRS, UNSIGNED, Value
from gemm_ref.ptx.text.errors import Unsupported

KINDS = {"f16": DTYPES["f16"], "f32": DTYPES["f32"], "f64": DTYPES["f64"], **ALTERNATE}
_ROUNDINGS, _NONE = frozenset(MODES), frozenset[str]()
_HALF = {"f16": frozenset({"rn", "ftz", "sat"}), "bf16": frozenset({"rn"})}
_ALL: dict[str, frozenset[str]] = {"f32": _ROUNDINGS | {"ftz", "sat"}, "f64": _ROUNDINGS}
_APPROX = frozenset({"approx", "ftz"})
_EXTREME = frozenset({"NaN", "xorsign", "abs"})
# By opcode and format: the known modifiers.
MODIFIERS: dict[str, dict[str, frozenset[str]]] = {
    **dict.fromkeys(("add", "sub", "mul"), _ALL | _HALF),
    "fma": _ALL | {"f16": _HALF["f16"] | {"relu"}, "bf16": _HALF["bf16"] | {"relu"}},
    "mad": _ALL,
    "div": {"f32": _ROUNDINGS | _APPROX | {"full"}, "f64": _ROUNDINGS},
    **dict.fromkeys(("rcp", "sqrt"), {"f32": _ROUNDINGS | _APPROX, "f64": _ROUNDINGS | _APPROX}),
    "rsqrt": {"f32": _APPROX, "f64": _APPROX},
    **dict.fromkeys(("lg2", "sin", "cos"), {"f32": _APPROX}),
    "ex2": {"f32": _APPROX, "f16": _APPROX, "bf16": _APPROX},
    "tanh": {"f32": _APPROX, "f16": _APPROX, "bf16": _APPROX},
    **dict.fromkeys(
        ("abs", "neg"), {"f32": frozenset({"ftz"}), "f64": _NONE, "f16": frozenset({"ftz"}), "bf16": _NONE}
    ),
    **dict.fromkeys(
        ("min", "max"),
        {"f32": _EXTREME | {"ftz"}, "f64": frozenset({"NaN"}), "f16": _EXTREME | {"ftz"}, "bf16": _EXTREME},
    ),
    "copysign": {"f32": _NONE, "f64": _NONE},
}
_OPERANDS = {"fma": 3, "mad": 3} | dict.fromkeys(("add", "sub", "mul", "div", "min", "max", "copysign"), 2)


def operation(parts: list[str]) -> tuple[int, np.dtype, Callable[..., Value]]:
    """Return the number and the type of an instruction's sources, and its function.

    Raises Unsupported for an unknown form.
    """
    opcode, kind = parts[0], parts[-1]
    single = PAIRS.get(kind, kind)
    allowed = MODIFIERS.get(opcode, {}).get(single)
    unknown = set(parts[1:-1]) - (allowed or _NONE)
    if allowed is None or unknown:
        which = f" (modifier {', '.join(sorted(unknown))})" if allowed is not None else ""
        raise Unsupported(f"the reference GPU has no {'.'.join(parts)}{which}")
    mode = next((part for part in parts if part in MODES), "rn")
    apply = _with_modifiers(_unmodified(opcode, single, mode, frozenset(parts[1:-1])), single, frozenset(parts[1:-1]))
    return _OPERANDS.get(opcode, 1), KINDS[kind], _apply_to_halves(apply) if kind in PAIRS else apply


def _apply_to_halves(apply: Callable[..., Value]) -> Callable[..., Value]:
    """Return what applies a function to both halves of 32-bit words."""

    def pairs(*words: Value) -> Value:
        every = np.broadcast_arrays(*(np.atleast_1d(word) for word in words))
        result = apply(*(np.ascontiguousarray(word).view(np.uint16) for word in every)).view(np.uint32)
        return result if any(word.ndim for word in words) else result[0]

    return pairs


def _with_modifiers(apply: Callable[..., Value], kind: str, modifiers: frozenset[str]) -> Callable[..., Value]:
    """Return an operation with `.ftz`, `.sat` and `.relu`, which reads halves as float16."""
    changes: list[Callable[[Value], Value]] = []
    if "ftz" in modifiers and kind != "bf16":  # bf16 has fp32's range
        changes.append(flush_subnormals)
    if "sat" in modifiers:
        changes.append(lambda x: np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))[()])  # NaN is +0
    if "relu" in modifiers:
        changes.append(functools.partial(relu, kind=kind))
    halves = kind == "f16"
    if not changes and not halves:
        return apply
    flush = flush_subnormals in changes

    def changed(*sources: Value) -> Value:
        numbers = [source.view(np.float16) if halves else source for source in sources]
        result = apply(*(map(flush_subnormals, numbers) if flush else numbers))
        for change in changes:
            result = change(result)
        return result

    return changed


def flush_subnormals(x: Value) -> Value:
    """Replace subnormal numbers by zeros of their sign (`.ftz`)."""
    return np.where(np.abs(x) < np.finfo(x.dtype).smallest_normal, x * x.dtype.type(0), x)[()]


def relu(x: Value, kind: str) -> Value:
    """Replace negative numbers by zero (`.relu`)."""
    negative = x >= 0x8000 if kind == "bf16" else x < 0
    return np.where(negative & ~np.isnan(widen(x, kind)), x.dtype.type(0), x)[()]


def _unmodified(opcode: str, kind: str, mode: str, modifiers: frozenset[str]) -> Callable[..., Value]:
    """Return the operation without `.ftz`, `.sat` and `.relu`; bf16 is uint16."""
    if opcode in _SIGNS:
        bits = UNSIGNED[KINDS[kind].itemsize]
        return lambda *sources: _SIGNS[opcode](*(source.view(bits) for source in sources)).view(KINDS[kind])
    if opcode in ("min", "max"):
        return _extreme(opcode, kind, modifiers)
    if opcode in _FUNCTIONS:  # approximate on a GPU: here the exact value, rounded to nearest
        return lambda a: narrow_to(_FUNCTIONS[opcode](widen(a, kind)), kind)
    opcode = "fma" if opcode == "mad" else opcode
    if opcode in ("add", "sub", "mul", "fma") and (kind == "bf16" or (kind != "f64" and mode != "rn")):
        down = {"down": True} if mode == "rm" and opcode != "mul" else {}
        return lambda *sources: narrow(_WIDE[opcode](*(widen(source, kind) for source in sources), **down), kind, mode)
    if mode != "rn":
        return round_once(opcode, kind, mode)
    if opcode == "fma" and kind == "f16":
        return lambda a, b, c: narrow(odd_sum(widen(a, kind) * widen(b, kind), widen(c, kind)), kind)
    if opcode == "fma":
        return fma32 if kind == "f32" else fma64
    return NEAREST[opcode]


def narrow_to(x: Value, kind: str, mode: str = "rn") -> Value:
    """Round float64 to any format."""
    return x if kind == "f64" else narrow(x, kind, mode)


# In float64, from numbers of at most 24 bits: products are exact.
_WIDE: dict[str, Callable[..., Value]] = {
    "add": odd_sum,
    "sub": lambda a, b, **down: odd_sum(a, -b, **down),
    "mul": np.multiply,
    "fma": lambda a, b, c, **down: odd_sum(a * b, c, **down),
}
# The manual's bounds of a GPU's error (PTX ISA 9.1), relative to the result where nothing else is said: `rsqrt`
# 2^-22.9 (f64 2^-20), `ex2` 2 ulp (f16 2^-9.9, bf16 2^-7), `lg2` 2^-22 (absolute between 1/2 and 2), `tanh` 2^-11 (f16
# 2^-10.987 and bf16 2^-8, absolute), `sin` and `cos` 2^-20.5 absolute between -2 pi and 2 pi, and 2^-14.7 between
# -100 pi and 100 pi. `rcp` is near to 1 ulp, `sqrt` to 2^-23 and `div` to 2 ulp, and here they are as `.rn`.
_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def _sign(bits: Value) -> Value:
    return bits.dtype.type(1 << 8 * bits.dtype.itemsize - 1)


# On bits: instructions that only change signs, also of NaN.
_SIGNS: dict[str, Callable[..., Value]] = {
    "abs": lambda a: a & ~_sign(a),
    "neg": lambda a: a ^ _sign(a),
    "copysign": lambda a, b: (a & _sign(a)) | (b & ~_sign(a)),  # the sign of a
}


def _extreme(opcode: str, kind: str, modifiers: frozenset[str]) -> Callable[[Value, Value], Value]:
    """`min` and `max`: -0 is below +0; a NaN loses against a number, or wins with `.NaN`; `.xorsign.abs` of sizes."""
    smaller, bits = opcode == "min", UNSIGNED[KINDS[kind].itemsize]
    choose: np.ufunc
    if "NaN" in modifiers:
        choose = np.minimum if smaller else np.maximum
    else:
        choose = np.fmin if smaller else np.fmax
    zero_sign = np.bitwise_or if smaller else np.bitwise_and

    def apply(a: Value, b: Value) -> Value:
        x, y = a.view(bits), b.view(bits)
        signs = (x ^ y) & _sign(x)
        if "xorsign" in modifiers:
            x, y = x & ~_sign(x), y & ~_sign(y)
        numbers = [value.view(KINDS[kind]) if kind != "bf16" else widen(value, kind) for value in (x, y)]
        chosen = choose(*numbers)
        found = (narrow(chosen, kind) if kind == "bf16" else chosen).view(bits)
        # a comparison does not see the signs of zeros: of two equal numbers take it by their bits
        found = np.where(numbers[0] == numbers[1], zero_sign(x, y), found)
        found = np.where(np.isnan(chosen), found, found | signs) if "xorsign" in modifiers else found
        return found.view(KINDS[kind])[()]

    return apply
