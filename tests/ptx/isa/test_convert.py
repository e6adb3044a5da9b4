"""`cvt`, `setp`, `mov`, `cvta` and `createpolicy` against the PTX manual, and that every opcode has such a test."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import pytest

from tests.ptx.harness import OpCase, bits_of, check, covers, edge_values, evaluate, run_kernel, words
from tests.ptx.ieee import from_bits, number, rounded, to_bits, width

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
ROUND = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def limits(kind: str) -> tuple[int, int]:
    half = 1 << width(kind) - 1
    return (-half, half - 1) if kind[0] == "s" else (0, 2 * half - 1)


def register_of(kind: str) -> int:
    """Bits of the narrowest register that holds a type."""
    return max(16, width(kind))


def between_integers(to: str, source: str, saturate: bool) -> OpCase:
    def function(a: int) -> int:
        value = number(a, source)
        if saturate:
            value = min(max(value, limits(to)[0]), limits(to)[1])
        # a narrow result is extended to its register by its own sign
        return number(value, to) & (1 << register_of(to)) - 1

    return OpCase(f"cvt{'.sat' if saturate else ''}.{to}.{source}", (source,), f"b{register_of(to)}", function)


def to_integer(to: str, source: str, mode: str) -> OpCase:
    low, high = limits(to)

    def function(a: int) -> int:
        value = from_bits(a, source)
        if math.isnan(value):
            whole = 1 << width(to) - 1 if source == "f64" or width(to) == 64 else 0
        elif math.isinf(value):
            whole = high if value > 0 else low
        else:
            whole = min(max(ROUND[mode](value), low), high)
        return number(whole, to) & (1 << register_of(to)) - 1

    edges = [2.0**n + d for n in (0, 7, 8, 15, 16, 31, 32, 63, 64) for d in (-1.5, -1, -0.5, 0, 0.5, 1)]
    values = {0: (*edge_values(source), *(to_bits(s * v, source) for v in edges for s in (1, -1)))}
    return OpCase(f"cvt.{mode}.{to}.{source}", (source,), f"b{register_of(to)}", function, values=values)


def from_integer(to: str, source: str) -> OpCase:
    return OpCase(f"cvt.rn.{to}.{source}", (source,), to, lambda a: rounded(Fraction(number(a, source)), to))


def between_floats(to: str, source: str) -> OpCase:
    name = f"cvt{'.rn' if width(to) < width(source) else ''}.{to}.{source}"
    ties = (0x3FF0000010000000, 0x3FF0000030000000, 0x3FF0000010000001, 0x380FFFFFF0000000, 0x47EFFFFFF0000000)
    values = {0: edge_values(source) + (ties if source == "f64" else ())}
    return OpCase(name, (source,), to, lambda a: to_bits(from_bits(a, source), to), values=values)


def integral(kind: str, mode: str) -> OpCase:
    def function(a: int) -> int:
        value = from_bits(a, kind)
        if not math.isfinite(value):
            return a
        return to_bits(math.copysign(float(ROUND[mode](value)), value), kind)

    return OpCase(f"cvt.{mode}.{kind}.{kind}", (kind,), kind, function)


def saturated(a: int) -> int | None:
    value = from_bits(a, "f32")
    if value == 0 and math.copysign(1, value) < 0:
        return None  # the manual says no sign for it
    return to_bits(0.0 if math.isnan(value) else min(max(value, 0.0), 1.0), "f32")


CVT = [
    *(between_integers(to, source, s) for to in INTEGERS for source in INTEGERS for s in (False, True)),
    *(to_integer(to, f, mode) for to in INTEGERS for f in ("f16", "f32", "f64") for mode in ROUND),
    *(from_integer(f, source) for f in ("f16", "f32", "f64") for source in INTEGERS),
    *(between_floats(to, s) for to in ("f16", "f32", "f64") for s in ("f16", "f32", "f64") if to != s),
    *(integral(f, mode) for f in ("f32", "f64") for mode in ROUND),
    OpCase("cvt.sat.f32.f32", ("f32",), "f32", saturated),
]


@covers("cvt")
@pytest.mark.parametrize("case", CVT, ids=str)
def test_a_conversion_rounds_and_clamps_as_the_manual_says(case):
    check(case)


@covers("cvt")
def test_a_conversion_reads_the_low_part_of_a_wide_register():
    found = evaluate(
        "cvt.s32.s8 %d, %a; cvt.u32.u16 %e, %a;", {"a": ("b32", [0x12348, 0xABCDEF80])}, {"d": "b32", "e": "b32"}
    )
    assert found == {"d": [0x48, 0xFFFFFF80], "e": [0x2348, 0xEF80]}


# --- setp ----------------------------------------------------------------------------------------------------

ORDER = {n: getattr(operator, n) for n in ("eq", "ne", "lt", "le", "gt", "ge")}
UNSIGNED_ORDER = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def comparison(name: str, kind: str):
    def function(x: int, y: int) -> int:
        if kind[0] != "f":
            return int(ORDER[UNSIGNED_ORDER.get(name, name)](number(x, kind), number(y, kind)))
        a, b = from_bits(x, kind), from_bits(y, kind)
        unordered = math.isnan(a) or math.isnan(b)
        if name in ("num", "nan"):
            return int(unordered == (name == "nan"))
        if unordered:
            return int(name.endswith("u"))
        return int(ORDER[name if name in ORDER else name[:-1]](a, b))

    return OpCase(f"setp.{name}.{kind}", (kind, kind), "pred", function)


SETP = [
    *(comparison(name, kind) for kind in ("u16", "s16", "u32", "s32", "u64", "s64") for name in ORDER),
    *(comparison(name, kind) for kind in ("u16", "u32", "u64") for name in UNSIGNED_ORDER),
    *(comparison(name, kind) for kind in ("b16", "b32", "b64") for name in ("eq", "ne")),
    *(comparison(n + u, kind) for kind in ("f16", "f32", "f64") for n in ORDER for u in ("", "u")),
    *(comparison(name, kind) for kind in ("f16", "f32", "f64") for name in ("num", "nan")),
]


@covers("setp")
@pytest.mark.parametrize("case", SETP, ids=str)
def test_a_comparison(case):
    check(case)


@covers("setp")
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


@covers("mov")
@pytest.mark.parametrize("kind", ["b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64", "pred"])
def test_a_move_keeps_every_bit(kind):
    check(OpCase(f"mov.{kind}", (kind,), kind, lambda a: a) if kind[0] != "f" else _bitwise_move(kind))


def _bitwise_move(kind: str) -> OpCase:
    return OpCase(f"mov.{kind}", (f"b{width(kind)}",), f"b{width(kind)}", lambda a: a, values={0: edge_values(kind)})


@covers("mov")
def test_a_move_packs_and_unpacks_vectors_lowest_first():
    values = [0x1122334455667788, 0xFFFFFFFF00000000, 0x8000000000000001]
    code = """.reg .b16 %h<4>; .reg .b32 %w<2>;
mov.b64 {%w0, %w1}, %a; mov.b64 %swapped, {%w1, %w0};
mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %turned, {%h3, %h2, %h1, %h0};
mov.b64 {_, %top}, %a; mov.b32 {%h0, _}, %w0; mov.b32 %pair, {%h0, 7};"""
    found = evaluate(code, {"a": ("b64", values)}, {"swapped": "b64", "turned": "b64", "top": "b32", "pair": "b32"})
    quarters = [[v >> 16 * i & 0xFFFF for i in range(4)] for v in values]
    assert found["swapped"] == [(v >> 32) | (v & 0xFFFFFFFF) << 32 for v in values]
    assert found["turned"] == [sum(q << 16 * (3 - i) for i, q in enumerate(four)) for four in quarters]
    assert found["top"] == [v >> 32 for v in values]
    assert found["pair"] == [v & 0xFFFF | 7 << 16 for v in values]


@covers("cvta")
@pytest.mark.parametrize("space", ["shared", "local"])
def test_a_generic_address_reaches_shared_and_local_memory_and_comes_back(space):
    out = words([0] * 64, 64)
    declared = f".{space} .align 8 .b8 room[512];"
    body = f"""{declared} .reg .b64 %rd<9>; .reg .b32 %r<9>;
mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 8; mov.u64 %rd2, room; add.u64 %rd2, %rd2, %rd1;
cvta.{space}.u64 %rd3, %rd2; st.u64 [%rd3], %rd1; ld.{space}.u64 %rd4, [%rd2];
cvta.to.{space}.u64 %rd5, %rd3; sub.u64 %rd5, %rd5, %rd2; add.u64 %rd4, %rd4, %rd5;
ld.param.u64 %rd6, [p0]; cvta.to.global.u64 %rd6, %rd6; add.u64 %rd6, %rd6, %rd1; st.u64 [%rd6], %rd4;"""
    run_kernel(body, [out], block=(64, 1, 1))
    assert bits_of(out) == [8 * i for i in range(64)]


@covers("createpolicy", "membar", "fence", "prefetch", "prefetchu", "nanosleep", "griddepcontrol")
def test_hints_and_fences_change_no_value():
    code = """.reg .b64 %p0x; createpolicy.fractional.L2::evict_last.b64 %p0x, 1.0;
membar.gl; fence.acq_rel.gpu; fence.proxy.async; nanosleep.u32 100; griddepcontrol.wait;
prefetch.global.L2 [%at0]; prefetchu.L1 [%at0]; mov.b32 %d, %a;"""
    assert evaluate(code, {"a": ("b32", [1, 2, 3])}, {"d": "b32"}) == {"d": [1, 2, 3]}
