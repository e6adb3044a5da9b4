"""Lanes that come to an instruction of their warp one after the other wait there: PTX ISA, 9.7.9 and 9.7.13."""

from __future__ import annotations

import pytest

from tests.ptx.harness import run_lanes

HEAD = "setp.lt.u32 %p1, %r0, 16; mov.u32 %r2, 1; setp.eq.u32 %p2, 0, 0; .shared .align 16 .b8 room[512];\n"
# Half of each warp goes round by a block of code that stands behind the instruction.
ASIDE = "@%p1 bra ASIDE; MEET: {} st.global.u32 [%rd1], %r1; ret; ASIDE: mov.u32 %r2, 2; bra.uni MEET;"
STORE = "st.global.u32 [%rd1], %r1;"


def outputs(code: str, lanes: int = 64) -> list[int]:
    return run_lanes(HEAD + code, lanes)


@pytest.mark.parametrize("instruction, want", [
    ("shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;", [1] * 16 + [2] * 16),
    ("vote.sync.ballot.b32 %r1, %p1, -1;", [0xFFFF] * 32),
    ("{.reg .pred %p3; elect.sync %r1|%p3, -1; selp.u32 %r1, 7, 8, %p3;}", [7] + [8] * 31),
    ("mov.u32 %r3, room; shl.b32 %r4, %r0, 4; and.b32 %r4, %r4, 255; add.u32 %r3, %r3, %r4; st.shared.u32 [%r3], %r2;"
     "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r3]; and.b32 %r1, %r1, 0;", [0] * 32),
])  # fmt: skip
def test_lanes_that_went_another_way_are_waited_for(instruction, want):
    found = outputs(ASIDE.format(instruction))
    assert found[:32] == want
    assert found[32:] == (want if "ballot" not in instruction and "bfly" not in instruction else found[32:])


def test_a_lane_that_leaves_while_others_wait_does_not_count_any_more():
    code = "@%p1 bra LAST; shfl.sync.bfly.b32 %r1, %r2, {}, 31, -1; st.global.u32 [%rd1], %r1; LAST: ret;"
    assert outputs(code.format(1), 32) == [0] * 16 + [1] * 16
    assert outputs(code.format(16), 32) == [0] * 16 + [0xFFFFFFFF] * 16  # undefined: of lanes that take no part
