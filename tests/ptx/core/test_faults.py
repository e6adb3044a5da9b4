"""Wrong kernels stop with the source line, the thread and what was wrong."""

from __future__ import annotations

import pytest
import torch

from gemm_ref import ptx
from gemm_ref.launch import Launch
from tests.ptx.harness import bits_of, covers, kernel_text, run_kernel, words

HEAD = """.reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .pred %p<9>; mov.u32 %r0, %tid.x;
ld.param.u64 %rd0, [p0];
"""


def fault(code: str, kind=ptx.MemoryFault, size: int = 32, **more) -> str:
    with pytest.raises(kind) as caught:
        run_kernel(HEAD + code, [words([0] * size)], **more)
    return str(caught.value)


def test_past_the_end_of_a_tensor():
    code = "mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0;\nld.global.f32 %f1, [%rd1+8];"

    assert fault(code, size=33).startswith("probe.cu:4: ld.global.f32 %f1, [%rd1+8]: block (0, 0, 0) thread (31, 0, 0)")
    assert "at byte 132 of P0 (132 bytes), which is out of bounds; 1 lanes do (address 0x10" in fault(code, size=33)


def test_before_a_tensor():
    code = "mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0; ld.global.f32 %f1, [%rd1+-8];"
    message = fault(code)
    assert "thread (0, 0, 0) accesses 4 bytes 8 bytes before P0 (128 bytes)" in message and "2 lanes do" in message


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
    run_kernel(HEAD + code, [out])
    assert bits_of(out) == [12] * 16 + [0] * 16


def test_a_misaligned_vector():
    code = "mul.wide.u32 %rd1, %r0, 8; add.s64 %rd1, %rd1, %rd0; ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];"
    assert "thread (1, 0, 0) accesses 16 bytes" in (message := fault(code, size=64))
    assert "which is not at a multiple of 16" in message
    sliced = torch.zeros(40, dtype=torch.int32)[1:]  # an aligned index into a tensor that is not aligned itself
    with pytest.raises(ptx.MemoryFault, match="not at a multiple of 8"):
        run_kernel(HEAD + "ld.global.v2.f32 {%f1, %f2}, [%rd0];", [sliced])


@pytest.mark.parametrize("space", ["shared", "local"])
@pytest.mark.parametrize("generic", [False, True])
def test_past_the_end_of_shared_and_local_memory(space, generic):
    code = f".{space} .align 4 .b8 room[64]; mov.u64 %rd1, room; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd1, %rd1, %rd2;"
    code += f"cvta.{space}.u64 %rd1, %rd1; st.u32 [%rd1], %r0;" if generic else f"st.{space}.u32 [%rd1], %r0;"
    assert "thread (16, 0, 0) accesses 4 bytes at byte 64 of" in fault(code)


def test_no_overrun_of_dynamic_shared_memory_into_another_block():
    outside = ".extern .shared .align 4 .b8 room[];"
    message = fault("mov.u32 %r1, room; st.shared.u32 [%r1+16], %r0;", shared=16, grid=(2, 1, 1), outside=outside)
    assert "at byte 16 of shared memory (16 bytes)" in message


def test_lanes_in_different_spaces_of_one_generic_access_are_refused():
    code = ".shared .align 4 .b8 room[4]; setp.lt.u32 %p1, %r0, 4; mov.u64 %rd1, room; cvta.shared.u64 %rd1, %rd1;"
    code += "selp.b64 %rd1, %rd0, %rd1, %p1; ld.u32 %r1, [%rd1];"
    assert "different state spaces" in fault(code, ptx.Unsupported)


def test_a_barrier_that_some_threads_skip():
    code = "setp.lt.u32 %p1, %r0, 8; @%p1 bra SKIP; bar.sync 1; SKIP:\nbar.sync 0;"
    message = fault(code, ptx.BarrierFault)
    assert "waits here forever" in message and "thread (0, 0, 0)" in message
    assert "24 of the 32" in message or "8 of the 32" in message
    assert "waits here forever" in fault("bar.sync 1, 64;", ptx.BarrierFault)


@covers("trap")
def test_a_trap_names_its_first_thread():
    code = "setp.ge.u32 %p1, %r0, 5; @%p1 ret; setp.ge.u32 %p2, %r0, 3;\n@%p2 trap;"
    assert fault(code, ptx.KernelTrap) == "probe.cu:4: @%p2 trap: block (0, 0, 0) thread (3, 0, 0) executed a trap"


def test_registers_that_nothing_wrote():
    assert "probe.cu:3: add.u32 %r1, %r2, 1: register %r2" in fault("add.u32 %r1, %r2, 1;", ptx.UndefinedRegister)
    assert "guard %p3" in fault("@%p3 add.u32 %r1, %r0, 1;", ptx.UndefinedRegister)


def test_a_register_whose_guarded_load_no_lane_executed_may_be_read():
    out = words([0] * 32)
    code = """setp.gt.u32 %p1, %r0, 99; @%p1 ld.global.v2.u32 {%r1, %r2}, [%rd0]; selp.b32 %r3, %r2, 4, %p1;
mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r3;"""
    run_kernel(HEAD + code, [out])
    assert bits_of(out) == [4] * 32


def test_arguments_that_do_not_fit():
    kernel = ptx.load(kernel_text("", ".param .u64 p0, .param .u32 p1"))
    with pytest.raises(ValueError, match="probe takes 2 arguments and was given 1"):
        ptx.run(kernel, Launch((1, 1, 1), (1, 1, 1)), [1])
    with pytest.raises(ValueError, match="P0 must be a contiguous tensor"):
        run_kernel("", [torch.zeros(4, 4).T])


def test_the_slow_path_of_several_tensors_in_one_access():
    first, second = words(range(32)), words(range(100, 132))
    code = """ld.param.u64 %rd1, [p1]; setp.lt.u32 %p1, %r0, 7; selp.b64 %rd2, %rd0, %rd1, %p1;
mul.wide.u32 %rd3, %r0, 4;
add.s64 %rd2, %rd2, %rd3; ld.global.u32 %r1, [%rd2]; add.u32 %r1, %r1, 1000; st.global.u32 [%rd2], %r1;"""
    run_kernel(HEAD + code, [first, second])
    assert bits_of(first) == [1000 + i if i < 7 else i for i in range(32)]
    assert bits_of(second) == [100 + i if i < 7 else 1100 + i for i in range(32)]


def test_a_loop_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr("gemm_ref.ptx.core.machine.MAX_INSTRUCTIONS", 1000)
    code = "mov.u32 %r1, 0;\nAGAIN: add.u32 %r1, %r1, 0; setp.lt.u32 %p1, %r1, 9;\n@%p1 bra AGAIN;"
    message = fault(code, ptx.EndlessLoop)
    assert "probe.cu:4" in message and "still running after 1000 instructions" in message
