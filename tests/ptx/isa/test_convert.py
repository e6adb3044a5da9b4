"""`cvt`, `set`, `setp`, `mov`, `cvta` and `createpolicy` against the PTX manual and the formats' definitions."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from fractions import Fraction

import pytest

from tests.ptx.harness import OpCase, check, edge_values, evaluate, on_numbers
from tests.ptx.ieee import FORMATS, ROUND, decode, encode, number, width

MODES = ("rn", "rz", "rm", "rp")
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "f32", "f64")


def limits(kind: str) -> tuple[int, int]:
    half = 1 << width(kind) - 1
    return (-half, half - 1) if kind[0] == "s" else (0, 2 * half - 1)


def clamp(value: int, kind: str) -> int:
    return min(max(value, limits(kind)[0]), limits(kind)[1])


def register_of(kind: str) -> str:
    """Returns the type of the narrowest register that holds a type."""
    return f"b{max(16, width(kind))}"


# --- between integers and floats -----------------------------------------------------------------------------


def between_integers(to: str, source: str, saturates: bool) -> OpCase:
    """Returns the conversion, whose result fills its register with its own sign."""
    name = f"cvt{'.sat' if saturates else ''}.{to}.{source}"
    return on_numbers(name, (source,), register_of(to), lambda a: number(clamp(a, to) if saturates else a, to))


def to_integer(to: str, source: str, mode: str) -> OpCase:
    def function(a: float) -> int:
        if math.isnan(a):
            return number(1 << width(to) - 1 if "64" in to + source else 0, to)
        return limits(to)[a > 0] if math.isinf(a) else clamp(ROUND[mode](Fraction(a)), to)

    edges = [2.0**n + d for n in (0, 7, 8, 15, 16, 31, 32, 63, 64) for d in (-1.5, -1, -0.5, 0, 0.5, 1)]
    values = {0: (*edge_values(source), *(encode(s * v, source) for v in edges for s in (1, -1)))}
    return on_numbers(f"cvt.{mode}i.{to}.{source}", (source,), register_of(to), function, values=values)


def from_integer(to: str, source: str, mode: str) -> OpCase:
    return on_numbers(f"cvt.{mode}.{to}.{source}", (source,), to, lambda a: encode(Fraction(a), to, mode))


def between_floats(to: str, source: str, mode: str) -> OpCase:
    name = f"cvt.{mode}.{to}.{source}" if width(to) < width(source) else f"cvt.{to}.{source}"
    ties = (0x3FF0000010000000, 0x3FF0000030000000, 0x3FF0000010000001, 0x380FFFFFF0000000, 0x47EFFFFFF0000000)
    values = {0: edge_values(source) + (ties if source == "f64" else ())}
    return on_numbers(name, (source,), to, lambda a: encode(a, to, mode), values=values)


def to_integral(kind: str, mode: str) -> OpCase:
    def function(a: float) -> int:
        return encode(math.copysign(ROUND[mode](Fraction(a)), a) if math.isfinite(a) else a, kind)

    return on_numbers(f"cvt.{mode}i.{kind}.{kind}", (kind,), kind, function)


def saturated(a: float) -> int | None:
    if a == 0 and math.copysign(1, a) < 0:
        return None  # the manual does not say its sign
    return encode(0.0 if math.isnan(a) else min(max(a, 0.0), 1.0), "f32")


def flushed(a: float) -> float:
    """Returns zero of the same sign for a subnormal number of fp32."""
    return math.copysign(0.0, a) if abs(a) < 2.0**-126 else a


def rounded_and_flushed(a: float) -> int | None:
    found = flushed(decode(encode(a, "f32"), "f32"))
    return None if abs(a) < 2.0**-126 and found else encode(found, "f32")  # the manual does not say which comes first


WIDE = [
    *(between_integers(*case) for case in itertools.product(INTEGERS, INTEGERS, (False, True))),
    *(to_integer(*case) for case in itertools.product(INTEGERS, (*FLOATS, "bf16"), MODES)),
    *(from_integer(*case) for case in itertools.product((*FLOATS, "bf16"), INTEGERS, MODES)),
    *(between_floats(*kinds, mode) for kinds in itertools.permutations(FLOATS, 2) for mode in MODES),
    *(to_integral(kind, mode) for kind in FLOATS for mode in MODES),
    on_numbers("cvt.sat.f32.f32", ("f32",), "f32", saturated),
    on_numbers("cvt.ftz.f64.f32", ("f32",), "f64", lambda a: encode(flushed(a), "f64")),
    on_numbers("cvt.rn.ftz.f32.f64", ("f64",), "f32", rounded_and_flushed),
]

# --- to and from narrow formats ------------------------------------------------------------------------------


def _ties(kind: str) -> tuple[int, ...]:
    """Returns numbers of a format, half-way points between neighbours, and a little beside those, as fp32."""
    top = FORMATS[kind].largest
    found = []
    for code in sorted({0, 1, 2, 3, 7, 8, 9, top // 3, top // 2, top // 2 + 1, *range(top - 3, top + 1)}):
        unread = FORMATS[kind].unread_bits
        here, there = (Fraction(decode(each << unread, kind)) for each in (code, min(code + 1, top)))
        middle = (here + there) / 2 if code < top else here * Fraction(17, 16)
        found += [encode(here, "f32"), encode(middle, "f32")]
    beside = [bits + off for bits in found for off in (-1, 0, 1) if bits + off >= 0]
    return tuple(dict.fromkeys(bits | sign for bits in beside for sign in (0, 1 << 31)))


def narrowed(to: str, mode: str) -> OpCase:
    values = {0: edge_values("f32") + _ties(to)}
    return on_numbers(f"cvt.{mode}.{to}.f32", ("f32",), register_of(to), lambda a: encode(a, to, mode), values=values)


def narrowed_pair(to: str, mode: str = "rn", satfinite: bool = False) -> OpCase:
    """Returns the conversion of two numbers, of which the first goes into the upper half."""

    def function(*numbers: float) -> int:
        high, low = (encode(a, to, mode, clamp=satfinite) for a in numbers)
        return high << width(to) | low

    values = dict.fromkeys((0, 1), edge_values("f32") + _ties(to)[::3])
    result = "f16x2" if to == "f16" else f"b{2 * width(to)}"  # NumPy keeps a NaN's payload
    name = f"cvt.{mode}{'.satfinite' if satfinite else ''}.{to}x2.f32"
    return on_numbers(name, ("f32", "f32"), result, function, values=values)


NARROW = [
    *(narrowed("bf16", mode) for mode in ("rn", "rz")),
    *(narrowed("tf32", mode) for mode in ("rna", "rn", "rz")),
    *(narrowed_pair(to, mode) for to in ("f16", "bf16") for mode in ("rn", "rz")),
    *(narrowed_pair(to, satfinite=True) for to in ("f16", "bf16", "e4m3", "e5m2")),
    OpCase("cvt.f32.bf16", ("b16",), "f32", lambda a: a << 16),
]


@pytest.mark.parametrize("result", dict.fromkeys(case.instruction.split(".")[-2] for case in WIDE + NARROW))
def test_a_conversion_rounds_and_clamps_as_the_manual_says(result):
    check([case for case in WIDE + NARROW if case.instruction.split(".")[-2] == result])


def test_a_conversion_reads_the_low_part_of_a_wide_register():
    found = evaluate(
        "cvt.s32.s8 %d, %a; cvt.u32.u16 %e, %a;", {"a": ("b32", [0x12348, 0xABCDEF80])}, {"d": "b32", "e": "b32"}
    )
    assert found == {"d": [0x48, 0xFFFFFF80], "e": [0x2348, 0xEF80]}


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_every_pair_of_fp8_is_two_fp16_and_back(kind):
    codes = [code | (255 - code) << 8 for code in range(256)]
    code = f"cvt.rn.f16x2.{kind}x2 %d, %a; cvt.rn.satfinite.{kind}x2.f16x2 %e, %d;"
    found = evaluate(code, {"a": ("b16", codes)}, {"d": "b32", "e": "b16"})
    for pair, halves, back in zip(codes, found["d"], found["e"], strict=True):
        for shift in (0, 8):
            eight, half, again = pair >> shift & 255, halves >> 2 * shift & 0xFFFF, back >> shift & 255
            value, got = decode(eight, kind), decode(half, "f16")
            assert got == value or (math.isnan(got) and math.isnan(value))
            assert again == (0x7F if math.isnan(value) else eight - math.isinf(value))  # infinities are clamped


# --- comparisons ---------------------------------------------------------------------------------------------

ORDER = {n: getattr(operator, n) for n in ("eq", "ne", "lt", "le", "gt", "ge")}
UNSIGNED_ORDER = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compare(name: str, a: float, b: float) -> bool:
    unordered = math.isnan(a) or math.isnan(b)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return name.endswith("u")
    return ORDER[UNSIGNED_ORDER.get(name, name.removesuffix("u"))](a, b)


def comparisons() -> Iterator[tuple[str, str]]:
    """Yields every comparison with the types that have it."""
    yield from itertools.product(ORDER, INTEGERS[2:])
    yield from itertools.product(UNSIGNED_ORDER, ("u16", "u32", "u64"))
    yield from itertools.product(("eq", "ne"), ("b16", "b32", "b64"))
    yield from itertools.product((*ORDER, *(name + "u" for name in ORDER), "num", "nan"), (*FLOATS, "bf16"))


def comparison(name: str, to: str, kind: str, true: int = 1) -> OpCase:
    full = f"setp.{name}.{kind}" if to == "pred" else f"set.{name}.{to}.{kind}"
    return on_numbers(full, (kind, kind), to, lambda a, b: true * compare(name, a, b))


SETP = [comparison(name, "pred", kind) for name, kind in comparisons()]
SETP.append(on_numbers("setp.lt.ftz.f32", ("f32", "f32"), "pred", lambda a, b: compare("lt", flushed(a), flushed(b))))
TRUE = {
    ("lt", "u32", "f32"): 0xFFFFFFFF,
    ("ge", "f32", "s32"): 0x3F800000,
    ("eq", "f16", "f16"): 0x3C00,
    ("gtu", "bf16", "bf16"): 0x3F80,
}


def in_halves(form: OpCase, to: str) -> OpCase:
    """Returns `set` of two halves, each by itself; `to` is a pair of the format, or a mask for each half."""
    _, name, _, kind = form.instruction.split(".")
    true = 0xFFFF if to == "u32" else TRUE["eq", "f16", "f16"] if kind == "f16" else TRUE["gtu", "bf16", "bf16"]

    def reference(a: int, b: int) -> int:
        low, high = (bool(form.reference(a >> shift & 0xFFFF, b >> shift & 0xFFFF)) for shift in (0, 16))
        return low * true | high * true << 16

    return OpCase(f"set.{name}.{to}.{kind}x2", (kind + "x2",) * 2, "b32", reference)


SINGLE = [comparison(*form, true) for form, true in TRUE.items()]
SET = SINGLE + [in_halves(form, to) for form in SINGLE[2:] for to in ("u32", form.sources[0] + "x2")]


@pytest.mark.parametrize("kind", dict.fromkeys(case.sources[0] for case in SETP + SET))
def test_a_comparison(kind):
    check([case for case in SETP + SET if case.sources[0] == kind])


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
@pytest.mark.parametrize("negated", ["", "!"])
@pytest.mark.parametrize("first", ["%d", "%c"])  # %c: the third source is overwritten by the first result
def test_a_comparison_combined_with_a_predicate_has_two_results(combine, negated, first):
    rows = [(a, b, c) for a in (1, 2) for b in (1, 2) for c in (0, 1)]
    inputs = {n: (k, [row[i] for row in rows]) for i, (n, k) in enumerate((("a", "s32"), ("b", "s32"), ("c", "pred")))}
    code = f"setp.lt.{combine}.s32 {first}|%q, %a, %b, {negated}%c; {'' if first == '%d' else 'mov.pred %d, %c;'}"
    found = evaluate(code, inputs, {"d": "pred", "q": "pred"})
    join = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[combine]
    third = [c ^ bool(negated) for _, _, c in rows]
    assert found["d"] == [join(int(a < b), c) for (a, b, _), c in zip(rows, third, strict=True)]
    assert found["q"] == [join(int(a >= b), c) for (a, b, _), c in zip(rows, third, strict=True)]


# --- mov, cvta, createpolicy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64", "pred"])
def test_a_move_keeps_every_bit(kind):
    bits = kind if kind == "pred" else f"b{width(kind)}"  # also of a NaN
    check([OpCase(f"mov.{kind}", (bits,), bits, lambda a: a, values={0: edge_values(kind)})])
