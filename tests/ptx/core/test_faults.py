"""Wrong kernels stop with the source line, the thread and what was wrong."""

from __future__ import annotations

import pytest

from gemm_ref import ptx
from tests.ptx.harness import LANES, bits_of, run_kernel, words


def fault(code: str, kind=ptx.MemoryFault, size: int = 32, **more) -> str:
    with pytest.raises(kind) as caught:
        run_kernel(LANES + code, [words([0] * size)], **more)
    return str(caught.value)


def test_the_fault_names_the_block_and_thread_in_three_dimensions():
    code = """mov.u32 %r1, %ctaid.y; mov.u32 %r2, %tid.z; mad.lo.u32 %r3, %r1, 100, %r2; mov.u32 %r4, 102;
setp.eq.u32 %p1, %r3, %r4;
selp.u32 %r5, 4096, 0, %p1; cvt.u64.u32 %rd1, %r5; add.s64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r0;"""
    assert "block (0, 1, 0) thread (0, 0, 2)" in fault(code, grid=(1, 2, 1), block=(1, 1, 4))


def test_lanes_that_take_no_part_may_hold_wild_addresses():
    out = words([0] * 32)
    code = """mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0; setp.ge.u32 %p1, %r0, 16; @%p1 mov.u64 %rd1, -3;
@!%p1 st.global.u32 [%rd1], 5; @%p1 bra END; st.u32 [%rd1], 6; ld.u32 %r3, [%rd1];
atom.global.add.u32 %r2, [%rd1], %r3; END:"""
    run_kernel(LANES + code, [out])
    assert bits_of(out) == [12] * 16 + [0] * 16


def test_a_register_whose_guarded_load_no_lane_executed_may_be_read():
    out = words([0] * 32)
    code = """setp.gt.u32 %p1, %r0, 99; @%p1 ld.global.v2.u32 {%r1, %r2}, [%rd0]; selp.b32 %r3, %r2, 4, %p1;
mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r3;"""
    run_kernel(LANES + code, [out])
    assert bits_of(out) == [4] * 32


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
    code = "mov.u32 %r1, 0;\nAGAIN: add.u32 %r1, %r1, 0; setp.lt.u32 %p1, %r1, 9;\n@%p1 bra AGAIN;"
    message = fault(code, ptx.EndlessLoop)
    assert "probe.cu:4" in message and "still running after 1000 instructions" in message
