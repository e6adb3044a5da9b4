"""Threads that wait for what another stores: the reference GPU gives it its turn, and says where nobody ever will."""

from __future__ import annotations

import pytest

from gemm_ref import ptx
from tests.ptx.harness import bits_of, run_kernel, words

# Block %r1 stores 5 at [p0] if it is the writer, p1, and every other waits for it; what a loop looks with is LOOK.
BODY = """.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>;
ld.param.u64 %rd0, [p0]; ld.param.u32 %r2, [p1]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, %r2; @%p1 bra WRITE;
LOOK: {look} setp.eq.u32 %p2, %r3, 0; {pause} @%p2 bra LOOK;
st.global.u32 [%rd0+4], %r3; bra DONE;
WRITE: st.release.gpu.global.u32 [%rd0], 5; DONE:"""
LOOKS = ["ld.acquire.gpu.global.u32 %r3, [%rd0];", "ld.volatile.global.u32 %r3, [%rd0];"]
LOOKS += ["atom.acquire.gpu.global.add.u32 %r3, [%rd0], 0;", "atom.global.cas.b32 %r3, [%rd0], 0, 0;"]


def run(writer: int, look: str, pause: str = "", blocks: int = 3) -> tuple[list[int], int]:
    """What is in memory then, and how many instructions it took."""
    memory = words([0, 0])
    taken = run_kernel(BODY.format(look=look, pause=pause), [memory, writer], grid=(blocks, 1, 1), block=(1, 1, 1))
    return bits_of(memory), taken


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("writer", range(3))
def test_who_waits_gives_others_their_turn(look, writer):
    memory, taken = run(writer, look)
    assert memory == [5, 5] and taken < 100


def test_a_pause_is_a_wait_whatever_looks():
    memory, taken = run(2, "ld.global.u32 %r3, [%rd0];", "nanosleep.u32 32;")
    assert memory == [5, 5] and taken < 100


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("blocks, batch", [(3, 3), (4, 1), (4, 2)])
def test_a_wait_for_what_nobody_stores_is_told(look, blocks, batch, monkeypatch):
    """Nobody is the writer, or the last block is, which runs when the others have ended."""
    monkeypatch.setattr("gemm_ref.ptx.program.BATCH_LANES", batch)
    with pytest.raises(ptx.BarrierFault, match=r"probe.cu:3.*deadlock.*block \(\d, 0, 0\).*lower numbers"):
        run(3, look, blocks=blocks)


def test_a_loop_that_counts_is_no_deadlock():
    memory = words([0, 0])
    body = """.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>; ld.param.u64 %rd0, [p0]; mov.u32 %r1, 0;
    LOOK: ld.relaxed.gpu.global.u32 %r3, [%rd0]; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 3000; @%p2 bra LOOK;
    st.global.u32 [%rd0], %r1;"""
    run_kernel(body, [memory], block=(1, 1, 1))
    assert bits_of(memory) == [3000, 0]


def test_a_loop_that_changes_memory_is_no_deadlock():
    memory = words([0, 0])
    body = """.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>; ld.param.u64 %rd0, [p0];
    LOOK: atom.global.add.u32 %r3, [%rd0], 1; mov.u32 %r3, 0; ld.global.u32 %r4, [%rd0]; mov.u32 %r5, %r4;
    setp.lt.u32 %p2, %r4, 2000; mov.u32 %r4, 0; mov.u32 %r5, 0; @%p2 bra LOOK; st.global.u32 [%rd0+4], 1;"""
    run_kernel(body, [memory], block=(1, 1, 1))
    assert bits_of(memory) == [2000, 1]
