"""Clusters against the PTX manual: who is where, each other's shared memory, and the cluster's barrier."""

from __future__ import annotations

import itertools

import pytest
import torch

from gemm_ref import Launch, ptx
from gemm_ref.ptx.program import BATCH_LANES
from tests.ptx.harness import HEADER, bits_of, run_kernel, words

HEAD = """.reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .pred %p<9>; .shared .align 16 .b32 room[64];
.shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x; mov.u32 %r1, room; ld.param.u64 %rd0, [p0]; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p1, %r0, 0;
mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ctaid.y; mov.u32 %r22, %ctaid.z; mov.u32 %r23, %nctaid.x;
mov.u32 %r24, %nctaid.y;
mad.lo.u32 %r25, %r22, %r24, %r21; mad.lo.u32 %r25, %r25, %r23, %r20; mul.lo.u32 %r26, %r25, %ntid.x;
add.u32 %r26, %r26, %r0; mul.wide.u32 %rd1, %r26, 4; add.s64 %rd1, %rd1, %rd0; shl.b32 %r3, %r0, 2;
add.u32 %r4, %r1, %r3;
"""
PAIRS = ".explicitcluster\n.reqnctapercluster 2, 1, 1\n"
MEET = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n"


def results(body: str, grid, cluster, block: int = 32) -> list[int]:
    out = words([0] * (grid[0] * grid[1] * grid[2] * block))
    run_kernel(HEAD + body, [out], grid, (block, 1, 1), cluster=cluster)
    return bits_of(out)


@pytest.mark.parametrize("grid, cluster", [
    ((4, 1, 1), (2, 1, 1)), ((4, 6, 2), (1, 2, 1)), ((4, 6, 2), (2, 3, 1)), ((2, 2, 4), (1, 2, 4)),
    ((3, 2, 1), (1, 1, 1)),
])  # fmt: skip
def test_special_registers_say_where_a_block_is(grid, cluster):
    places = ("cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid")
    names = [*(f"{place}.{axis}" for place in places for axis in "xyz"), "cluster_ctarank", "cluster_nctarank"]
    body = "".join(f"setp.eq.u32 %p2, %r0, {i}; @%p2 mov.u32 %r5, %{name};\n" for i, name in enumerate(names))
    body += ".reg .pred %q; mov.pred %q, %is_explicit_cluster; setp.eq.u32 %p2, %r0, 14; @%p2 selp.u32 %r5, 1, 0, %q;\n"
    found = iter(results(body + "st.global.u32 [%rd1], %r5;", grid, cluster, block=16))
    for z, y, x in itertools.product(*(range(size) for size in reversed(grid))):
        inside = [place % size for place, size in zip((x, y, z), cluster, strict=True)]
        outside = [place // size for place, size in zip((x, y, z), cluster, strict=True)]
        count = [blocks // size for blocks, size in zip(grid, cluster, strict=True)]
        rank = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        size = cluster[0] * cluster[1] * cluster[2]
        said = list(itertools.islice(found, 16))[:15]
        assert said == [*inside, *cluster, *outside, *count, rank, size, int(size > 1)]


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("cluster", [(4, 1, 1), (2, 2, 1)])
def test_blocks_read_and_write_each_others_shared_memory(generic, cluster):
    """Each block writes to its right neighbour in the ring of ranks, and reads what its left neighbour has."""
    if generic:
        space, reg, kind = "", "%rd", "u64"
        start = "cvt.u64.u32 %rd4, %r4; cvta.shared.u64 %rd4, %rd4;"
    else:
        space, reg, kind, start = ".shared::cluster", "%r", "u32", ""
    body = f"""{start} add.u32 %r5, %r2, 1; and.b32 %r5, %r5, 3; add.u32 %r6, %r2, 3; and.b32 %r6, %r6, 3;
mapa{space}.{kind} {reg}7, {reg}4, %r5; mapa{space}.{kind} {reg}8, {reg}4, %r6; getctarank{space}.{kind} %r9, {reg}8;
mad.lo.u32 %r10, %r2, 1000, %r0; {MEET} st{space}.u32 [{reg}7], %r10; {MEET}
ld{space}.u32 %r11, [{reg}8]; ld.shared.u32 %r12, [%r4]; mul.lo.u32 %r9, %r9, 100000000;
mad.lo.u32 %r12, %r12, 10000, %r11;
add.u32 %r12, %r12, %r9; st.global.u32 [%rd1], %r12; {MEET}"""
    grid = (8, 2, 1)
    found = results(body, grid, cluster, block=8)
    for y, x, thread in itertools.product(range(2), range(8), range(8)):
        rank = x % cluster[0] + cluster[0] * (y % cluster[1])
        left, before = (rank + 3) % 4, (rank + 2) % 4
        wanted = left * 100000000 + (left * 1000 + thread) * 10000 + before * 1000 + thread
        assert found[(y * 8 + x) * 8 + thread] == wanted & 0xFFFFFFFF


@pytest.mark.parametrize("blocks, cluster", [(3 * BATCH_LANES // 512 // 3 * 3, (3, 1, 1)), (600, (1, 4, 1))])
def test_a_cluster_is_never_split_between_batches(blocks, cluster):
    size = cluster[0] * cluster[1]
    grid = (blocks, 1, 1) if cluster[1] == 1 else (blocks // 4, 4, 1)
    body = f"@%p1 st.shared.u32 [%r1], %r25; {MEET} mapa.shared::cluster.u32 %r5, %r1, {size - 1};\n"
    body += f"ld.shared::cluster.u32 %r6, [%r5]; @%p1 st.global.u32 [%rd1], %r6; {MEET}"
    found = results(body, grid, cluster, block=512)[::512]
    for block in range(blocks):
        x, y = block % grid[0], block // grid[0]
        last = x // cluster[0] * cluster[0] + cluster[0] - 1 + grid[0] * (y // cluster[1] * cluster[1] + cluster[1] - 1)
        assert found[block] == last


# --- launches ------------------------------------------------------------------------------------------------


def test_a_kernel_may_say_its_cluster_itself():
    text = f"""{HEADER}.visible .entry k(.param .u64 p0)\n{PAIRS}{{
.reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd0, [p0]; mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %ctaid.x;
mul.wide.u32 %rd1, %r1, 4; add.s64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r0; ret; }}"""
    kernel, out = ptx.load(text), torch.zeros(4, dtype=torch.int32)
    for cluster in ((1, 1, 1), (2, 1, 1)):
        ptx.run(kernel, Launch((4, 1, 1), (1, 1, 1), cluster=cluster), [out.zero_()])
        assert out.tolist() == [0, 1, 0, 1]
