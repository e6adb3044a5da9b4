"""Loads, stores, atomics, cp.async and ldmatrix against the PTX manual."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from gemm_ref import ptx
from gemm_ref.ptx.core.memory import GlobalMemory
from gemm_ref.ptx.detect.finding import EARLY
from gemm_ref.ptx.text.dtypes import per_lane
from tests.ptx.harness import bits_of, run_kernel, words
from tests.ptx.ieee import decode, encode, signed, width

REGISTERS = """.reg .b64 %rd<20>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b16 %h<9>; .reg .pred %p<9>;
mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
"""
RANDOM = random.Random(7)


@pytest.mark.parametrize(
    "kind", ["b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"]
)
@pytest.mark.parametrize(
    "load", ["ld.global", "ld.global.nc.L1::no_allocate", "ldu.global", "ld.volatile.global", "ld"]
)
def test_a_load_extends_to_its_register_and_a_store_takes_the_low_bytes(kind, load):
    bits = width(kind)
    values = [0, 1, (1 << bits) - 1, 1 << bits - 1, *(RANDOM.getrandbits(bits) for _ in range(28))]
    source, wide, narrow = words(values, bits), words([0] * 32, 64), words([0] * 32, bits)
    register = {8: "%h1", 16: "%h1", 32: "%r1", 64: "%rd9"}[bits]
    extend = f"cvt.u64.u{max(bits, 16)} %rd5, {register};"
    body = f"""{REGISTERS} ld.param.u64 %rd2, [p2];
mul.wide.u32 %rd3, %r0, {bits // 8}; add.s64 %rd0, %rd0, %rd3; add.s64 %rd2, %rd2, %rd3;
mul.wide.u32 %rd4, %r0, 8; add.s64 %rd1, %rd1, %rd4;
{load}.{kind} {register}, [%rd0]; {extend} st.global.u64 [%rd1], %rd5; st.global.{kind} [%rd2], {register};"""
    run_kernel(body, [source, wide, narrow])
    held = max(bits, 16)
    assert bits_of(wide) == [signed(v, bits) & (1 << held) - 1 if kind[0] == "s" else v for v in values]
    assert bits_of(narrow) == values


def test_shared_memory_begins_where_ptxas_and_the_system_let_it():
    """The first KiB is the system's, and the alignment of an array counts from there, as in the code for sm_90."""
    out, declared = words([0] * 4), ".shared .align 4 .b8 first[40]; .shared .align 8192 .b8 second[64];"
    last = ".extern .shared .align 16 .b8 last[];"
    body = f"""{declared} .reg .b64 %rd0; .reg .b32 %r<5>;
ld.param.u64 %rd0, [p0]; mov.u32 %r0, first; mov.u32 %r1, second; mov.u32 %r2, last; st.shared.u32 [second], %r1;
xor.b32 %r3, %r1, 8192; st.global.v4.u32 [%rd0], {{%r0, %r1, %r2, %r3}};"""
    run_kernel(body, [out], block=(1, 1, 1), shared=16, outside=last)
    assert bits_of(out) == [0x400, 0x2400, 0x2440, 0x400]
    with pytest.raises(ptx.MemoryFault, match="out of bounds"):
        run_kernel(body.replace("[second], %r1", "[0], %r1"), [out], block=(1, 1, 1), shared=16, outside=last)


def test_parameters_are_read_with_the_type_of_the_load():
    out = words([0] * 2)
    body = ".reg .b64 %rd0; .reg .b32 %r<3>; .reg .b16 %h1; ld.param.u64 %rd0, [p0]; ld.param.s8 %h1, [p1];"
    body += "cvt.s32.s16 %r1, %h1; ld.param.u32 %r2, [p1]; st.global.v2.u32 [%rd0], {%r1, %r2};"
    run_kernel(body, [out, 0x180], block=(1, 1, 1))
    assert bits_of(out) == [0xFFFFFF80, 0x180]


def test_constants_and_globals_have_their_first_values_in_every_run():
    outside = ".const .align 4 .u32 table[4] = {5, 6, 0x7};\n.visible .global .align 4 .f32 scale = 0f40000000;"
    body = f"""{REGISTERS} and.b32 %r1, %r0, 3; mul.wide.u32 %rd2, %r1, 4; mov.u64 %rd3, table;
add.s64 %rd3, %rd3, %rd2;
ld.const.u32 %r2, [%rd3]; ld.const.u32 %r3, [table+4]; ld.global.f32 %f1, [scale]; mov.b32 %r4, %f1;
mul.wide.u32 %rd4, %r0, 16; add.s64 %rd0, %rd0, %rd4; st.global.v4.u32 [%rd0], {{%r2, %r3, %r4, 0}};
bar.sync 0; st.global.f32 [scale], 0f00000000;"""
    for _ in range(2):
        out = words([0] * 32)
        run_kernel(body, [out, out], block=(8, 1, 1), outside=outside)
        assert bits_of(out) == [x for i in range(8) for x in ((5, 6, 7, 0)[i % 4], 6, 0x40000000, 0)]


def test_dynamic_shared_memory_follows_static_and_belongs_to_its_block():
    outside = ".extern .shared .align 16 .b8 dynamic[];"
    body = f"""{REGISTERS} .shared .align 4 .b8 fixed[12]; .reg .b32 %c<3>;
mov.u32 %r1, dynamic; mov.u32 %r2, fixed; sub.u32 %r3, %r1, %r2; mov.u32 %c1, %ctaid.x;
shl.b32 %r4, %r0, 2; add.u32 %r5, %r1, %r4; mad.lo.u32 %r6, %c1, 100, %r0; st.shared.u32 [%r5], %r6; bar.sync 0;
sub.u32 %r7, 28, %r4; add.u32 %r7, %r1, %r7; ld.shared.u32 %r8, [%r7];
mad.lo.u32 %r9, %c1, 8, %r0; mul.wide.u32 %rd2, %r9, 8; add.s64 %rd0, %rd0, %rd2;
st.global.v2.u32 [%rd0], {{%r8, %r3}};"""
    out = words([0] * 48)
    run_kernel(body, [out, out], grid=(3, 1, 1), block=(8, 1, 1), shared=32, outside=outside)
    assert bits_of(out) == [x for block in range(3) for i in range(8) for x in (100 * block + 7 - i, 16)]


# --- atomics -------------------------------------------------------------------------------------------------


def _update(name: str, kind: str, old: int, new: int, new2: int) -> int:
    bits = width(kind)
    if kind[0] == "f":
        return encode(decode(old, kind) + decode(new, kind), kind)
    a, b = (signed(v, bits) if kind[0] == "s" else v for v in (old, new))
    result = {"add": a + b, "min": min(a, b), "max": max(a, b), "and": a & b, "or": a | b, "xor": a ^ b, "exch": b}
    if name in ("inc", "dec"):  # PTX ISA, 9.7.13.5: up to the operand, or down from it, and round
        return (0 if a >= b else a + 1) if name == "inc" else b if a == 0 or a > b else a - 1
    return (new2 if old == new else old) if name == "cas" else result[name] & (1 << bits) - 1


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("name, kind", [
    *((name, kind) for name in ("add", "min", "max") for kind in ("u32", "s32", "u64")),
    ("inc", "u32"), ("dec", "u32"),
    *((name, kind) for name in ("and", "or", "xor", "exch", "cas") for kind in ("b32", "b64")),
    ("add", "f32"), ("add", "f64"), ("min", "s64"), ("max", "s64"),
])  # fmt: skip
def test_atomics_at_one_place_follow_each_other_in_lane_order(space, name, kind):
    bits, lanes = width(kind), 40
    rng = random.Random(f"{space}{name}{kind}")
    start = [encode(1.5, kind) if kind[0] == "f" else 3 for _ in range(4)]
    values = [
        encode(rng.uniform(-9, 9), kind) if kind[0] == "f" else rng.choice([3, 1, 5, rng.getrandbits(bits)])
        for _ in range(lanes)
    ]
    memory, out, source = words(start, bits), words([0] * lanes, bits), words(values, bits)
    r = "%rd" if bits == 64 else "%r"
    size = bits // 8
    body = f"""{REGISTERS} .shared .align 8 .b8 room[32]; ld.param.u64 %rd2, [p2]; and.b32 %r1, %r0, 3;
setp.lt.u32 %p1, %r0, 4;
mul.wide.u32 %rd3, %r1, {size}; add.s64 %rd3, %rd3, %rd0; mul.wide.u32 %rd4, %r0, {size}; add.s64 %rd1, %rd1, %rd4;
add.s64 %rd2, %rd2, %rd4; ld.global.b{bits} {r}9, [%rd2]; mov.u64 %rd5, %rd3; mov.u64 %rd6, room;
mul.wide.u32 %rd7, %r1, {size};
add.s64 %rd6, %rd6, %rd7; @%p1 ld.global.b{bits} {r}8, [%rd3]; @%p1 st.shared.b{bits} [%rd6], {r}8; bar.sync 0;
atom.{space}.{name}.{kind} {r}10, [{"%rd3" if space == "global" else "%rd6"}], {r}9{", 77" if name == "cas" else ""};
st.global.b{bits} [%rd1], {r}10; bar.sync 0;
{f"@%p1 ld.shared.b{bits} {r}8, [%rd6]; @%p1 st.global.b{bits} [%rd3], {r}8;" if space == "shared" else ""}"""
    run_kernel(body, [memory, out, source], block=(lanes, 1, 1))
    want, old = list(start), []
    for lane, value in enumerate(values):
        old.append(want[lane % 4])
        want[lane % 4] = _update(name, kind, want[lane % 4], value, 77)
    assert bits_of(out) == old
    assert bits_of(memory) == want
    if name not in ("exch", "cas"):  # red: the same update without the old value
        again = words(start, bits)
        red = f"red.{name}.{kind} [%rd3], {r}9;"  # through a generic address
        run_kernel(f"{body.split('atom.')[0]}{red}", [again, out, source], block=(lanes, 1, 1))
        assert bits_of(again) == want


# --- cp.async ------------------------------------------------------------------------------------------------

COPY = f"""{REGISTERS} .shared .align 16 .b8 room[512]; shl.b32 %r1, %r0, 4; mov.u32 %r2, room; add.u32 %r2, %r2, %r1;
cvt.u64.u32 %rd2, %r1; add.s64 %rd0, %rd0, %rd2; add.s64 %rd1, %rd1, %rd2; st.shared.v4.u32 [%r2], {{7, 7, 7, 7}};
"""
FINISH = "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r2]; st.global.v4.u32 [%rd1], {%r5, %r6, %r7, %r8};"


def _copied(copy: str, bytes_: list[int], lanes: int = 4) -> list[int]:
    source, out = torch.tensor(bytes_, dtype=torch.uint8), words([0] * 4 * lanes)
    run_kernel(COPY + copy + FINISH, [source, out], block=(lanes, 1, 1))
    return list(out.numpy().tobytes())


SEVEN = [7, 0, 0, 0] * 4


@pytest.mark.parametrize("size, cache, filled", [
    (size, cache, filled)
    for size, cache in ((4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")) for filled in (None, *range(size + 1))
])  # fmt: skip
def test_an_async_copy_fills_with_zeros_and_reads_no_byte_past_its_source_size(size, cache, filled):
    data = [RANDOM.randrange(1, 256) for _ in range(64)]
    read = size if filled is None else filled
    given = data[: 48 + read]  # the last lane's source ends with the bytes it may read
    sizes = size if filled is None else f"{size}, %r9"
    copy = f"mov.u32 %r9, {filled or 0}; cp.async.{cache}.shared.global [%r2], [%rd0], {sizes}; cp.async.wait_all;"
    want = [b for lane in range(4) for b in (data[16 * lane : 16 * lane + read] + [0] * (size - read) + SEVEN[size:])]
    assert _copied(copy, given) == want


@pytest.mark.parametrize("form, count", [("", 1), (".noinc", 4)])
def test_copies_arrive_at_an_mbarrier(form, count):
    """Without `.noinc` the arrivals are added to those that the phase expects, and a thread has to arrive besides."""
    copy = f""".shared .align 8 .b64 bar; mov.u32 %r10, bar; setp.eq.u32 %p1, %r0, 0;
@%p1 mbarrier.init.shared.b64 [%r10], {count}; bar.sync 0; cp.async.cg.shared.global [%r2], [%rd0], 16;
cp.async.mbarrier.arrive{form}.shared.b64 [%r10]; bar.sync 0; xor.b32 %r1, %r1, 48; mov.u32 %r2, room;
add.u32 %r2, %r2, %r1;"""  # a lane reads what another one has copied
    wait = "LOOK: mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; @!%p2 bra LOOK;"
    wait = wait if form else f"@%p1 mbarrier.arrive.shared.b64 _, [%r10]; {wait}"
    data = list(range(64))
    for then, want, kinds in (
        (wait, data[48:] + data[32:48] + data[16:32] + data[:16], set()),
        ("", SEVEN * 4, {EARLY}),
    ):
        with ptx.watched(detectors := ptx.Detectors(outputs=())):
            assert _copied(copy + then, data) == want
        assert {finding.kind for finding in detectors.findings} == kinds


# --- ldmatrix and stmatrix -----------------------------------------------------------------------------------


def _matrices(count: int, transposed: bool) -> list[list[int]]:
    """For each lane the registers it gets: element (row, column) of matrix j is 100 j + 10 row + column."""

    def element(j: int, row: int, column: int) -> int:
        return 100 * j + (10 * column + row if transposed else 10 * row + column)

    pairs = [[(j, lane // 4, 2 * (lane % 4)) for j in range(count)] for lane in range(32)]
    return [[element(j, r, c) | element(j, r, c + 1) << 16 for j, r, c in lane] for lane in pairs]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("offset", [0, 16, -16])
@pytest.mark.parametrize("space", [".shared", ""])
def test_matrices_of_eight_by_eight(count, trans, offset, space):
    rows = [100 * j + 10 * row + column for j in range(4) for row in range(8) for column in range(8)]
    matrix, out, back = words(rows, 16), words([0] * 128), words([0] * 256, 16)
    registers = ", ".join(f"%r{10 + j}" for j in range(count))
    form, place = f"sync.aligned.m8n8.x{count}{trans}{space}.b16", "%r3" if space else "%rd4"
    body = f"""{REGISTERS} .shared .align 16 .b8 room[1056]; ld.param.u64 %rd2, [p2]; mul.wide.u32 %rd3, %r0, 16;
mov.u32 %r1, room; mad.lo.u32 %r2, %r0, 16, %r1; add.u32 %r2, %r2, 16; add.s64 %rd0, %rd0, %rd3;
add.s64 %rd2, %rd2, %rd3;
ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%rd0]; st.shared.v4.u32 [%r2], {{%r5, %r6, %r7, %r8}}; bar.sync 0;
sub.u32 %r3, %r2, {offset & 0xFFFFFFFF}; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;
setp.ge.u32 %p1, %r0, {8 * count}; @%p1 mov.u32 %r3, 0xfffffff0;
cvt.s64.s32 %rd4, %r3; cvta.shared.u64 %rd4, %rd4; ldmatrix.{form} {{{registers}}}, [{place}+{offset}];
add.s64 %rd1, %rd1, %rd3; st.global.v4.u32 [%rd1], {{%r10, %r11, %r12, %r13}};
st.shared.v4.u32 [%r2], {{0, 0, 0, 0}}; bar.sync 0; stmatrix.{form} [{place}+{offset}], {{{registers}}}; bar.sync 0;
ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r2]; st.global.v4.u32 [%rd2], {{%r5, %r6, %r7, %r8}};"""
    run_kernel(body, [matrix, out, back])
    found = bits_of(out)
    assert [found[4 * lane : 4 * lane + count] for lane in range(32)] == _matrices(count, bool(trans))
    assert bits_of(back) == rows[: 64 * count] + [0] * 64 * (4 - count)


@pytest.mark.parametrize("form", ["", ".trans"])
@pytest.mark.parametrize("same", [True, False])
def test_warps_that_store_the_same_matrix_do_not_race(form, same):
    """stmatrix of two warps to one place; what observers are told of its rows is what is then there."""

    class Rows(ptx.Observer):
        def on_access(self, access):
            if access.kind == "store" and access.space == "shared":
                self.words = np.stack([per_lane(x, 64) for x in access.values], 1)[:8]

    source = "and.b32 %r1, %r0, 31;" if same else "mov.u32 %r1, %r0;"
    code = f""".shared .align 16 .b8 room[128]; {source} mul.lo.u32 %r1, %r1, 65539;
and.b32 %r2, %r0, 7; shl.b32 %r2, %r2, 4;
mov.u32 %r3, room; add.u32 %r2, %r2, %r3; stmatrix.sync.aligned.m8n8.x1{form}.shared.b16 [%r2], {{%r1}}; bar.sync 0;
and.b32 %r4, %r0, 31; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r3; ld.shared.u32 %r5, [%r4];
mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r5;"""
    out = words([0] * 64)
    with ptx.watched(detectors := ptx.Detectors(outputs=()), seen := Rows()):
        run_kernel(REGISTERS + code, [out, out], block=(64, 1, 1))
    assert bool(detectors.findings) != same
    assert not same or bits_of(out)[:32] == seen.words.ravel().tolist()


def test_an_allocation_begins_at_a_line_as_on_a_gpu_and_a_view_where_it_is():
    memory, rooms = GlobalMemory(), [torch.zeros(64 + 16 * count) for count in range(8)]
    assert {memory.add("a", room) % 256 for room in rooms} == {0}
    first = rooms[0].data_ptr() + 20
    assert memory.add("a view", rooms[0][5:]) % 256 == first % 256
