"""Each fault detector on tiny kernels (faults.cu): what it must report, with lines and threads, and what not."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

from gemm_ref import Launch, ptx
from gemm_ref.ptx.detect.finding import APART, EARLY, MISSED, MIXED, RACE, SKIPPED, TWICE, UNWRITTEN
from tests.ptx.harness import compiled, run_kernel

SOURCE = Path(__file__).with_name("faults.cu")
THREADS, BLOCKS = 64, 2

# (kernel, fault) -> of each finding: its kind, the marks of its line and of the other's, and the two threads (in x).
FAULTS = {
    ("neighbour", 1): [(RACE, "R", "W", 0, 1)],
    ("rounds", 1): [(RACE, "OW", "OR", 0, 63)],
    ("lanes", 1): [(RACE, "L", "LW", 0, 1)],
    ("lanes", 2): [(RACE, "L", "LW", 0, 16)],
    ("pairs", 1): [(RACE, "Q", "QW", 0, 3)],
    ("pipe", 1): [(RACE, "PR", "PW", 32, 31)],
    ("pipe", 2): [(RACE, "PW", "PR", 0, 63), (MIXED, "PA", None, 0, 32)],  # nor does it wait to arrive again
    ("groups", 1): [(MIXED, "N", None, 32, 0)],
    ("copies", 1): [(EARLY, "O", "copy", 0, 0), (EARLY, "H", "copy", 0, 63)],
    ("copies", 2): [(RACE, "H", "copy", 0, 63)],
    ("copies", 3): [(EARLY, "E", "copy", 0, 0)],
    ("copies", 4): [(RACE, "V", "copy", 0, 0)],
    ("copies", 5): [(EARLY, "O", "copy", 0, 0), (EARLY, "H", "copy", 0, 63)],
    ("copies", 6): [(RACE, "copy", "P", 0, 63)],
    ("unwritten", 1): [(UNWRITTEN, "U", None, 0, None)],
    ("skips", 1): [(MISSED, "SW", None, None, None)],
    ("skips", 2): [(APART, "SA", "SB", 40, 0)],
    ("skips", 3): [(MISSED, "SW", None, None, None)],
    ("skips", 4): [(SKIPPED, "SB", "SC", 0, 40)],
    ("elements", 1): [(TWICE, "T", "T", 0, 1), (MISSED, "T", None, None, None)],
    ("elements", 2): [(TWICE, "B", "B", 0, 0), (MISSED, "B", None, None, None)],
    ("elements", 3): [(MISSED, "M", None, None, None)],
    ("elements", 4): [(MISSED, "}", None, None, None)],
    ("elements", 5): [(RACE, "G", "M", 0, 0), (RACE, "G", "G", 0, 0)],
    ("elements", 6): [(UNWRITTEN, "A", None, 0, None)],
    ("agreed", 1): [(RACE, "AG", "AG", 0, 31)],
    ("atomics", 1): [(RACE, "AR", "AW", 0, 63)],
}
KERNELS = tuple(dict.fromkeys(kernel for kernel, _ in FAULTS))


def text() -> str:
    return compiled(SOURCE)


@functools.cache
def marks() -> dict[tuple[str, int], str]:
    """(file, line) -> the mark at the end of that line of the source."""
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    return {(SOURCE.name, n): code.split("// ")[-1] for n, code in enumerate(lines, 1) if "  // " in code}


def mark(file: str | None, line: int | None) -> str | None:
    """What FAULTS calls a line: its mark, the header it is in, or } for the end of a kernel."""
    if file is None:
        return None
    headers = {"async_copy.cuh": "copy"}
    return headers.get(file) or marks().get((file, line), "}")


def run(kernel: str, fault: int) -> ptx.Detectors:
    detectors = ptx.Detectors()
    several = kernel in ("skips", "elements")
    out = torch.zeros(THREADS * (BLOCKS if several else 1))
    launch = Launch((BLOCKS if several else 1, 1, 1), (THREADS, 1, 1), 4 * THREADS if kernel == "unwritten" else 0)
    name = "C" if kernel == "elements" else "out"
    ptx.run(ptx.load(text(), kernel), launch, [torch.ones(THREADS), out, fault], [detectors], names=("in", name))
    return detectors


@pytest.mark.parametrize("kernel, fault", FAULTS, ids=str)
def test_a_fault_is_reported_with_its_lines_and_threads(kernel, fault):
    found = [
        (
            f.kind,
            mark(f.file, f.line),
            mark(f.other_file, f.other_line),
            *(t and t[0] for t in (f.thread, f.other_thread)),
        )
        for f in run(kernel, fault).findings
    ]
    assert found == FAULTS[kernel, fault]


@pytest.mark.parametrize("kernel", KERNELS)
def test_its_twin_without_the_fault_is_not_reported(kernel):
    assert run(kernel, 0).findings == ()


def test_a_finding_says_where_who_and_what_to_do():
    (finding,) = run("neighbour", 1).findings
    assert (finding.block, finding.other_block) == ((0, 0, 0), (0, 0, 0))
    assert str(finding).startswith(f"faults.cu:{finding.line}: ld.shared.f32")
    assert str(finding).endswith(
        "block (0, 0, 0) thread (0, 0, 0) reads byte 4 of row_smem, which thread (1, 0, 0) writes at line "
        f"{finding.other_line}, and no barrier orders the two: put __syncthreads() between them (64 times)"
    )


def test_a_line_in_a_header_is_given_with_its_caller():
    (line,) = (number for (_, number), name in marks().items() if name == "C")
    (finding,) = run("copies", 2).findings
    assert finding.other_file == "async_copy.cuh" and f"(called at faults.cu:{line})" in str(finding)


def test_one_finding_counts_all_that_is_alike():
    assert [finding.count for finding in run("elements", 3).findings] == [1]
    assert [finding.count for finding in run("skips", 2).findings] == [2 * 40]


@pytest.mark.parametrize("fault, kinds", [(0, []), (2, [TWICE, MISSED]), (5, [UNWRITTEN, RACE, RACE])])
def test_blocks_that_run_in_different_batches_are_seen_together(monkeypatch, fault, kinds):
    monkeypatch.setattr("gemm_ref.ptx.program.BATCH_LANES", THREADS)
    assert [finding.kind for finding in run("elements", fault).findings] == kinds


def test_one_launch_is_ordered_before_the_next():
    detectors, out = ptx.Detectors(), torch.zeros(THREADS)
    kernel, launch = ptx.load(text(), "neighbour"), Launch((1, 1, 1), (THREADS, 1, 1))
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
        run("neighbour", 0)
    run("rounds", 0)
    assert seen == ["neighbour"]


def test_the_tile_of_an_element_that_is_missed():
    detectors = ptx.Detectors(tile=(2, 4))
    c = torch.zeros(8, 16)
    args = [torch.ones(THREADS), c, 3]
    ptx.run(ptx.load(text(), "elements"), Launch((2, 1, 1), (THREADS, 1, 1)), args, [detectors], names=("in", "C"))
    (finding,) = detectors.findings
    assert "C[7, 15] is never written, of 128 elements of C; the first is in tile (3, 3) of 2 x 4" in str(finding)


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
