"""The fault detectors on Hopper's asynchronous units: silent where a kernel is right, and what they say of mistakes."""

from __future__ import annotations

import re

import pytest
import torch
from ptx_harness import run_kernel
from test_ptx_bulk_copy import HEAD, LOAD, STORE, WAIT
from test_ptx_hopper import clustered, minimal, specialized

from gemm_ref import ptx
from gemm_ref.ptx.finding import EARLY, RACE, UNWRITTEN


def findings(run, *args, **options) -> list[ptx.Finding]:
    detectors = ptx.Detectors()
    with ptx.watched(detectors):
        run(*args, **options)
    return list(detectors.findings)


@pytest.mark.parametrize("run, options", [
    (minimal, {}), (minimal, {"b_rows": False}), (specialized, {}), (specialized, {"poll": True}),
    (specialized, {"blocks": 1}), (clustered, {}),
])  # fmt: skip
@pytest.mark.parametrize("sizes", [(130, 72, 456), (64, 64, 64)], ids=str)
def test_nothing_is_found_in_a_kernel_that_is_right(run, options, sizes):
    assert findings(run, sizes, **options) == []


@pytest.mark.parametrize("run, options, sizes, kind, line, message", [
    (minimal, {"fault": 1}, (64, 64, 64), EARLY, "wgmma.mma_async", "started a bulk copy .* was not waited for"),
    (minimal, {"fault": 3}, (64, 64, 64), EARLY, "wgmma.mma_async", "started a bulk copy .* was not waited for"),
    (minimal, {"fault": 4}, (64, 64, 64), EARLY, "st.global", "an accumulator of the wgmma at .*not waited for"),
    (minimal, {"fault": 4}, (64, 64, 128), RACE, "cp.async.bulk", "may still be reading by what it started"),
    (minimal, {"fault": 5}, (64, 64, 192), RACE, "cp.async.bulk", "may still be reading by what it started"),
    (specialized, {"fault": 3, "blocks": 1}, (256, 128, 64), RACE, "st.shared", "may still be reading by what"),
    # right in lockstep, where both blocks are equally fast
    (clustered, {"fault": 1}, (128, 64, 512), RACE, "multicast", r"thread \(0, 0, 0\) reads .* no barrier orders"),
])  # fmt: skip
def test_a_mistake_is_found(run, options, sizes, kind, line, message):
    found = [finding for finding in findings(run, sizes, **options) if finding.kind == kind]
    texts = [str(finding) for finding in found if line in str(finding)]
    assert texts, [str(finding) for finding in found]
    assert re.search(message, texts[0]), texts[0]


# --- one step each -------------------------------------------------------------------------------------------

TILE = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n"
TILE += "@%p1 " + LOAD.format(rank=2, space="cta", tile="") + " [%r2], [%rd1, {0, 0}], [%r1];\n"
READ = "ld.shared.u32 %r5, [%r2+4];\n"


def of(body: str, threads: int = 64) -> list[tuple[str, int]]:
    """Kind and line of the findings, of lines after HEAD."""
    detectors, tensor, out = ptx.Detectors(), torch.ones(8, 8), torch.zeros(64)
    head = HEAD.replace("\n", " ")
    run_kernel(f"{head}\n{body}", [ptx.TensorMap(tensor, (8, 8)), out], block=(threads, 1, 1), observers=[detectors])
    return [(finding.kind, finding.line) for finding in detectors.findings]


def test_who_waits_may_read_and_whoever_meets_them_then():
    assert of(TILE + WAIT + READ) == []
    one_waits = "@!%p1 bra MEET;\n" + WAIT + "MEET: {}\n"
    assert of(TILE + one_waits.format("bar.sync 0;") + READ) == []
    assert of(TILE + one_waits.format("mov.u32 %r6, 0;") + READ) == [(RACE, 7)]  # of the second warp
    assert of(TILE + READ + WAIT) == [(EARLY, 4)]


def test_a_tile_is_written_over_what_others_read_only_behind_a_barrier():
    again = (TILE + WAIT).replace("WAIT", "AGAIN").replace(", 0; @!%p2", ", 1; @!%p2")
    assert of(TILE + WAIT + READ + "bar.sync 0;\n" + again) == []
    found = of(TILE + WAIT + READ + again)
    assert [kind for kind, _ in found] == [RACE] and found[0][1] == 7


def test_an_arrival_orders_what_came_before_it_and_not_what_comes_after():
    body = """@%p1 mbarrier.init.shared::cta.b64 [%r1+8], 32; bar.sync 0; setp.lt.u32 %p3, %r0, 32; @!%p3 bra SECOND;
{} st.shared.u32 [%r2], 5; {} bra DONE; SECOND:
SLOT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], 0; @!%p2 bra SLOT; setp.eq.u32 %p4, %r0, 32;
@%p4 ld.shared.u32 %r5, [%r2]; DONE:"""
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%r1+8];"
    one = body.replace("st.shared.u32", "@%p1 st.shared.u32")
    assert of(one.format("", arrive)) == []
    assert (RACE, 5) in of(one.format(arrive, "")) or (UNWRITTEN, 5) in of(one.format(arrive, ""))


def test_a_store_reads_until_it_was_waited_for():
    fill = "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r2; st.shared.u32 [%r4], %r0; bar.sync 0;\n"
    store = "@%p1 " + STORE.format(rank=2, tile="") + " [%rd1, {0, 0}], [%r2]; cp.async.bulk.commit_group;\n"
    wait, write = "cp.async.bulk.wait_group.read 0;\n", "st.shared.u32 [%r4], 7;\n"
    assert of(fill + store + wait + "bar.sync 0;\n" + write) == []
    assert of(fill + store + "bar.sync 0;\n" + write + wait) == [(RACE, 5)]
    assert of(fill + store + wait + write)[:1] == [(RACE, 5)]  # the others did not wait
    assert of("shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r2;\n" + store + wait)[:1] == [(UNWRITTEN, 3)]
    assert (RACE, 3) in of(fill.replace("bar.sync 0;", "") + store + wait)


def test_blocks_of_a_cluster_meet_at_its_barrier():
    body = """mapa.shared::cluster.u32 %r6, %r2, 1; mov.u32 %r7, %cluster_ctarank; setp.eq.and.u32 %p3, %r7, 0, %p1;
@%p3 st.shared::cluster.u32 [%r6], 5; barrier.cluster.arrive;{} setp.eq.and.u32 %p4, %r7, 1, %p1;
@%p4 ld.shared.u32 %r5, [%r2]; {} barrier.cluster.arrive; barrier.cluster.wait;"""

    def found(first: str, second: str) -> list[str]:
        detectors = ptx.Detectors()
        args = [ptx.TensorMap(torch.ones(8, 8), (8, 8)), torch.zeros(4)]
        run_kernel(f"{HEAD}\n{body.format(first, second)}", args, (2, 1, 1), observers=[detectors], cluster=(2, 1, 1))
        return [finding.kind for finding in detectors.findings]

    assert found("barrier.cluster.wait;", "") == []
    assert found("", "barrier.cluster.wait;") == [RACE]
