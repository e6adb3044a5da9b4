"""Each fault detector on tiny kernels (faults.cu): faults.txt has every finding on each fault, and on correct kernels.

An entry of it is a kernel and its argument `fault`, 0 for a correct kernel; with `apart` each block runs in a machine
of its own. In a finding, a line of faults.cu is named by the comment at its end, or by } if it has none.
`python -m tests.ptx.detect.test_detectors` rewrites the findings.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import torch

from gemm_ref import Launch, ptx
from gemm_ref.ptx.detect.finding import RACE
from tests.messages import read_reports, write_reports
from tests.ptx.harness import compiled, run_kernel

SOURCE, FILE = (Path(__file__).with_name(f"faults.{suffix}") for suffix in ("cu", "txt"))
THREADS = 64
BLOCKS = {"skips": 2, "elements": 2, "last_adds": 5, "hand_on": 3}  # of other kernels one


def matrices_of(kernel: str) -> dict[str, torch.Tensor]:
    """Returns a kernel's matrices by their names; the last is its output."""
    if kernel == "last_adds":
        parts = torch.zeros(BLOCKS[kernel] * THREADS)
        return {"parts": parts, "tickets": torch.zeros(BLOCKS[kernel]).int(), "out": torch.zeros(THREADS)}
    if kernel == "hand_on":
        return {"parts": torch.zeros(1), "flags": torch.zeros(3).int(), "out": torch.zeros(1)}
    c = torch.zeros(8, 16) if kernel == "elements" else torch.zeros(BLOCKS.get(kernel, 1) * THREADS)
    return {"in": torch.ones(THREADS), "C" if kernel == "elements" else "out": c}


def report(entry: str) -> list[str]:
    """Returns the findings of an entry."""
    kernel, fault, *apart = entry.split()
    matrices, blocks, threads = matrices_of(kernel), BLOCKS.get(kernel, 1), 32 if kernel == "hand_on" else THREADS
    shared_bytes = 4 * threads if kernel == "unwritten" else 0
    partly = ("tickets", "out") if kernel == "last_adds" else ()
    detectors = ptx.Detectors(() if kernel in ("last_adds", "hand_on") else ("C",), tile=(2, 4))
    with pytest.MonkeyPatch.context() as patch:
        if apart:
            patch.setattr("gemm_ref.ptx.program.BATCH_LANES", threads)
        launch = Launch((blocks, 1, 1), (threads, 1, 1), shared_bytes, partly=partly)
        arguments = [*matrices.values(), int(fault)]
        ptx.run(ptx.load(compiled(SOURCE), kernel), launch, arguments, [detectors], names=tuple(matrices))
    if kernel == "last_adds" and not detectors.findings:
        assert torch.equal(matrices["out"], blocks * torch.arange(THREADS - 1.0, -1, -1))
        assert not matrices["tickets"].any() or fault == "9"
    return [f"{finding.kind}: {with_marks(str(finding))}" for finding in detectors.findings]


@functools.cache
def marks() -> list[str]:
    """Returns the mark at the end of each line of the source."""
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    return ["", *(line.split("// ")[-1] if "  // " in line else "}" for line in lines)]


def with_marks(text: str) -> str:
    """Returns a finding with marks for lines, and without nvcc's registers and lines of headers."""
    text = re.sub(r"^(\S+: \S+) [^:(]*(\(called at [^)]*\))?:", r"\1 \2:", text)
    text = re.sub(r"(\.cuh:)\d+", r"\1", text)
    return re.sub(r"(faults\.cu:|line )(\d+)", lambda place: place[1] + marks()[int(place[2])], text)


@pytest.mark.parametrize("entry, findings", read_reports(FILE).items())
def test_the_findings_of_a_fault(entry, findings):
    assert report(entry) == findings


def test_one_launch_is_ordered_before_the_next():
    detectors, out = ptx.Detectors(), torch.zeros(THREADS)
    kernel, launch = ptx.load(compiled(SOURCE), "neighbour"), Launch((1, 1, 1), (THREADS, 1, 1))
    with ptx.watched(detectors):
        ptx.run(kernel, launch, [torch.ones(THREADS), out, 0])
        ptx.run(kernel, launch, [out, torch.zeros(THREADS), 0])
        ptx.run(kernel, launch, [torch.zeros(THREADS), out, 0])
    assert detectors.findings == ()


def test_watched_sees_launches_only_inside():
    seen = []

    class Launches(ptx.Observer):
        def on_launch(self, kernel, launch, memory) -> None:
            seen.append(kernel.name)

    with ptx.watched(Launches()):
        report("neighbour 0")
    report("rounds 0")
    assert seen == ["neighbour"]


@pytest.mark.parametrize("size", [16, 8, 4, 2, 1])
def test_what_was_written_wide_is_remembered_where_narrower_is_read(size):
    """Each lane writes 16 bytes, of which another reads some; without a barrier it is a race with that one."""
    kind = {16: "v2.u64", 8: "u64", 4: "u32", 2: "u16", 1: "u8"}[size]
    into = {16: "{%rd2, %rd3}", 8: "%rd2", 4: "%r1", 2: "%rs1", 1: "%rs1"}[size]
    code = """.reg .b16 %rs<4>; .reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 16 .b8 smem[512];
mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, smem; add.u32 %r1, %r1, %r2; mov.u64 %rd2, 7;
st.shared.v2.u64 [%r1], {{%rd2, %rd2}};
{barrier}
xor.b32 %r3, %r0, 5; shl.b32 %r3, %r3, 4; add.u32 %r3, %r3, %r2; add.u32 %r3, %r3, {offset};
ld.shared.{kind} {into}, [%r3];"""

    def findings(barrier):
        detectors = ptx.Detectors()
        run_kernel(code.format(barrier=barrier, offset=16 - size, kind=kind, into=into), observers=[detectors])
        return detectors.findings

    assert not findings("bar.sync 0;")
    (finding,) = findings("")
    assert (finding.kind, finding.thread, finding.other_thread, finding.count) == (RACE, (0, 0, 0), (5, 0, 0), 32)
    assert f"byte {16 * 5 + 16 - size} of smem" in str(finding)


def kinds_of(code: str, threads: int) -> list[str]:
    """Returns the kinds of the findings of code in which %r0 is the thread and %r1 the address of a shared word."""
    head = ".reg .b32 %r<9>; .reg .pred %p<9>; .shared .b32 word; mov.u32 %r0, %tid.x; mov.u32 %r1, word;"
    run_kernel(f"{head} {code}", block=(threads, 1, 1), observers=[detectors := ptx.Detectors()])
    return [finding.kind for finding in detectors.findings]


def test_a_write_by_the_last_reader_races_with_the_readers_before():
    begin = "setp.eq.u32 %p1, %r0, 31; @%p1 st.shared.u32 [%r1], 1; bar.sync 0; ld.shared.u32 %r2, [%r1];"
    assert kinds_of(f"{begin} @%p1 st.shared.u32 [%r1], 2;", 32) == [RACE]
    assert kinds_of(f"{begin} bar.sync 0; @%p1 st.shared.u32 [%r1], 2;", 32) == []


@pytest.mark.parametrize("write_before", [True, False])
def test_what_a_warp_knows_from_a_barrier_it_passes_on_at_the_next(write_before):
    """Warp 0 meets warp 1, which then meets warp 2, which reads what warp 0 wrote before that or behind it."""
    write = "@%p3 st.shared.u32 [%r1], 1;"
    told = f"{write} bar.arrive 1, 64;" if write_before else f"bar.arrive 1, 64; {write}"
    code = f"""shr.u32 %r3, %r0, 5; setp.eq.u32 %p1, %r3, 1; setp.eq.u32 %p2, %r3, 2; setp.eq.u32 %p3, %r0, 0;
@%p1 bra PASS; @%p2 bra READ; {told} bra END; PASS: bar.sync 1, 64; bar.arrive 2, 64; bra END;
READ: bar.sync 2, 64; ld.shared.u32 %r2, [%r1]; END:"""
    assert kinds_of(code, 96) == ([] if write_before else [RACE])


if __name__ == "__main__":
    write_reports(FILE, report)
