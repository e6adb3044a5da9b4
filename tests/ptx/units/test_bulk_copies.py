"""Tensor maps and bulk copies: what a tile is, where it lies in shared memory, and when it is there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gemm_ref import ptx
from gemm_ref.ptx.detect.finding import MISSED
from tests.ptx.harness import bits_of, run_kernel, words

HEAD = """.reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .b16 %h<4>; .reg .pred %p<9>; .shared .align 8 .b64 bar[2];
.shared .align 1024 .b8 tile[16384]; mov.u32 %r0, %tid.x; mov.u32 %r1, bar; mov.u32 %r2, tile; setp.eq.u32 %p1, %r0, 0;
mov.b64 %rd1, p0; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd0, [p1];
@%p1 mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
"""
HEAD_OF_BYTES = HEAD.replace("mov.b64 %rd1, p0; cvta.param.u64 %rd1, %rd1;", "ld.param.u64 %rd1, [p0];")  # no map
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;\n"
LOAD = "cp.async.bulk.tensor.{rank}d.shared::{space}.global{tile}.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta{tile}.bulk_group"
FILL = """mov.u32 %r3, %r0; FILL: shl.b32 %r4, %r3, 2; add.u32 %r4, %r4, %r2; st.shared.u32 [%r4], {value};
add.u32 %r3, %r3, %ntid.x; setp.lt.u32 %p3, %r3, {words}; @%p3 bra FILL; bar.sync 0;
"""
DUMP = """mov.u32 %r3, %r0; DUMP: shl.b32 %r4, %r3, 2; cvt.u64.u32 %rd2, %r4; add.s64 %rd2, %rd2, %rd0;
add.u32 %r4, %r4, %r2;
ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd2], %r5; add.u32 %r3, %r3, %ntid.x; setp.lt.u32 %p3, %r3, {words};
@%p3 bra DUMP;
"""


def coordinates(where) -> str:
    return "{" + ", ".join(map(str, where)) + "}"


def loaded(map_: ptx.TensorMap, where, offset: int = 0, space: str = "cluster", tile: str = "", before: str = WAIT):
    """The bytes of shared memory from `offset` on after a tile was loaded there."""
    size = map_.box_bytes
    load = LOAD.format(rank=len(where), space=space, tile=tile)
    out = torch.zeros(size // 4, dtype=torch.int32)
    body = f"""{HEAD} add.u32 %r2, %r2, {offset}; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {size};
@%p1 {load} [%r2], [%rd1, {coordinates(where)}], [%r1];
{before}{DUMP.format(words=size // 4)}"""
    run_kernel(body, [map_, out])
    return out.numpy().tobytes()


def expected(tensor: torch.Tensor, box, where, swizzle: int, offset: int = 0) -> bytes:
    """Returns the same bytes by the CUDA programming guide.

    16-byte pieces of a row change places within the swizzle's span, by the number of the 128-byte line (counted from a
    multiple of 1024) that they are in.
    """
    elements = tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]).numpy()
    ranges = [np.arange(start, start + size) for start, size in zip(reversed(where), reversed(box), strict=True)]
    inside = [(at >= 0) & (at < size) for at, size in zip(ranges, tensor.shape, strict=True)]
    tile = np.zeros([at.size for at in ranges], elements.dtype)
    tile[np.ix_(*inside)] = elements[np.ix_(*(at[here] for at, here in zip(ranges, inside, strict=True)))]
    plain = tile.view(np.uint8).reshape(-1, 16)
    place = np.arange(len(plain)) + offset // 16
    swizzled = np.empty_like(plain)
    swizzled[(place ^ place // 8 % {0: 1, 32: 2, 64: 4, 128: 8}[swizzle]) - offset // 16] = plain
    return swizzled.tobytes()


def numbered(*shape: int, dtype=torch.float32) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(1, count + 1) % 251 + 1).to(dtype).reshape(shape)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.uint8])
@pytest.mark.parametrize("where", [(0, 0), (16, 5), (-16, -3), (48, 50), (208, 0), (32, 60), (-32, 1)])
def test_a_tile_in_every_swizzle_with_zeros_outside_of_the_tensor(swizzle, dtype, where):
    tensor = numbered(64, 64, dtype=dtype)
    box = ((swizzle or 32) // tensor.element_size(), 24)
    assert loaded(ptx.TensorMap(tensor, box, swizzle), where) == expected(tensor, box, where, swizzle)


@pytest.mark.parametrize("offset", [128, 512, 1152])
def test_the_swizzle_is_that_of_the_address(offset):
    tensor = numbered(16, 64, dtype=torch.bfloat16)
    found = loaded(ptx.TensorMap(tensor, (64, 16), 128), (0, 0), offset)
    assert found == expected(tensor, (64, 16), (0, 0), 128, offset)


@pytest.mark.parametrize("shape, box, where", [
    ((100,), (32,), (80,)), ((4, 6, 16), (8, 3, 2), (12, 4, -1)), ((2, 3, 4, 8), (4, 2, 3, 2), (4, 1, 1, 1)),
    ((2, 2, 3, 4, 8), (8, 2, 2, 2, 2), (0, 3, 2, 1, 1)),
])  # fmt: skip
@pytest.mark.parametrize("space, tile", [("cta", ""), ("cluster", ".tile")])
def test_tiles_of_one_to_five_dimensions(shape, box, where, space, tile):
    tensor = numbered(*shape)
    assert loaded(ptx.TensorMap(tensor, box), where, space=space, tile=tile) == expected(tensor, box, where, 0)


def test_sizes_and_strides_of_a_padded_tensor():
    padded = numbered(20, 40)
    found = loaded(ptx.TensorMap(padded, (8, 8), sizes=(35, 18), strides=(160,)), (32, 16))
    assert found == expected(padded[:18, :35].contiguous(), (8, 8), (32, 16), 0)
    assert loaded(ptx.TensorMap(padded[:18, :35], (8, 8)), (32, 16)) == found


# --- when ----------------------------------------------------------------------------------------------------


def test_a_tile_that_is_not_waited_for_is_not_there():
    tensor = numbered(8, 8)
    fill = FILL.format(value=9, words=64)
    found = loaded(ptx.TensorMap(tensor, (8, 8)), (0, 0), before=fill)
    assert found == (9).to_bytes(4, "little") * 64
    assert loaded(ptx.TensorMap(tensor, (8, 8)), (0, 0), before=fill + WAIT) == tensor.numpy().tobytes()


def test_a_tensor_is_read_when_the_copy_lands():
    tensor, out = numbered(8, 8), torch.zeros(64)
    map_ = ptx.TensorMap(tensor, (8, 8))
    body = f"""{HEAD} ld.param.u64 %rd3, [p2]; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
@%p1 {LOAD.format(rank=2, space="cta", tile="")} [%r2], [%rd1, {{0, 0}}], [%r1];
@%p1 st.global.u32 [%rd3], 0f42F60000; bar.sync 0; {WAIT} {DUMP.format(words=64)}"""
    run_kernel(body, [map_, out, tensor])
    assert out[0] == 123 and torch.equal(out[1:], numbered(8, 8).flatten()[1:])


def test_two_tiles_for_one_barrier_and_the_bytes_that_it_expects():
    tensor, out = numbered(8, 16), torch.zeros(128)
    load = LOAD.format(rank=2, space="cluster", tile="")
    body = """{head} {fill} @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {bytes};
@%p1 {load} [%r2], [%rd1, {{0, 0}}], [%r1]; @%p1 {load} [%r2+256], [%rd1, {{8, 0}}], [%r1];
{wait} {dump}"""
    parts = {"head": HEAD, "load": load, "wait": WAIT, "dump": DUMP.format(words=128)}
    fill = FILL.format(value="0fBF800000", words=128)
    map_ = ptx.TensorMap(tensor, (8, 8))
    run_kernel(body.format(**parts, fill=fill, bytes=512), [map_, out])
    both = torch.cat([tensor[:, :8].flatten(), tensor[:, 8:].flatten()])
    assert torch.equal(out, both)
    run_kernel(body.format(**parts, fill=fill, bytes=256), [map_, out])  # the phase may end after the first
    assert torch.equal(out, torch.cat([both[:64], torch.full((64,), -1.0)]))


# --- stores --------------------------------------------------------------------------------------------------

NUMBER = FILL.format(value="%r3", words="{words}")  # word i of shared memory is i


def stored(map_: ptx.TensorMap, after: str, where=(0, 0), **options) -> None:
    store = STORE.format(rank=len(where), tile="")
    body = HEAD + NUMBER.format(words=map_.box_bytes // 4) + "fence.proxy.async.shared::cta;\n@!%p1 bra LEAVE;\n"
    body += f"{store} [%rd1, {coordinates(where)}], [%r2];\n{after}\nLEAVE:"
    run_kernel(body, [map_, torch.zeros(1)], **options)


WAITS = "cp.async.bulk.commit_group; cp.async.bulk.wait_group{read} {keep};\n"
FULL_WAIT, READ_WAIT = (WAITS.format(read=read, keep=0) for read in ("", ".read"))


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("where", [(0, 0), (8, 3), (-4, -2), (30, 10)])
def test_a_stored_tile_is_clipped_at_the_tensors_edges(swizzle, where):
    tensor = torch.full((20, 32), -1, dtype=torch.int32)
    box = ((swizzle or 32) // 4, 12)
    stored(ptx.TensorMap(tensor, box, swizzle), FULL_WAIT, where)
    whole = torch.full((20 + 24, 32 + 64), -1, dtype=torch.int32)  # with a margin of 12 rows and 32 columns
    # where a piece lies: the inverse of loading, which is loading again
    at = expected(torch.arange(12 * box[0], dtype=torch.int32).reshape(12, box[0]), box, (0, 0), swizzle)
    tile = torch.frombuffer(bytearray(at), dtype=torch.int32).reshape(12, box[0])
    whole[12 + where[1] : 24 + where[1], 32 + where[0] : 32 + where[0] + box[0]] = tile
    assert torch.equal(tensor, whole[12:32, 32:64])


@pytest.mark.parametrize("columns, written", [(1, 4), (4, 4), (5, 8), (7, 8)])
def test_a_store_ends_the_last_16_bytes_of_a_row_as_an_h200_does(columns, written):
    memory = torch.full((2, 16), -1, dtype=torch.int32)
    stored(ptx.TensorMap(memory[:, :columns], (16, 2)), FULL_WAIT)
    assert (memory != -1).sum(1).tolist() == [written, written]


@pytest.mark.parametrize("wait, overwritten", [
    (READ_WAIT, False), (FULL_WAIT, False),
    (WAITS.format(read=".read", keep=1), True), ("cp.async.bulk.wait_group.read 0;\n", True),
])  # fmt: skip
def test_a_store_reads_its_tile_at_the_wait_and_not_before(wait, overwritten):
    tensor = torch.full((4, 4), -1, dtype=torch.int32)
    finish = "" if wait == FULL_WAIT else READ_WAIT
    stored(ptx.TensorMap(tensor, (4, 4)), f"{wait} st.shared.u32 [%r2], 77; {finish}")
    assert torch.equal(tensor.flatten(), torch.tensor([77 if overwritten else 0, *range(1, 16)], dtype=torch.int32))


@pytest.mark.parametrize("wait, there", [(FULL_WAIT, 5), (READ_WAIT, -1)])
def test_only_a_full_wait_makes_the_store_visible(wait, there):
    tensor, seen = torch.full((4, 4), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    after = f"{wait} ld.param.u64 %rd3, [p2]; ld.global.u32 %r6, [%rd3+20]; st.global.u32 [%rd0], %r6;"
    body = HEAD + NUMBER.format(words=16) + "@!%p1 bra LEAVE;\n" + STORE.format(rank=2, tile=".tile")
    run_kernel(f"{body} [%rd1, {{0, 0}}], [%r2]; {after} LEAVE:", [ptx.TensorMap(tensor, (4, 4)), seen, tensor])
    assert int(seen) == there and torch.equal(tensor.flatten(), torch.arange(16, dtype=torch.int32))


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


# --- without a tensor map ------------------------------------------------------------------------------------


def test_bytes_in_a_row():
    source, out = torch.arange(96, dtype=torch.int32), torch.zeros(96, dtype=torch.int32)
    body = f"""{HEAD_OF_BYTES}
@!%p1 bra NEXT; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 320; mov.u32 %r3, 192;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%rd1+64], %r3, [%r1];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+192], [%rd1], 128, [%r1]; NEXT:
{WAIT} @!%p1 bra LEAVE; cp.async.bulk.global.shared::cta.bulk_group [%rd0+16], [%r2], 320;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; LEAVE:"""
    run_kernel(body, [source, out])
    assert bits_of(out) == [0] * 4 + list(range(16, 64)) + list(range(32)) + [0] * 12


# --- multicast -----------------------------------------------------------------------------------------------


def multicast(to: int = 0b1101) -> tuple[list[int], list[int]]:
    """Block 2 of a cluster of four sends a tile to the blocks of a mask; returns it, and what each block then has.

    Block 1 does not wait for it.
    """
    tensor, out = numbered(8, 8).int(), words([0] * 4 * 64)
    load = LOAD.format(rank=2, space="cluster", tile="") + ".multicast::cluster"
    body = f"""{HEAD} {FILL.format(value=9, words=64)} mov.u32 %r10, %cluster_ctarank; setp.ne.u32 %p4, %r10, 1;
mul.wide.u32 %rd4, %r10, 256; add.s64 %rd0, %rd0, %rd4; setp.eq.and.u32 %p5, %r10, 2, %p1; mov.u16 %h1, {to};
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256; barrier.cluster.arrive; barrier.cluster.wait;
@%p5 {load} [%r2], [%rd1, {{0, 0}}], [%r1], %h1; @!%p4 bra SKIP; {WAIT}
SKIP: {DUMP.format(words=64)} barrier.cluster.arrive; barrier.cluster.wait;"""
    run_kernel(body, [ptx.TensorMap(tensor, (8, 8)), out], grid=(4, 1, 1), cluster=(4, 1, 1))
    return tensor.flatten().tolist(), bits_of(out)


def test_a_multicast_lands_in_every_block_of_its_mask_and_signals_the_barrier_there():
    sent, found = multicast()
    assert found == sent + [9] * 64 + sent + sent
