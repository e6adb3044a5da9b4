"""Faults of Hopper's asynchronous units (twins.txt), each in a kernel beside its correct twin, with the findings.

They include the kinds of fault in the tests of ConSan, Triton's sanitizer of these units, which runs on the GPU; here a
detector names the fault, or the reference GPU stops. The kernels are our own, in PTX, with a warp for each partition of
a warp-specialised kernel. Kinds of Blackwell's units (tcgen05, tensor memory) are not included.

A line that begins with - is missing in the faulty kernel, and a line that begins with + is in that kernel alone.
`warps N` begins a part that the next N warps run. Behind > is a finding on the faulty kernel: its kind, the line, and
the line of the other access. `python -m tests.ptx.detect.test_twins` rewrites the findings.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from gemm_ref import ptx
from tests.messages import Block, read_blocks, write_blocks
from tests.ptx.harness import run_kernel
from tests.ptx.units.test_bulk_copies import HEAD, LOAD, STORE
from tests.ptx.units.test_wgmma import COMMIT, FENCE, WAIT_GROUP, descriptor, instruction, setting

FILE = Path(__file__).with_name("twins.txt")
BEGIN = f"""{HEAD} and.b32 %r9, %r0, 31; setp.eq.u32 %p8, %r9, 0; mov.u32 %r10, %cluster_ctarank; mov.u16 %h1, 3;
setp.eq.and.u32 %p5, %r10, 0, %p1; setp.eq.and.u32 %p6, %r10, 1, %p1;""".replace("\n", " ")


def multiply(start: int) -> str:
    """64 x 16 elements of A, and the first 8 rows of them as B."""
    operands = (str(descriptor(start, leading, 128, 0)) for leading in (1024, 128))
    return FENCE + instruction("bf16.bf16", 8, *operands, "1, 1, 0, 0") + COMMIT


def load(slot: int = 0, at: int = 0) -> str:
    return f"@%p8 {LOAD.format(rank=2, space='cta', tile='')} [%r2+{at}], [%rd1, {{0, 0}}], [%r1+{8 * slot}];"


def wait(slot: int = 0, parity: int = 0) -> str:
    test = f"mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+{8 * slot}], {parity}"
    return f"{{ W: {test}; @!%p2 bra W; }}"


OPERANDS = "setp.lt.u32 %p7, %r0, 128; shl.b32 %r4, %r0, 4; add.u32 %r4, %r4, %r2; .reg .f32 %d<4>;" + setting(4)
# Accesses are made by the first lane of each warp; with `one` by thread 0 alone, and with `all` by each thread.
WORDS = {
    "init": lambda count: f"@%p1 mbarrier.init.shared::cta.b64 [%r1+8], {count}; bar.sync 0;",
    "one_init": lambda count: f"@%p1 mbarrier.init.shared::cta.b64 [%r1+8], {count};",
    "invalidate": lambda: "@%p1 mbarrier.inval.shared::cta.b64 [%r1+8];",
    "wait": wait,
    "arrive": lambda slot=0, count=1: f"@%p8 mbarrier.arrive.shared::cta.b64 _, [%r1+{8 * slot}], {count};",
    "arrive_there": lambda: "xor.b32 %r3, %r10, 1; add.u32 %r4, %r1, 8; mapa.shared::cluster.u32 %r4, %r4, %r3; "
    "@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4];",
    "expect": lambda size, slot=0: f"@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+{8 * slot}], {size};",
    "load": load,
    "multicast": lambda: "@%p5" + load().removeprefix("@%p8").replace("shared::cta", "shared::cluster").replace(
        "::bytes", "::bytes.multicast::cluster").replace("[%r1+0];", "[%r1], %h1;"),
    "row": lambda: "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r2; st.shared.u32 [%r4], %r0;",
    "store": lambda: f"@%p1 {STORE.format(rank=2, tile='')} [%rd1, {{0, 0}}], [%r2]; cp.async.bulk.commit_group;",
    "wait_store": lambda: "cp.async.bulk.wait_group.read 0;",
    "copy": lambda at: f"@%p8 cp.async.ca.shared.global [%r2+{at}], [%rd0], 4; cp.async.commit_group;",
    "wait_copies": lambda pending: f"cp.async.wait_group {pending};",
    "operands": lambda: OPERANDS + "".join(f"@%p7 st.shared.v4.u32 [%r4+{at}], {{1, 1, 1, 1}};" for at in (0, 2048)),
    "multiply": multiply,
    "wait_products": WAIT_GROUP.format,
    "read": lambda at=4: f"@%p8 ld.shared.u32 %r5, [%r2+{at}];",
    "write": lambda at=4: f"@%p8 st.shared.u32 [%r2+{at}], 7;",
    "block": lambda: "bar.sync 0;",
    "fence": lambda: "fence.proxy.async;",
    "meet": lambda: "barrier.cluster.arrive; barrier.cluster.wait;",
    "meet_relaxed": lambda: "barrier.cluster.arrive.relaxed; barrier.cluster.wait;",
}  # fmt: skip


def statement(text: str) -> str:
    """Returns the PTX of a word with its arguments."""
    name, *numbers = text.split()
    if name in ("one", "all"):
        return statement(" ".join(numbers)).replace("@%p8 ", "@%p1 " if name == "one" else "")
    return WORDS[name](*map(int, numbers)).replace("\n", " ")


def kernel(lines: list[str]) -> str:
    """Returns PTX with a source line for each of these, from the second on."""
    sizes = [32 * int(line.split()[1]) for line in lines if line.startswith("warps ")]
    starts = [f"setp.ge.u32 %p7, %r0, {sum(sizes[:i])}; @%p7 bra PART{i};" for i in range(len(sizes) - 1, 0, -1)]
    parts = iter([" ".join(starts), *(f"bra DONE; PART{i}:" for i in range(1, len(sizes)))])
    body = [BEGIN]
    for line in lines:
        if line.startswith("warps "):
            body.append(next(parts))
        else:
            body.append(line if ";" in line else " ".join(statement(each) for each in line.split(", ")))
    return "\n".join([*body, "DONE: mov.u32 %r7, 0;" if sizes else ""])


def report(twins: Block, left_out: str) -> list[str]:
    """Returns the findings on a kernel without the lines that begin with the sign `left_out`, or its fault."""
    size = re.search(r": (?:(\d) blocks of )?(\d+) threads$", twins.title)
    grid, block = (int(size[1] or 1), 1, 1), (int(size[2]), 1, 1)
    lines = [line if line.startswith("warps ") else line[2:] for line in twins.lines if line[0] != left_out]
    arguments, names = [ptx.TensorMap(torch.ones(8, 8), (8, 8)), torch.zeros(64)], ["", "", *lines, ""]
    detectors = ptx.Detectors()
    try:
        run_kernel(kernel(lines), arguments, grid, block, observers=[detectors], cluster=grid)
    except ptx.PtxError as error:
        place = re.match(r"probe.cu:(\d+)", str(error))
        return [f"{type(error).__name__}: {names[int(place[1])] if place else str(error).split(':')[0]}"]
    found = detectors.findings
    return [f"{each.kind}: {names[each.line]} / {names[each.other_line or 0]}".removesuffix(" / ") for each in found]


@pytest.mark.parametrize("twins", read_blocks(FILE), ids=lambda twins: twins.title)
def test_a_fault_is_reported_and_its_twin_is_not(twins):
    assert report(twins, "+") == []
    assert report(twins, "-") == twins.expected


if __name__ == "__main__":
    write_blocks(FILE, lambda twins: report(twins, "-"))
