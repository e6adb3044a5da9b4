"""mbarriers against the PTX manual: counting, phases, bytes, waits, and what is reported of their misuse."""

from __future__ import annotations

import pytest

from tests.ptx.harness import run_lanes

HEAD = ".shared .align 8 .b64 bar[4]; .shared .b32 flag; mov.u32 %r1, bar; mov.u32 %r9, 0;\n"


def init(count: int, offset: int = 0) -> str:
    return f"@%p1 mbarrier.init.shared::cta.b64 [%r1+{offset}], {count}; bar.sync 0;\n"


def has_ended(parity: int, number: int) -> str:
    """Adds bit `number` to %r9 where the phase has ended; where not, threads are parked until nobody can run."""
    return f"""mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], {parity};
selp.u32 %r8, {1 << number}, 0, %p2; or.b32 %r9, %r9, %r8;
"""


STORE = "st.global.u32 [%rd1], %r9;"


def results(body: str, block: int = 32, out: int = 0, **options) -> list[int]:
    return run_lanes(HEAD + body, block, out, **options)


def test_a_new_barrier_is_in_phase_0_and_the_phase_before_has_ended():
    assert results(init(33) + has_ended(0, 0) + has_ended(1, 1) + STORE) == [0b10] * 32


@pytest.mark.parametrize("count, ended", [("", 32), (", 2", 64), (", %r0", 496)])
def test_a_phase_ends_with_its_last_arrival_and_the_next_expects_as_many(count, ended):
    arrive = f"mbarrier.arrive.shared.b64 _, [%r1]{count};\n"
    if "%r0" in count:
        arrive = "setp.gt.u32 %p3, %r0, 0; @%p3 " + arrive
    twice = arrive + has_ended(0, 0) + has_ended(1, 1) + "bar.sync 0;" + arrive + has_ended(0, 2) + has_ended(1, 3)
    assert results(init(ended) + twice + STORE) == [0b1001] * 32
    assert results(init(ended + 1) + arrive + has_ended(0, 0) + has_ended(1, 1) + STORE) == [0b10] * 32


def test_the_state_that_an_arrival_returns_names_its_phase_and_what_was_pending():
    body = f"""{init(2)}@!%p1 bra OUT; mbarrier.arrive.release.cta.shared::cta.b64 %rd3, [%r1];
mbarrier.pending_count.b64 %r2, %rd3; mbarrier.test_wait.shared::cta.b64 %p2, [%r1], %rd3; selp.u32 %r3, 1, 0, %p2;
mbarrier.arrive.noComplete.shared::cta.b64 %rd4, [%r1+8], 3; mbarrier.pending_count.b64 %r4, %rd4;
mbarrier.arrive.shared::cta.b64 %rd5, [%r1]; mbarrier.pending_count.b64 %r5, %rd5;
mbarrier.test_wait.shared::cta.b64 %p2, [%r1], %rd3; selp.u32 %r6, 1, 0, %p2;
mbarrier.try_wait.shared::cta.b64 %p2, [%r1], %rd5, 1000; selp.u32 %r7, 1, 0, %p2;
st.global.v4.u32 [%rd0], {{%r2, %r3, %r4, %r5}}; st.global.v2.u32 [%rd0+16], {{%r6, %r7}}; OUT:"""
    body = body.replace("@!%p1", "@%p1 mbarrier.init.shared.b64 [%r1+8], 4; @!%p1", 1)
    assert results(body, out=8)[:6] == [2, 0, 4, 1, 1, 1]


def test_a_thread_that_drops_out_is_not_expected_in_later_phases():
    some = init(32) + "setp.lt.u32 %p3, %r0, 30; @%p3 mbarrier.arrive_drop.shared::cta.b64 _, [%r1];"
    some += "@!%p3 mbarrier.arrive.shared::cta.b64 _, [%r1];" + has_ended(0, 0)
    some += "@!%p3 mbarrier.arrive.shared::cta.b64 _, [%r1];" + has_ended(1, 1) + STORE
    assert results(some) == [0b11] * 32


def test_a_phase_waits_for_the_bytes_that_it_expects():
    body = init(1) + "@!%p1 bra NEXT; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 48;" + has_ended(0, 0)
    body += "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;"
    body += "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 48;" + has_ended(0, 1)
    body += "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;" + has_ended(0, 2) + "NEXT:" + STORE
    assert results(body)[0] == 0b100


def test_bytes_may_come_before_they_are_expected():
    body = init(1) + "@!%p1 bra NEXT; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 48;" + has_ended(0, 0)
    body += "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 48;" + has_ended(0, 1) + "NEXT:" + STORE
    assert results(body)[0] == 0b10


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("waits_first", [True, False])
def test_a_loop_that_waits_for_a_flag_lets_the_others_go_on(space, waits_first, monkeypatch):
    monkeypatch.setattr("gemm_ref.ptx.core.schedule.PATIENCE", 50)
    spins = (
        f"SPIN: ld.volatile.{space}.u32 %r2, [%rd5]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN; st.global.u32 [%rd1], %r2;"
    )
    sets = f"mov.u32 %r3, 7; st.{space}.u32 [%rd5], %r3;"
    first, second = (spins, sets) if waits_first else (sets, spins)
    where = "mov.u64 %rd5, flag;" if space == "shared" else "add.s64 %rd5, %rd0, 128;"
    mine = "setp.eq.u32 %p3, %r0, 31;" if waits_first else "setp.ne.u32 %p3, %r0, 31;"
    body = f"{where} @%p1 mov.u32 %r4, 0; @%p1 st.{space}.u32 [%rd5], %r4; bar.sync 0; {mine}\n"
    body += f"@%p3 bra SECOND;\n{first}\nbra DONE;\nSECOND:\n{second}\nDONE:\n"
    assert results(body, out=33)[:31] == [7] * 31


# --- faults --------------------------------------------------------------------------------------------------


def test_a_wait_gives_up_where_only_that_can_help():
    body = init(1) + "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; selp.u32 %r9, 5, 6, %p2;" + STORE
    assert results(body) == [6] * 32


def test_named_barriers_whose_numbers_differ_from_lane_to_lane():
    """Each pair of warps has a barrier of its own, by number, in the same instruction."""
    body = f"""shr.u32 %r2, %r0, 6; add.u32 %r2, %r2, 1; xor.b32 %r3, %r0, 32; mul.lo.u32 %r4, %r0, 3;
.shared .b32 room[128]; mov.u32 %r5, room; mad.lo.u32 %r6, %r0, 4, %r5; mad.lo.u32 %r7, %r3, 4, %r5;
st.shared.u32 [%r6], %r4; bar.sync %r2, 64; ld.shared.u32 %r9, [%r7]; {STORE}"""
    assert results(body, block=128) == [3 * (i ^ 32) for i in range(128)]


def test_a_generic_address_of_a_barrier():
    arrive = "mov.u64 %rd3, bar; cvta.shared.u64 %rd3, %rd3; mbarrier.arrive.b64 _, [%rd3];"
    assert results(init(32) + arrive + has_ended(0, 0) + STORE) == [1] * 32
