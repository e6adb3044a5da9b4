"""The fault detectors on Hopper's asynchronous units: silent where a kernel is right, and the findings of mistakes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from gemm_ref import ptx
from gemm_ref.ptx.detect.finding import EARLY, ENDED, MISSED, RACE, UNWRITTEN
from tests.ptx.harness import run_kernel
from tests.ptx.units.test_bulk_copies import HEAD, LOAD, STORE, WAIT
from tests.ptx.units.test_wgmma import COMMIT, FENCE, WAIT_GROUP, descriptor, instruction, setting

TILE = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n"
TILE += "@%p1 " + LOAD.format(rank=2, space="cta", tile="") + " [%r2], [%rd1, {0, 0}], [%r1];\n"
READ = "ld.shared.u32 %r5, [%r2+4];\n"


def of(body: str, threads: int = 64) -> list[tuple[str, int]]:
    """Kind and line of the findings, of lines after HEAD."""
    detectors, tensor, out = ptx.Detectors(), torch.ones(8, 8), torch.zeros(64)
    head = HEAD.replace("\n", " ")
    run_kernel(f"{head}\n{body}", [ptx.TensorMap(tensor, (8, 8)), out], block=(threads, 1, 1), observers=[detectors])
    return [(finding.kind, finding.line) for finding in detectors.findings]


def of_two_blocks(body: str, args: Sequence = (), threads: int = 32) -> list[tuple[str, int]]:
    """Returns kind and line of the findings where two blocks of a cluster run a body."""
    detectors = ptx.Detectors()
    run_kernel(body, args, (2, 1, 1), (threads, 1, 1), observers=[detectors], cluster=(2, 1, 1))
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
    fill = "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r2; st.shared.u32 [%r4], %r0; fence.proxy.async; bar.sync 0;\n"
    store = "@%p1 " + STORE.format(rank=2, tile="") + " [%rd1, {0, 0}], [%r2]; cp.async.bulk.commit_group;\n"
    wait, write = "cp.async.bulk.wait_group.read 0;\n", "st.shared.u32 [%r4], 7;\n"
    assert of(fill + store + wait + "bar.sync 0;\n" + write) == []
    assert of(fill + store + "bar.sync 0;\n" + write + wait) == [(RACE, 5)]
    assert of(fill + store + wait + write)[:1] == [(RACE, 5)]  # the others did not wait
    assert of("shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r2;\n" + store + wait)[:1] == [(UNWRITTEN, 3)]
    assert (RACE, 3) in of(fill.replace("bar.sync 0;", "") + store + wait)


def test_a_wgmma_reads_and_computes_until_it_was_waited_for():
    """64 x 16 elements of A and the first 8 rows of them as B, of 1024 bytes from the tile on."""
    fill = "shl.b32 %r4, %r0, 4; add.u32 %r4, %r4, %r2; st.shared.v4.u32 [%r4], {1, 1, 1, 1};"
    fill += " fence.proxy.async; bar.sync 0; .reg .f32 %d<4>;" + setting(4)
    operands = (str(descriptor(1024, leading, 128, 0)) for leading in (1024, 128))
    multiply = FENCE + instruction("bf16.bf16", 8, *operands, "1, 1, 0, 0") + COMMIT
    wait, write, use = WAIT_GROUP.format(0), "st.shared.u32 [%r4], 7;\n", "neg.f32 %d3, %d0;\n"
    assert of(fill + multiply + wait + "bar.sync 0;\n" + write + use, threads=128) == []
    assert of(fill + multiply + "bar.sync 0;\n" + write + wait, threads=128) == [(RACE, 7)]
    assert of(fill + multiply + use + wait, threads=128) == [(EARLY, 6)]
    assert (EARLY, 6) in of(fill + TILE + multiply + WAIT + wait, threads=128)


@pytest.mark.parametrize(
    "meet, expected", [("barrier.cluster.arrive; barrier.cluster.wait;", []), ("bar.sync 0;", [RACE])]
)
def test_a_multicast_overwrites_what_another_block_still_reads(meet, expected):
    """Block 0 sends a tile to both blocks, and then another one."""
    load = (
        f"@%p5 {LOAD.format(rank=2, space='cluster', tile='')}.multicast::cluster [%r2], [%rd1, {{0, 0}}], [%r1], %h1;"
    )
    expect = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;"
    ends = "barrier.cluster.arrive; barrier.cluster.wait;\n"
    again = WAIT.replace("WAIT", "AGAIN").replace(", 0; @!%p2", ", 1; @!%p2")
    body = f"""{HEAD} mov.u32 %r10, %cluster_ctarank; setp.eq.and.u32 %p5, %r10, 0, %p1; mov.u16 %h1, 3;
{expect} {ends} {load} {WAIT} {READ} {expect} {meet} {load} {again} {ends}"""
    args = [ptx.TensorMap(torch.ones(8, 8), (8, 8)), torch.zeros(4)]
    assert [kind for kind, _ in of_two_blocks(body, args)] == expected


@pytest.mark.parametrize("before, behind, right", [
    ("", "", False), ("fence.proxy.async;", "", True), ("fence.proxy.async.shared::cta;", "", True),
    ("fence.proxy.async.global;", "", False), ("", "fence.proxy.async;", True),
])  # fmt: skip
def test_what_a_bulk_store_reads_is_fenced(before, behind, right):
    fill = "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r2; st.shared.u32 [%r4], %r0;\n"
    store = "@%p1 " + STORE.format(rank=2, tile="") + " [%rd1, {0, 0}], [%r2]; cp.async.bulk.commit_group;\n"
    body = fill + f"{before}\nbar.sync 0;\n{behind}\n" + store + "cp.async.bulk.wait_group.read 0;"
    assert of(body) == ([] if right else [(RACE, 6)])


@pytest.mark.parametrize("columns", [32, 27])
def test_the_padding_of_rows_is_not_missed(columns):
    """A store covers the columns that the map says, in whole pieces; without it, those columns' elements are missed."""
    padded = torch.zeros(4, 32)
    detectors = [ptx.Detectors(outputs=("P0",)) for _ in range(2)]
    store = "@%p1 " + STORE.format(rank=2, tile="") + " [%rd1, {0, 0}], [%r2]; cp.async.bulk.commit_group;\n"
    fill = "shl.b32 %r4, %r0, 4; add.u32 %r4, %r4, %r2; st.shared.v4.u32 [%r4], {7, 7, 7, 7}; fence.proxy.async;\n"
    for observer, body in zip(detectors, (fill + "bar.sync 0;\n" + store, ""), strict=True):
        map_ = ptx.TensorMap(padded, (32, 4), sizes=(columns, 4), strides=(128,))
        run_kernel(f"{HEAD}\n{body}cp.async.bulk.wait_group 0;", [map_, torch.zeros(4)], observers=[observer])
    assert detectors[0].findings == () and (padded != 0).sum() == 4 * map_.stored_columns
    (finding,) = detectors[1].findings
    assert finding.kind == MISSED and finding.count == 4 * columns


def test_blocks_of_a_cluster_meet_at_its_barrier():
    body = """mapa.shared::cluster.u32 %r6, %r2, 1; mov.u32 %r7, %cluster_ctarank; setp.eq.and.u32 %p3, %r7, 0, %p1;
@%p3 st.shared::cluster.u32 [%r6], 5; barrier.cluster.arrive;{} setp.eq.and.u32 %p4, %r7, 1, %p1;
@%p4 ld.shared.u32 %r5, [%r2]; {} barrier.cluster.arrive; barrier.cluster.wait;"""

    args = [ptx.TensorMap(torch.ones(8, 8), (8, 8)), torch.zeros(4)]
    for first, second, expected in (("barrier.cluster.wait;", "", []), ("", "barrier.cluster.wait;", [RACE])):
        found = of_two_blocks(f"{HEAD}\n{body.format(first, second)}", args)
        assert [kind for kind, _ in found] == expected


# --- mbarriers as such, and how long shared memory lives -----------------------------------------------------


def test_an_mbarrier_is_used_behind_a_barrier_after_its_init():
    body = "@%p1 mbarrier.init.shared::cta.b64 [%r1+8], 64;\n{}\nmbarrier.arrive.shared::cta.b64 _, [%r1+8];"
    assert of(body.format("bar.sync 0;")) == []
    assert of(body.format("")) == [(RACE, 4)]


def test_each_thread_of_a_warp_is_told_of_an_init():
    body = "@%p1 mbarrier.init.shared::cta.b64 [%r1+8], 32;\n{}\nmbarrier.arrive.shared::cta.b64 _, [%r1+8];"
    assert of(body.format("bar.warp.sync -1;"), threads=32) == []
    assert of(body.format(""), threads=32) == [(RACE, 4)]


@pytest.mark.parametrize("again", ["mbarrier.init.shared::cta.b64 [%r1+8], 1;", "@%p1 mbarrier.init.b64 [%r1], 2;"])
def test_a_live_mbarrier_is_not_initialised_again(again):
    """By all threads at once, or for another count; for the same one it changes nothing, and Triton does so."""
    with pytest.raises(ptx.PtxError, match=r"initialises the mbarrier at byte \d+ .*: let one thread do it, once"):
        of(again)
    invalidated = "@%p1 mbarrier.inval.shared::cta.b64 [%r1]; @%p1 mbarrier.init.shared::cta.b64 [%r1], 1;"
    assert of(invalidated) == of("@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;") == []


def test_a_copy_that_nobody_waits_for_may_land_when_its_block_has_ended():
    assert of(TILE + WAIT) == []
    assert of(TILE) == [(ENDED, 3)]


CLUSTER = """.reg .b64 %rd<9>; .reg .b32 %r<19>; .reg .pred %p<9>; .shared .align 8 .b64 bar[1]; mov.u32 %r0, %tid.x;
mov.u32 %r1, bar; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1], 2;
FENCE
MEET
mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1; mapa.shared::cluster.u32 %r4, %r1, %r3;
@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4];
END
"""
INIT_FENCE, WAITS = "fence.mbarrier_init.release.cluster;", "barrier.cluster.wait.acquire;"
RELAXED, RELEASED = (f"barrier.cluster.arrive.{order}; {WAITS}" for order in ("relaxed", "release"))


@pytest.mark.parametrize("fence, meet, end, expected", [
    (INIT_FENCE, RELAXED, RELAXED, []),
    ("", RELEASED, RELAXED, []),  # which is a fence too
    ("", RELAXED, RELAXED, [(RACE, 6)]),
    (INIT_FENCE, "bar.sync 0;", RELAXED, [(RACE, 6)]),  # for each block alone
    (INIT_FENCE, RELAXED, "", [(ENDED, 6)]),
    (INIT_FENCE, RELAXED, "bar.sync 0;", [(ENDED, 6)]),
    (INIT_FENCE, RELAXED, "@%p1 bra LATE; exit; LATE: mov.u32 %r5, 0;", [(ENDED, 6)]),
    (INIT_FENCE, RELAXED, f"@%p1 bra LATE; exit; LATE: {RELAXED}", []),
])  # fmt: skip
def test_an_mbarrier_of_another_block_is_there_and_known(fence, meet, end, expected):
    body = CLUSTER.replace("FENCE", fence).replace("MEET", meet).replace("END", end)
    assert of_two_blocks(body) == expected


def test_what_one_warp_learns_of_another_block_a_barrier_passes_on():
    """Warp 1 of block 0 reads what block 1 wrote and told warp 0 of by an mbarrier."""
    body = """.reg .b32 %r<19>; .reg .pred %p<9>; .shared .align 8 .b64 bar[1]; .shared .align 8 .b8 tile[64];
mov.u32 %r0, %tid.x; mov.u32 %r1, bar; mov.u32 %r2, tile; setp.eq.u32 %p1, %r0, 0; mov.u32 %r9, %cluster_ctarank;
@%p1 mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive; barrier.cluster.wait; setp.eq.u32 %p2, %r9, 0; @%p2 bra FIRST;
mapa.shared::cluster.u32 %r4, %r1, 0; mapa.shared::cluster.u32 %r5, %r2, 0;
@%p1 st.shared::cluster.u32 [%r5], 7; @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4]; bra DONE;
FIRST: setp.lt.u32 %p3, %r0, 32; @!%p3 bra MEET;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0; @!%p4 bra WAIT;
MEET: BARRIER
setp.eq.u32 %p5, %r0, 32; @%p5 ld.shared.u32 %r7, [%r2];
DONE: barrier.cluster.arrive; barrier.cluster.wait;
"""
    for barrier, expected in (("bar.sync 0;", []), ("bar.warp.sync -1;", [RACE])):
        found = of_two_blocks(body.replace("BARRIER", barrier), threads=64)
        assert [kind for kind, _ in found] == expected
