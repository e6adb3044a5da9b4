"""Floating-point arithmetic in every format and rounding against the manual's definition, in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.ptx.harness import OpCase, check, covers, edge_values
from tests.ptx.ieee import divide, fma, from_bits, negative, square_root, to_bits
from tests.ptx.isa.test_narrow import nearest, size_of
from tests.ptx.isa.test_opcodes import extreme, floating

# --- roundings -----------------------------------------------------------------------------------------------


def product(a: float, b: float, kind: str, mode: str) -> int:
    return fma(a, b, -0.0 if negative(a) != negative(b) else 0.0, kind, mode)


def in_mode(kind: str, mode: str) -> list[OpCase]:
    return [
        floating(f"add.{mode}.{kind}", lambda a, b, k: fma(a, 1.0, b, k, mode), 2),
        floating(f"sub.{mode}.{kind}", lambda a, b, k: fma(b, -1.0, a, k, mode), 2),
        floating(f"mul.{mode}.{kind}", lambda a, b, k: product(a, b, k, mode), 2),
        floating(f"fma.{mode}.{kind}", lambda a, b, c, k: fma(a, b, c, k, mode), 3),
        floating(f"div.{mode}.{kind}", lambda a, b, k: divide(a, b, k, mode), 2),
        floating(f"rcp.{mode}.{kind}", lambda a, k: divide(1.0, a, k, mode), 1),
        floating(f"sqrt.{mode}.{kind}", lambda a, k: square_root(a, k, mode), 1),
    ]


def flushed(a: int) -> int:
    """A subnormal float32 as a zero of its sign."""
    return a & 0x80000000 if abs(from_bits(a, "f32")) < 2.0**-126 else a


def with_ftz(case: OpCase) -> OpCase:
    parts = case.instruction.split(".")
    name = ".".join([*parts[:-1], "ftz", parts[-1]])
    return OpCase(name, case.sources, case.result, lambda *v: flushed(case.reference(*map(flushed, v)) or 0), case.ulps)


def with_sat(case: OpCase) -> OpCase:
    def function(*sources: int) -> int:
        value = from_bits(case.reference(*sources) or 0, case.result)
        return to_bits(min(value, 1.0) if value > 0 else 0.0, case.result)

    parts = case.instruction.split(".")
    return OpCase(".".join([*parts[:-1], "sat", parts[-1]]), case.sources, case.result, function)


ROUNDED = [case for kind in ("f32", "f64") for mode in ("rz", "rm", "rp") for case in in_mode(kind, mode)]
PLAIN = [
    floating("add.rn.f32", lambda a, b, k: fma(a, 1.0, b, k), 2),
    floating("mul.rn.f32", lambda a, b, k: fma(a, b, -0.0, k), 2),
    floating("fma.rn.f32", fma, 3),
]
HALF = [
    floating("add.f16", lambda a, b, k: fma(a, 1.0, b, k), 2),
    floating("fma.rn.f16", fma, 3),
]
# --- bf16, and pairs -----------------------------------------------------------------------------------------


def value(code: int, kind: str) -> float:
    bits = 16
    size = size_of(code & (1 << bits - 1) - 1, kind)
    return math.copysign(float(size), -1.0 if code >> bits - 1 else 1.0)


def code_of(number: float | Fraction, kind: str, zero_negative: bool = False) -> int:
    if isinstance(number, Fraction) and number == 0:
        return 0x8000 if zero_negative else 0
    found = nearest(number, kind)
    return 0x7FFF if found is None else found


def bf16_fma(a: float, b: float, c: float) -> int:
    if not all(map(math.isfinite, (a, b, c))):
        return code_of(c if math.isfinite(a) and math.isfinite(b) else a * b + c, "bf16")
    signs = {negative(a) != negative(b), negative(c)}
    return code_of(Fraction(a) * Fraction(b) + Fraction(c), "bf16", signs == {True})


def of_bf16(instruction: str, function: Callable[..., int], sources: int) -> OpCase:
    values = tuple(to_bits(v, "f32") >> 16 for v in (0.0, -0.0, 1.0, -1.5, 3.0, 1e38, -3e38, 1e-38, 2e-40, math.inf))
    values += (0x7FC0, 0x3F81, 0xBF7F, 1, 0x8003)
    return OpCase(
        instruction,
        ("b16",) * sources,
        "b16",
        lambda *v: function(*(value(x, "bf16") for x in v)),
        values=dict.fromkeys(range(sources), values),
    )


def pair(instruction: str, half: Callable[..., int | None], sources: int) -> OpCase:
    """Each half by itself; a NaN is any, so that what has one is not compared."""

    def function(*words: int) -> int | None:
        halves = [half(*(word >> shift & 0xFFFF for word in words)) for shift in (0, 16)]
        if any(h is None or (h & 0x7FFF) > 0x7F80 - 0x400 * ("bf16" not in instruction) for h in halves):
            return None
        return halves[0] | halves[1] << 16 if halves[0] is not None and halves[1] is not None else None

    values = (0x3C00C000, 0xBE003555, 0x00010000, 0x7BFF3C01, 0x80000000, 0x42483E00)
    return OpCase(instruction, ("b32",) * sources, "b32", function, values=dict.fromkeys(range(sources), values))


def half(function: Callable[..., int]) -> Callable[..., int]:
    return lambda *codes: function(*(from_bits(code, "f16") for code in codes), "f16")


BF16 = [
    of_bf16("add.rn.bf16", lambda a, b: bf16_fma(a, 1.0, b), 2),
    of_bf16("sub.rn.bf16", lambda a, b: bf16_fma(b, -1.0, a), 2),
    of_bf16("mul.rn.bf16", lambda a, b: bf16_fma(a, b, -0.0), 2),
    of_bf16("fma.rn.bf16", bf16_fma, 3),
    OpCase("neg.bf16", ("b16",), "b16", lambda a: a ^ 0x8000),
    OpCase("abs.bf16", ("b16",), "b16", lambda a: a & 0x7FFF),
]
PAIRS = [
    pair("add.f16x2", half(lambda a, b, k: fma(a, 1.0, b, k)), 2),
    pair("sub.f16x2", half(lambda a, b, k: fma(b, -1.0, a, k)), 2),
    pair("mul.f16x2", half(lambda a, b, k: fma(a, b, -0.0, k)), 2),
    pair("fma.rn.f16x2", half(fma), 3),
    pair("min.f16x2", extreme("f16", False, False), 2),
    pair("max.NaN.f16x2", extreme("f16", True, True), 2),
    pair("neg.f16x2", lambda a: a ^ 0x8000, 1),
    pair("fma.rn.bf16x2", lambda *v: bf16_fma(*(value(x, "bf16") for x in v)), 3),
    pair("mul.bf16x2", lambda *v: bf16_fma(*(value(x, "bf16") for x in v), -0.0), 2),
]
# --- what is approximate, tests and signs -------------------------------------------------------------------


def function_of(apply: Callable[[float], float]) -> Callable[[float, str], int | None]:
    def function(x: float, kind: str) -> int | None:
        if not math.isfinite(x):
            return None
        try:
            return to_bits(apply(x), kind)
        except (ValueError, OverflowError):
            return None

    return function


MODERATE = {0: tuple(to_bits(x, "f32") for x in (0.0, 0.1, -0.5, 1.0, 2.5, -3.0, 0.001))}
OTHERS = [
    *(
        floating(f"{name}.approx.f32", function_of(apply), 1, ulps=1, values=MODERATE)
        for name, apply in (("sin", math.sin), ("cos", math.cos), ("tanh", math.tanh))
    ),
    floating("lg2.approx.f32", function_of(math.log2), 1, ulps=1),
    floating("copysign.f32", lambda a, b, k: to_bits(math.copysign(b, a), k), 2),
    floating("copysign.f64", lambda a, b, k: to_bits(math.copysign(b, a), k), 2),
    *(
        OpCase(f"testp.{name}.f32", ("f32",), "pred", lambda a, t=test: int(t(from_bits(a, "f32"))))
        for name, test in (
            ("finite", math.isfinite),
            ("infinite", math.isinf),
            ("number", lambda x: not math.isnan(x)),
            ("notanumber", math.isnan),
            ("normal", lambda x: math.isfinite(x) and abs(x) >= 2.0**-126),
            ("subnormal", lambda x: 0 < abs(x) < 2.0**-126),
        )
    ),
]
CASES = ROUNDED + [with_ftz(c) for c in PLAIN] + [with_sat(c) for c in PLAIN + HALF] + HALF + BF16 + PAIRS + OTHERS
CASES += [floating("fma.rn.f64", fma, 3)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_floats_are_rounded_once(case):
    check(case)


COMPARED = [
    OpCase(
        "set.lt.u32.f32", ("f32", "f32"), "b32", lambda a, b: 0xFFFFFFFF * (from_bits(a, "f32") < from_bits(b, "f32"))
    ),
    OpCase("set.ge.f32.s32", ("s32", "s32"), "b32", lambda a, b: 0x3F800000 * ((a ^ 1 << 31) >= (b ^ 1 << 31))),
    OpCase("set.eq.f16.f16", ("f16", "f16"), "b16", lambda a, b: 0x3C00 * (from_bits(a, "f16") == from_bits(b, "f16"))),
    OpCase(
        "set.gtu.bf16.bf16", ("b16", "b16"), "b16", lambda a, b: 0x3F80 * (not value(a, "bf16") <= value(b, "bf16"))
    ),
]


@covers("set")
@pytest.mark.parametrize("case", COMPARED, ids=str)
def test_a_comparison_that_gives_a_value(case):
    check(case)


def test_edge_values_have_both_zeros():
    assert {0, 1 << 31} <= set(edge_values("f32"))
