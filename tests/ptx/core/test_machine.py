"""Lanes, blocks and observers of the reference GPU; programs.txt has divergence and barriers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gemm_ref import ptx
from gemm_ref.ptx.program import BATCH_LANES
from tests.ptx.harness import LANES, bits_of, run_kernel, run_lanes, words


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
    run_lanes(f"mov.u32 %r1, 0;\n{code}\nst.global.u32 [%rd1], %r1;", 4, observers=[recorder])
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


def test_the_slow_path_of_several_tensors_in_one_access():
    first, second = words(range(32)), words(range(100, 132))
    code = """ld.param.u64 %rd1, [p1]; setp.lt.u32 %p1, %r0, 7; selp.b64 %rd2, %rd0, %rd1, %p1;
mul.wide.u32 %rd3, %r0, 4;
add.s64 %rd2, %rd2, %rd3; ld.global.u32 %r1, [%rd2]; add.u32 %r1, %r1, 1000; st.global.u32 [%rd2], %r1;"""
    run_kernel(LANES + code, [first, second])
    assert bits_of(first) == [1000 + i if i < 7 else i for i in range(32)]
    assert bits_of(second) == [100 + i if i < 7 else 1100 + i for i in range(32)]


def test_a_loop_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr("gemm_ref.ptx.core.machine.MAX_INSTRUCTIONS", 1000)
    with pytest.raises(ptx.EndlessLoop, match=r"probe.cu:4: .*still running after 1000 instructions"):
        run_lanes("mov.u32 %r1, 0;\nAGAIN: add.u32 %r1, %r1, 0; setp.lt.u32 %p1, %r1, 9;\n@%p1 bra AGAIN;")
