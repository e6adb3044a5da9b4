"""Instructions in which the lanes of a warp see each other, against the PTX manual."""

from __future__ import annotations

import functools

import pytest

from tests.ptx.harness import run_lanes
from tests.ptx.ieee import signed

as_s32 = functools.partial(signed, bits=32)


def outputs(code: str, lanes: int = 32) -> tuple[list[int], list[int]]:
    """Returns register %r1 and predicate %p1 of every lane; 99 where a lane stored nothing."""
    store = f"st.global.u32 [%rd1], %r1; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd1+{4 * lanes}], %r2;"
    code = f"mov.u32 %r1, 99; setp.eq.u32 %p1, 0, 1; {code} {store}"
    found = run_lanes(code, lanes, count=2 * lanes, filled=99)
    return found[:lanes], found[lanes:]


def source_lane(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The manual's pseudo-code of shfl."""
    segment, bound = c >> 8 & 31, c & 31
    highest, lowest = lane & segment | bound & ~segment & 31, lane & segment
    j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": lowest | b & ~segment & 31}[mode]
    valid = j >= highest if mode == "up" else j <= highest
    return (j, True) if valid else (lane, False)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("b", [0, 1, 3, 8, 31, 33])
def test_a_shuffle_within_segments(mode, b):
    for segments, bound in ((1, None), (2, None), (4, None), (8, None), (1, 20), (1, 3)):
        c = (32 - 32 // segments) << 8 | ((0 if mode == "up" else 31) if bound is None else bound)
        values, valid = outputs(f"add.u32 %r3, %r0, 1000; shfl.sync.{mode}.b32 %r1|%p1, %r3, {b}, {c}, -1;", 64)
        want = [source_lane(mode, lane % 32, b & 31, c) for lane in range(64)]
        assert values == [1000 + j + 32 * (lane // 32) for lane, (j, _) in enumerate(want)], (segments, bound)
        assert valid == [int(ok) for _, ok in want], (segments, bound)


def ballot(lanes) -> int:
    return sum(1 << lane for lane in lanes)


@pytest.mark.parametrize("below", [0, 1, 20, 32, 40, 64])
def test_votes_count_each_warp_alone(below):
    code = f"setp.lt.u32 %p2, %r0, {below}; vote.sync.ballot.b32 %r1, %p2, -1; vote.sync.{{}} %p1, {{}}, -1;"
    true = [[lane < below for lane in range(32 * w, 32 * w + 32)] for w in (0, 1)]
    for form, operand, want in (
        ("any.pred", "%p2", [any(w) for w in true]),
        ("all.pred", "%p2", [all(w) for w in true]),
        ("all.pred", "!%p2", [not any(w) for w in true]),
        ("uni.pred", "%p2", [all(w) or not any(w) for w in true]),
    ):
        values, flags = outputs(code.format(form, operand), 64)
        assert flags == [int(want[lane // 32]) for lane in range(64)]
        assert values == [ballot(i for i, bit in enumerate(true[lane // 32]) if bit) for lane in range(64)]


@pytest.mark.parametrize("form, combine", [
    ("add.u32", lambda x: sum(x) % 2**32), ("add.s32", lambda x: sum(x) % 2**32),
    ("min.u32", min), ("max.u32", max),
    ("min.s32", lambda x: min(x, key=as_s32)), ("max.s32", lambda x: max(x, key=as_s32)),
    ("and.b32", lambda x: functools.reduce(int.__and__, x)), ("or.b32", lambda x: functools.reduce(int.__or__, x)),
    ("xor.b32", lambda x: functools.reduce(int.__xor__, x)),
])  # fmt: skip
def test_a_reduction_is_of_each_warp_alone(form, combine):
    values, _ = outputs(f"mul.lo.u32 %r3, %r0, 0x9e3779b1; or.b32 %r3, %r3, 4; redux.sync.{form} %r1, %r3, -1;", 64)
    given = [lane * 0x9E3779B1 % 2**32 | 4 for lane in range(64)]
    assert values == [combine(given[lane // 32 * 32 :][:32]) for lane in range(64)]


@pytest.mark.parametrize("register, want", [
    ("laneid", lambda t: t % 32), ("warpid", lambda t: t // 32), ("nwarpid", lambda t: 2),
    ("lanemask_eq", lambda t: 1 << t % 32), ("lanemask_lt", lambda t: (1 << t % 32) - 1),
    ("lanemask_le", lambda t: (2 << t % 32) - 1), ("lanemask_gt", lambda t: 0xFFFFFFFF ^ (2 << t % 32) - 1),
    ("lanemask_ge", lambda t: 0xFFFFFFFF ^ (1 << t % 32) - 1),
])  # fmt: skip
def test_special_registers(register, want):
    assert outputs(f"mov.u32 %r1, %{register};", 40)[0] == [want(t) for t in range(40)]
