"""Lanes, blocks, divergence, barriers and observers of the reference GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gemm_ref import ptx
from gemm_ref.ptx.program import BATCH_LANES
from tests.ptx.harness import LANES, run_kernel, run_lanes


def result(code: str, lanes: int = 64, **more) -> list[int]:
    """Returns %r1 of each lane, 0 before the code; 99 where a lane stored nothing."""
    return run_lanes(f"mov.u32 %r1, 0;\n{code}\nst.global.u32 [%rd1], %r1;", lanes, filled=99, **more)


@pytest.mark.parametrize(
    "grid, block", [((3, 1, 1), (5, 1, 1)), ((2, 3, 1), (4, 3, 1)), ((2, 3, 4), (3, 2, 5)), ((5, 7, 3), (8, 8, 16))]
)
def test_coordinates_of_threads_and_blocks(grid, block):
    lines = [".reg .b32 %r<20>; .reg .b64 %rd<9>; ld.param.u64 %rd0, [p0];"]
    names = [f"{n}.{axis}" for n in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    lines += [f"mov.u32 %r{i}, %{name};" for i, name in enumerate(names)]
    lines.append("mad.lo.u32 %r12, %r2, %r4, %r1; mad.lo.u32 %r12, %r12, %r3, %r0;")  # thread
    lines.append("mad.lo.u32 %r13, %r8, %r10, %r7; mad.lo.u32 %r13, %r13, %r9, %r6;")  # block
    lines.append("mul.lo.u32 %r14, %r3, %r4; mul.lo.u32 %r14, %r14, %r5; mad.lo.u32 %r15, %r13, %r14, %r12;")
    lines.append("mul.wide.u32 %rd1, %r15, 48; add.s64 %rd0, %rd0, %rd1;")
    lines += [f"st.global.u32 [%rd0+{4 * i}], %r{i};" for i in range(12)]
    threads, blocks = int(np.prod(block)), int(np.prod(grid))
    assert threads * blocks > BATCH_LANES or threads < 1000  # the last case is more than one batch
    out = torch.zeros(threads * blocks, 12, dtype=torch.int32)
    run_kernel("\n".join(lines), [out], grid=grid, block=block)
    want = [
        (x, y, z, *block, bx, by, bz, *grid)
        for bz in range(grid[2]) for by in range(grid[1]) for bx in range(grid[0])
        for z in range(block[2]) for y in range(block[1]) for x in range(block[0])
    ]  # fmt: skip
    assert np.array_equal(out.numpy(), np.array(want))


# --- divergence ----------------------------------------------------------------------------------------------


def test_if_else_and_nested_branches_and_uniform_registers_written_in_them():
    code = """mov.u32 %r2, 7; setp.lt.u32 %p1, %r0, 10; @%p1 bra LOW;
mov.u32 %r2, 8; setp.lt.u32 %p2, %r0, 40; @!%p2 bra JOIN; add.u32 %r2, %r2, 100; bra.uni JOIN;
LOW: add.u32 %r2, %r2, 1000;
JOIN: mov.u32 %r1, %r2;"""
    assert result(code) == [1007 if t < 10 else 108 if t < 40 else 8 for t in range(64)]


def test_loops_run_for_each_lanes_own_count():
    code = """mov.u32 %r2, 0; and.b32 %r3, %r0, 7;
AGAIN: setp.ge.u32 %p1, %r2, %r3; @%p1 bra DONE; mov.u32 %r4, 0;
INNER: add.u32 %r1, %r1, 1; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r2; @%p2 bra INNER; add.u32 %r2, %r2, 1;
bra AGAIN;
DONE:"""
    assert result(code) == [sum(max(1, i) for i in range(t % 8)) for t in range(64)]


@pytest.mark.parametrize("leave", ["ret", "exit"])
def test_lanes_that_leave_do_nothing_more(leave):
    code = f"""setp.ge.u32 %p1, %r0, 20; @%p1 {leave}; setp.ge.u32 %p2, %r0, 10; @%p2 mov.u32 %r1, 5; @%p2 bra ON;
add.u32 %r1, %r1, 1; ON:"""
    assert result(code) == [1] * 10 + [5] * 10 + [99] * 44


def test_guards_that_hold_only_for_lanes_that_left_do_nothing():
    code = """setp.ge.u32 %p1, %r0, 20; @%p1 ret; setp.ge.u32 %p2, %r0, 30; @%p2 trap; @%p2 bar.sync 1, 64;
@%p2 bra AWAY;
mov.u64 %rd2, 12345; @%p2 st.global.u32 [%rd2], %r0; @!%p2 add.u32 %r1, %r1, 3; bar.sync 0; bra ON; AWAY: trap; ON:"""
    assert result(code) == [3] * 20 + [99] * 44


def test_a_clock_counts_instructions():
    assert result("mov.u32 %r2, %clock; mov.u32 %r3, 0; mov.u32 %r1, %clock; sub.u32 %r1, %r1, %r2;") == [2] * 64


# --- barriers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("barrier", ["bar.sync 0", "barrier.sync 0", "barrier.cta.sync.aligned 0", "bar.sync 0, 64"])
def test_a_barrier_orders_shared_memory_of_all_threads(barrier):
    code = f""".shared .align 4 .b8 room[256]; mov.u32 %r9, room; shl.b32 %r2, %r0, 2; add.u32 %r3, %r9, %r2;
setp.lt.u32 %p1, %r0, 32; @%p1 bra LATE; st.shared.u32 [%r3], %r0; bra MEET; LATE: st.shared.u32 [%r3], %r0;
MEET: {barrier}; sub.u32 %r4, 252, %r2; add.u32 %r4, %r9, %r4; ld.shared.u32 %r1, [%r4];"""
    assert result(code) == [63 - t for t in range(64)]


def test_threads_that_left_early_are_not_waited_for():
    code = "setp.lt.u32 %p1, %r0, 9; @%p1 bra WORK; ret; WORK: bar.sync 0; mov.u32 %r1, 4; bar.sync 0;"
    assert result(code) == [4] * 9 + [99] * 55
    late = """setp.lt.u32 %p1, %r0, 9; @!%p1 bra WORK; bar.sync 0; mov.u32 %r1, 4; bra END;
WORK: mov.u32 %r1, 6; st.global.u32 [%rd1], %r1; ret; END:"""
    assert result(late) == [4] * 9 + [6] * 55


def test_the_lanes_of_a_warp_wait_for_each_other_from_different_places():
    code = """.shared .align 4 .b8 room[8]; mov.u32 %r9, room; setp.ge.u32 %p1, %r0, 16; @%p1 bra OTHER;
bar.warp.sync 0xffffffff; ld.shared.u32 %r1, [%r9]; bra END;
OTHER: mov.u32 %r3, 5; st.shared.u32 [%r9], %r3; bar.warp.sync 0xffffffff; END:"""
    assert result(code, 32) == [5] * 16 + [0] * 16


# --- observers -----------------------------------------------------------------------------------------------


class Recorder(ptx.Observer):
    def __init__(self) -> None:
        self.seen: list = []

    def on_access(self, access: ptx.Access) -> None:
        lanes = np.flatnonzero(access.lanes).tolist() if access.lanes is not None else list(range(access.machine.lanes))
        addresses = np.broadcast_to(access.addresses, access.machine.lanes)[lanes]
        about = access.instruction.line, access.kind, access.space, access.size
        self.seen.append((*about, lanes, (addresses - addresses[0]).tolist()))

    def on_synchronisation(self, event) -> None:
        if not event.opens:
            self.seen.append((event.instruction.line, *event.barrier, event.lanes))


def test_observers_see_every_access_and_barrier_with_its_line():
    code = """.shared .align 16 .b8 room[64]; .reg .b32 %s<9>; mov.u32 %s1, room; shl.b32 %s2, %r0, 4;
add.u32 %s1, %s1, %s2;
st.shared.v4.u32 [%s1], {%r0, %r0, %r0, %r0};
bar.sync 0;
setp.ge.u32 %p1, %r0, 2; @%p1 ld.shared.u32 %r1, [%s1];
atom.global.add.u32 %r1, [%rd1], 1;
cp.async.ca.shared.global [%s1], [%rd1], 4;"""
    recorder, first = Recorder(), LANES.count("\n") + 3  # the lines before
    result(code, 4, observers=[recorder])
    everyone, steps = [0, 1, 2, 3], [0, 4, 8, 12]
    assert recorder.seen == [
        (first + 1, "store", "shared", 16, everyone, [0, 16, 32, 48]),
        (first + 2, "barrier", 0, None),
        (first + 3, "load", "shared", 4, [2, 3], [0, 16]),
        (first + 4, "atomic", "global", 4, everyone, steps),
        (first + 5, "async store", "shared", 4, everyone, [0, 16, 32, 48]),
        (first + 5, "load", "global", 4, everyone, steps),
        (first + 6, "store", "global", 4, everyone, steps),
    ]
