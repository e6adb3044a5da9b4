"""Floating-point instructions of every format and rounding against the PTX manual's definition, bit for bit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.ptx.harness import OpCase, check, on_numbers
from tests.ptx.ieee import add, decode, divide, encode, fma, is_negative, multiply, square_root, width


def name_of(opcode: str, *modifiers: str) -> str:
    return ".".join(part for part in (opcode, *modifiers) if part)


def of_numbers(name: str, function: Callable[..., int | None], count: int, **more) -> OpCase:
    """Returns an instruction of one floating-point format; the function takes numbers and the format, gives a code."""
    kind = name.rpartition(".")[2]
    return on_numbers(name, (kind,) * count, kind, lambda *numbers: function(*numbers, kind), **more)


def in_pairs(case: OpCase) -> OpCase:
    """Returns the same instruction of two halves, each by itself."""
    pair = case.result + "x2"

    def reference(*words: int) -> int | None:
        low, high = (case.reference(*(word >> shift & 0xFFFF for word in words)) for shift in (0, 16))
        return None if low is None or high is None else low | high << 16

    return OpCase(name_of(case.instruction.rpartition(".")[0], pair), (pair,) * len(case.sources), pair, reference)


# --- floating-point arithmetic -------------------------------------------------------------------------------

ARITHMETIC: dict[str, tuple[Callable[..., int], int]] = {
    "add": (add, 2), "sub": (lambda a, b, *how: fma(b, -1.0, a, *how), 2), "mul": (multiply, 2), "fma": (fma, 3),
    "mad": (fma, 3), "div": (divide, 2), "rcp": (lambda a, *how: divide(1.0, a, *how), 1), "sqrt": (square_root, 1),
}  # fmt: skip


def rounded(opcode: str, mode: str, kind: str, modifier: str = "", shown: str = "", **more) -> OpCase:
    """Returns an instruction of ARITHMETIC in a rounding mode; shown: how its name spells the mode, if otherwise."""
    function, count = ARITHMETIC[opcode]
    name = name_of(opcode, shown or mode, modifier, kind).replace(".implied", "")
    case = of_numbers(name, lambda *numbers: function(*numbers, mode), count, **more)
    return CHANGES[modifier](case) if modifier else case


def flushed(code: int, kind: str) -> int:
    """Returns a subnormal number's code as that of a zero of its sign."""
    return encode(decode(code, kind) * 0.0, kind) if abs(decode(code, kind)) < 2.0**-126 else code


def flush(case: OpCase) -> OpCase:
    def reference(*codes: int) -> int | None:
        found = case.reference(*(flushed(code, case.result) for code in codes))
        return None if found is None else flushed(found, case.result)

    return OpCase(case.instruction, case.sources, case.result, reference, case.ulps)


def saturate(case: OpCase) -> OpCase:
    def reference(*codes: int) -> int:
        value = decode(case.reference(*codes) or 0, case.result)
        return encode(min(value, 1.0) if value > 0 else 0.0, case.result)  # NaN is +0

    return OpCase(case.instruction, case.sources, case.result, reference)


def rectify(case: OpCase) -> OpCase:
    def reference(*codes: int) -> int | None:
        found = case.reference(*codes) or 0
        value = decode(found, case.result)
        return 0 if value < 0 else None if value == 0 else found  # the manual does not say which zero

    return OpCase(case.instruction, case.sources, case.result, reference)


CHANGES = {"ftz": flush, "sat": saturate, "relu": rectify}
# Products whose sum with c is so near the middle of two float32 values that rounding twice gives the wrong one.
HALFWAY = {
    0: (0x3F800001, 0x3FFFFFFF, 0x3F800000, 0x00800000, 0x00800001, 0x1F800001, 0x7F7FFFFF, 0xBF800001),
    1: (0x3F800001, 0x3F7FFFFF, 0x33800000, 0x3F000000, 0x3F000001, 0x1F800001, 0x3FFFFFFF, 0xBF800001),
    2: (0x3F800000, 0x3F800001, 0x33800001, 0x00000001, 0x80000001, 0x24800000, 0x4B800001, 0x7F7FFFFF, 0xB3800000),
}
HALVES = [
    *(rounded(opcode, "rn", kind, shown="implied") for opcode in ("add", "sub", "mul") for kind in ("f16", "bf16")),
    *(rounded(opcode, "rn", "bf16") for opcode in ("add", "sub", "mul")),
    *(rounded("fma", "rn", kind, modifier) for kind in ("f16", "bf16") for modifier in ("", "relu")),
    *(rounded(opcode, "rn", "f16", "sat") for opcode in ("add", "fma")),
]
ROUNDED = [
    *(
        rounded(opcode, mode, kind)
        for opcode in ARITHMETIC
        for mode in ("rn", "rz", "rm", "rp")
        for kind in ("f32", "f64")
    ),
    *(rounded(opcode, "rn", "f32", change) for opcode in ("add", "mul", "fma") for change in ("ftz", "sat")),
    *(rounded(opcode, "rn", kind, shown="implied") for opcode in ("add", "sub", "mul") for kind in ("f32", "f64")),
    rounded("fma", "rn", "f32", values=HALFWAY),
    *HALVES,
    *map(in_pairs, HALVES),
    # The manual bounds the error of approximate instructions by 2 ulp or less; the machine rounds to nearest.
    *(rounded(opcode, "rn", "f32", shown="approx", ulps=2) for opcode in ("div", "rcp", "sqrt")),
    rounded("div", "rn", "f32", shown="full", ulps=2),
    *(rounded(opcode, "rn", "f32", "ftz", shown="approx", ulps=1) for opcode in ("rcp", "sqrt")),
]


def reciprocal_root(x: float, kind: str) -> int:
    if x == 0 or not x > 0:
        return encode(math.copysign(math.inf, x) if x == 0 else math.nan, kind)
    return encode(1 / Fraction(math.sqrt(x)) if x < math.inf else 0.0, kind)


def power_of_two(x: float, kind: str) -> int:
    if math.isnan(x) or abs(x) > 1024:
        return encode(x if math.isnan(x) else math.inf if x > 0 else 0.0, kind)
    return encode(Fraction(2.0 ** (x - math.floor(x))) * Fraction(2) ** math.floor(x), kind)


def function_of(apply: Callable[[float], float]) -> Callable[[float, str], int | None]:
    def function(x: float, kind: str) -> int | None:
        try:
            return encode(apply(x), kind) if math.isfinite(x) else None
        except (ValueError, OverflowError):
            return None

    return function


def extreme(kind: str, takes_max: bool, modifier: str) -> Callable[[int, int], int]:
    def function(x: int, y: int) -> int:
        a, b = decode(x, kind), decode(y, kind)
        signs = (x ^ y) >> width(kind) - 1 if modifier == "xorsign.abs" else 0
        if modifier == "xorsign.abs":
            a, b = abs(a), abs(b)
        if math.isnan(a) or math.isnan(b):
            keeps_nan = modifier == "NaN" or (math.isnan(a) and math.isnan(b))
            return encode(math.nan if keeps_nan else b if math.isnan(a) else a, kind) | signs << width(kind) - 1
        low, high = sorted((a, b), key=lambda value: (value, not is_negative(value)))  # -0 is below +0
        return encode(high if takes_max else low, kind) | signs << width(kind) - 1

    return function


def of_signs(opcode: str, kind: str) -> OpCase:
    top = 1 << width(kind) - 1
    change = {"abs": lambda a: a & ~top, "neg": lambda a: a ^ top}[opcode]
    return OpCase(f"{opcode}.{kind}", (kind,), kind, change)


def classified(name: str, test: Callable[[float], bool]) -> OpCase:
    return OpCase(f"testp.{name}.f32", ("f32",), "pred", lambda a: int(test(decode(a, "f32"))))


MODERATE = {0: tuple(encode(x, "f32") for x in (0.0, 0.1, -0.5, 1.0, 2.5, -3.0, 0.001))}
HALF_SIGNS = [of_signs(opcode, kind) for opcode in ("abs", "neg") for kind in ("f16", "bf16")]
HALF_EXTREMES = [
    OpCase(name_of(opcode, modifier, kind), (kind, kind), kind, extreme(kind, opcode == "max", modifier))
    for opcode, modifier, kind in itertools.product(("min", "max"), ("", "NaN", "xorsign.abs"), ("f16", "bf16"))
]
CASES = [
    *ROUNDED,
    of_numbers("rsqrt.approx.f32", reciprocal_root, 1, ulps=2),
    *(of_numbers(f"ex2.approx.{kind}", power_of_two, 1, ulps=2) for kind in ("f32", "f16", "bf16")),
    flush(of_numbers("ex2.approx.ftz.f32", power_of_two, 1, ulps=2)),
    flush(of_numbers("rsqrt.approx.ftz.f32", reciprocal_root, 1, ulps=2)),
    of_numbers("lg2.approx.f32", function_of(math.log2), 1, ulps=1),
    flush(of_numbers("lg2.approx.ftz.f32", function_of(math.log2), 1, ulps=1)),
    *(of_numbers(f"tanh.approx.{kind}", function_of(math.tanh), 1, ulps=1) for kind in ("f16", "bf16")),
    *(
        of_numbers(f"{name}.approx.f32", function_of(getattr(math, name)), 1, ulps=1, values=MODERATE)
        for name in ("sin", "cos", "tanh")
    ),
    *(of_numbers(f"copysign.{k}", lambda a, b, k: encode(math.copysign(b, a), k), 2) for k in ("f32", "f64")),
    *(of_signs(opcode, kind) for opcode in ("abs", "neg") for kind in ("f32", "f64")),
    *(
        OpCase(name_of(opcode, modifier, kind), (kind, kind), kind, extreme(kind, opcode == "max", modifier))
        for opcode, modifier, kind in itertools.product(("min", "max"), ("", "NaN"), ("f32", "f64"))
    ),
    *HALF_SIGNS,
    *HALF_EXTREMES,
    *map(in_pairs, HALF_SIGNS + HALF_EXTREMES),
    *(
        classified(*pair)
        for pair in (
            ("finite", math.isfinite),
            ("infinite", math.isinf),
            ("number", lambda x: not math.isnan(x)),
            ("notanumber", math.isnan),
            ("normal", lambda x: math.isfinite(x) and abs(x) >= 2.0**-126),
            ("subnormal", lambda x: 0 < abs(x) < 2.0**-126),
        )
    ),
]


@pytest.mark.parametrize("opcode", dict.fromkeys(case.opcode for case in CASES))
def test_an_instruction_computes_what_the_manual_says(opcode):
    check([case for case in CASES if case.opcode == opcode])
