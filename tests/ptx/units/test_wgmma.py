"""wgmma against the PTX manual: where operands and results lie, what is computed, and when."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gemm_ref import ptx
from gemm_ref.ptx.core.memory import SHARED_BASE
from gemm_ref.ptx.units.tensor_core import multiply_add
from tests.ptx.harness import run_kernel

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32, "e4m3": torch.float8_e4m3fn}
DTYPES |= {"e5m2": torch.float8_e5m2, "s8": torch.int8, "u8": torch.uint8}
FLOATS = list(DTYPES)[:5]
A_AT, B_AT = 0, 32768  # bytes of shared memory
BYTES = 65536
SPANS = {0: 16, 32: 32, 64: 64, 128: 128}
MODES = {0: 0, 128: 1, 64: 2, 32: 3}


def descriptor(start: int, leading: int, stride: int, swizzle: int) -> int:
    return (SHARED_BASE + start) // 16 | leading // 16 << 16 | stride // 16 << 32 | MODES[swizzle] << 62


def place(row: np.ndarray, k: np.ndarray, leading: int, stride: int, swizzle: int, transposed: bool, size: int):
    """Byte of element (row, k) from the tile's start, before swizzling: PTX ISA, 'Strides' of wgmma's matrices."""
    span, per_piece = SPANS[swizzle], 16 // size
    if not transposed:
        piece, rest = divmod(k, per_piece)  # 16 bytes of k, of which there are two
        return row // 8 * stride + row % 8 * span + piece * (16 if swizzle else leading) + rest * size
    along = span // size  # elements along the rows that lie next to each other
    if swizzle:
        return row // along * leading + k // 8 * stride + k % 8 * span + row % along * size
    return row // along * stride + k // 8 * leading + k % 8 * span + row % along * size


def put(image: torch.Tensor, at: int, tile: torch.Tensor, swizzle: int, transposed: bool, leading: int, stride: int):
    """Writes a tile (rows, k) into an image of shared memory."""
    size = tile.element_size()
    row, k = np.indices(tile.shape)
    address = at + place(row, k, leading, stride, swizzle, transposed, size)
    address ^= (address >> 7 & {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]) << 4
    raw = tile.contiguous().view(torch.uint8).reshape(*tile.shape, size).numpy()
    image.numpy()[address[..., None] + np.arange(size)] = raw


def numbers(*shape: int, kind: str, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-6, 7, shape, generator=generator).to(DTYPES[kind])


HEAD = """.reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .f32 %d<200>; .reg .pred %p<9>; .shared .align 1024 .b8 smem[65536];
mov.u32 %r0, %tid.x; mov.u32 %r1, smem; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; setp.eq.u32 %p1, 0, 0;
mov.u32 %r3, %r0; FILL: shl.b32 %r4, %r3, 4; cvt.u64.u32 %rd2, %r4; add.s64 %rd2, %rd2, %rd0; add.u32 %r4, %r4, %r1;
ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2]; st.shared.v4.u32 [%r4], {%r5, %r6, %r7, %r8};
add.u32 %r3, %r3, 128; setp.lt.u32 %p3, %r3, 4096; @%p3 bra FILL; fence.proxy.async.shared::cta; bar.sync 0;
"""


def vector(count: int, first: int = 0) -> str:
    return "{" + ", ".join(f"%d{first + i}" for i in range(count)) + "}"


def setting(count: int, value: str = "0f00000000", first: int = 0) -> str:
    return "".join(f"mov.f32 %d{first + i}, {value}; " for i in range(count)) + "\n"


def storing(count: int, first: int = 0) -> str:
    """To (register, thread) of the output."""
    return "mul.wide.u32 %rd3, %r0, 4; add.s64 %rd3, %rd3, %rd1;\n" + "".join(
        f"st.global.f32 [%rd3+{512 * i}], %d{first + i}; " for i in range(count)
    )


FENCE, COMMIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
WAIT_GROUP = "wgmma.wait_group.sync.aligned {};\n"


def matrix(out: torch.Tensor, count: int) -> torch.Tensor:
    """Returns (64, N) of (register, thread): PTX ISA, 'WGMMA D fragment layout'."""
    register, thread = np.indices((count, 128))
    lane, pair = thread % 32, register // 2
    found = np.full((64, 2 * count), np.nan, np.float32)
    row, column = 16 * (thread // 32) + lane // 4 + 8 * (pair % 2), 8 * (pair // 2) + 2 * (lane % 4) + register % 2
    found[row, column] = out.numpy()
    return torch.from_numpy(found)


def computed(body: str, image: torch.Tensor, count: int, threads: int = 128, **options) -> torch.Tensor:
    out = torch.zeros(count, threads)
    run_kernel(HEAD + body, [image, out], block=(threads, 1, 1), **options)
    return matrix(out, count)


def instruction(
    kinds: str, columns: int, a: str, b: str, tail: str, first: int = 0, keep: str = "%p1", to: str = "f32"
) -> str:
    """Returns a wgmma of kinds such as `f16.f16`; tail: the operands after the predicate, as `1, 1, 0, 0`."""
    depth = 32 // DTYPES[kinds.split(".")[0]].itemsize
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{to}.{kinds}"
    operands = ", ".join(part for part in (a, b, keep, tail) if part)
    return f"{name} {vector(columns // (4 if to == 'f16' else 2), first)}, {operands};\n"


def once(kinds: str, columns: int, a: str, b: str, tail: str) -> str:
    count = columns // 2
    return (
        setting(count)
        + FENCE
        + instruction(kinds, columns, a, b, tail)
        + COMMIT
        + WAIT_GROUP.format(0)
        + storing(count)
    )


def tail_of(kind: str, a_transposed: int = 0, b_transposed: int = 0, signs: str = "1, 1") -> str:
    return f"{signs}, {a_transposed}, {b_transposed}" if DTYPES[kind].itemsize == 2 else signs


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("kinds, columns, a_transposed, b_transposed", [
    ("bf16.bf16", 8, 0, 0), ("f16.f16", 40, 0, 0), ("tf32.tf32", 40, 0, 0), ("e4m3.e4m3", 8, 0, 0),
    ("e4m3.e5m2", 40, 0, 0), ("bf16.bf16", 128, 1, 0), ("bf16.bf16", 128, 0, 1), ("f16.f16", 128, 1, 1),
])  # fmt: skip
def test_operands_in_every_swizzle(swizzle, kinds, columns, a_transposed, b_transposed):
    """K-major in the second 32 bytes of a wide swizzle's span; MN-major (transposed), with gaps between the pieces."""
    kind_a, kind_b = kinds.split(".")
    depth, span = 32 // DTYPES[kind_a].itemsize, SPANS[swizzle]
    a, b = numbers(64, depth, kind=kind_a), numbers(columns, depth, kind=kind_b, seed=1)
    image, words = torch.zeros(BYTES, dtype=torch.uint8), []
    for at, tile, transposed in ((A_AT, a, a_transposed), (B_AT, b, b_transposed)):
        leading, stride = (4608, 144) if not swizzle else (16, 8 * span)
        if transposed:
            leading, stride = (2560, 144) if not swizzle else (2 * 8 * span + 1024, 8 * span)
        shift = 32 if swizzle in (64, 128) and not transposed else 0
        wide = torch.zeros(len(tile), depth + shift // tile.element_size(), dtype=tile.dtype)
        wide[:, -depth:] = tile
        put(image, at, wide, swizzle, bool(transposed), leading, stride)
        words.append(str(descriptor(at + shift, leading, stride, swizzle)))
    body = once(kinds, columns, *words, tail_of(kind_a, a_transposed, b_transposed))
    assert torch.equal(computed(body, image, columns // 2), a.float() @ b.float().T)


PLAIN = str(descriptor(A_AT, 1024, 128, 0)), str(descriptor(B_AT, 4096, 128, 0))
PLUS = instruction("bf16.bf16", 8, *PLAIN, "1, 1, 0, 0")  # adds A @ B to %d0 and on
MINUS = instruction("bf16.bf16", 8, *PLAIN, "-1, 1, 0, 0")


def image_of(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns shared memory with A and B where PLAIN has them, without a swizzle."""
    image = torch.zeros(BYTES, dtype=torch.uint8)
    put(image, A_AT, a, 0, False, 1024, 128)
    put(image, B_AT, b, 0, False, 4096, 128)
    return image


def plain(kind: str, columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns A, B and their image."""
    depth = 32 // DTYPES[kind].itemsize
    a, b = numbers(64, depth, kind=kind), numbers(columns, depth, kind=kind, seed=1)
    return a, b, image_of(a, b)


def plain_product() -> tuple[torch.Tensor, torch.Tensor]:
    """The image for PLUS and MINUS, and A @ B."""
    a, b, image = plain("bf16", 8)
    return image, a.float() @ b.float().T


@pytest.mark.parametrize("columns", [8, 40])
def test_sums_in_fp16(columns):
    """Pairs of a row lie in one register; each instruction rounds its sums to fp16, where 2049 is no number."""
    a, b, image = plain("f16", columns)
    count, out = columns // 4, torch.zeros(columns // 4, 128)
    begin = "".join(f"mov.b32 %d{i}, 0x68006800; " for i in range(count))  # 2048 in both halves
    twice = FENCE + 2 * instruction("f16.f16", columns, *PLAIN, "1, 1, 0, 0", to="f16") + COMMIT + WAIT_GROUP.format(0)
    run_kernel(HEAD + begin + twice + storing(count), [image, out], block=(128, 1, 1))
    halves = out.view(torch.float16).view(count, 128, 2).permute(0, 2, 1).reshape(2 * count, 128).float()
    product = a.double() @ b.double().T
    want = ((2048 + product).half().double() + product).half().float()
    assert torch.equal(matrix(halves, 2 * count), want)
    assert not torch.equal(want, (2048 + 2 * product).float())


@pytest.mark.parametrize("use, is_early", [("", False), ("add.f16 %h2, %h0, %h1;", True)])
def test_what_unpacks_sums_in_fp16_waits_for_them_unless_they_are_used(use, is_early):
    """Triton unpacks them before the wait; for ptxas that renames a register, and nothing is read."""
    _, _, image = plain("f16", 8)
    once = FENCE + instruction("f16.f16", 8, *PLAIN, "1, 1, 0, 0", to="f16") + COMMIT
    begin, unpack = ".reg .b16 %h<3>; mov.b32 %d0, 0; mov.b32 %d1, 0; ", "mov.b32 {%h0, %h1}, %d0; "
    results, wait = [], WAIT_GROUP.format(0)
    for body in (once + unpack + use + wait, once + wait + unpack):
        out = torch.zeros(2, 128)
        run_kernel(HEAD + begin + body + "mov.b32 %d0, {%h0, %h1}; " + storing(2), [image, out], block=(128, 1, 1))
        results.append(out.view(torch.int32))
    assert torch.equal(*results) != is_early


@pytest.mark.parametrize("kinds", ["s8.s8", "u8.s8", "s8.u8"])
def test_sums_of_integers(kinds):
    """Bytes of either sign; sums of 32 bits wrap round."""
    generator = torch.Generator().manual_seed(2)
    a, b = (
        torch.randint(torch.iinfo(t).min, torch.iinfo(t).max + 1, (rows, 32), generator=generator).to(t)
        for rows, t in zip((64, 8), (DTYPES[kind] for kind in kinds.split(".")), strict=True)
    )
    begin = "".join(f"mov.b32 %d{i}, 0x7fffff00; " for i in range(4))
    body = begin + FENCE + 2 * instruction(kinds, 8, *PLAIN, "", to="s32") + COMMIT + WAIT_GROUP.format(0) + storing(4)
    want = 0x7FFFFF00 + 2 * (a.long() @ b.long().T)
    found = computed(body, image_of(a, b), 4).view(torch.int32)
    assert bool((want > 2**31).any()) and torch.equal(found, want.to(torch.int32))


@pytest.mark.parametrize("kind", FLOATS)
def test_a_from_registers(kind):
    """PTX ISA, 'WGMMA A fragment layout': register r of a lane has 4 bytes, of whatever type, of row
    lane / 4 + 8 (r % 2), from byte 4 (lane % 4) + 16 (r / 2) on."""
    a, b, image = plain(kind, 16)
    thread, register = np.indices((128, 4))
    row, word = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register % 2), thread % 4 + 4 * (register // 2)
    fragments = a.contiguous().view(torch.int32)[row, word]
    image[49152 : 49152 + 2048] = fragments.view(torch.uint8).flatten()
    load = "mul.lo.u32 %r9, %r0, 16; add.u32 %r9, %r9, %r1; ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r9+49152];\n"
    tail = tail_of(kind).removesuffix(", 0")  # only of B
    body = load + once(f"{kind}.{kind}", 16, "{%r10, %r11, %r12, %r13}", PLAIN[1], tail)
    assert torch.equal(computed(body, image, 8), a.float() @ b.float().T)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
def test_scale_d_and_the_signs(keep, signs):
    a, b, image = plain("bf16", 16)
    body = setting(8, "0f41200000") + f"setp.eq.u32 %p4, {int(keep)}, 1;" + FENCE
    body += instruction("bf16.bf16", 16, *PLAIN, f"{signs[0]}, {signs[1]}, 0, 0", keep="%p4")
    found = computed(body + COMMIT + WAIT_GROUP.format(0) + storing(8), image, 8)
    assert torch.equal(found, signs[0] * signs[1] * (a.float() @ b.float().T) + 10 * keep)


@pytest.mark.parametrize("kind, signs", [("f16", "1, -1"), ("e4m3", "1, 1"), ("tf32", "1, 1")])
def test_sums_are_a_tensor_cores(kind, signs):
    """The low 13 bits of tf32 are not read."""
    generator, depth = torch.Generator().manual_seed(3), 32 // DTYPES[kind].itemsize
    a, b = (torch.randn(rows, depth, generator=generator).to(DTYPES[kind]) for rows in (64, 8))
    body = once(f"{kind}.{kind}", 8, *PLAIN, tail_of(kind, signs=signs))
    found = computed(body, image_of(a, b), 4)
    x, y = (
        (part.view(torch.int32) & ~0x1FFF).view(torch.float32) if kind == "tf32" else part.float() for part in (a, b)
    )
    y = -y if "-1" in signs else y
    sums = multiply_add("wgmma", x[None].numpy(), y[None].numpy(), (kind, kind), np.zeros((1, 64, 8), np.float32))
    np.testing.assert_array_equal(found.numpy().view(np.uint32), sums[0].view(np.uint32))


# --- when ----------------------------------------------------------------------------------------------------


def test_shared_memory_is_read_at_the_wait_and_not_before():
    a, b, image = plain("bf16", 8)
    multiply = setting(4) + FENCE + PLUS + COMMIT
    clear = "setp.eq.u32 %p4, %r0, 0; @%p4 st.shared.v4.u32 [%r1], {0, 0, 0, 0}; bar.sync 0;\n"  # row 0, k 0 to 7
    changed = a.clone()
    changed[0, :8] = 0
    right, wrong = a.float() @ b.float().T, changed.float() @ b.float().T
    assert torch.equal(computed(multiply + WAIT_GROUP.format(0) + clear + storing(4), image, 4), right)
    assert torch.equal(computed(multiply + clear + WAIT_GROUP.format(0) + storing(4), image, 4), wrong)
    assert torch.equal(
        computed(multiply + WAIT_GROUP.format(1) + clear + WAIT_GROUP.format(0) + storing(4), image, 4), wrong
    )


def test_an_accumulator_that_is_read_early_is_nan_and_reported():
    image, product = plain_product()
    seen = []

    class Watch(ptx.Observer):
        def on_early_register(self, name, lanes, issued, machine):
            seen.append((name, int(lanes.sum()), issued.parts[1]))

    body = setting(4) + FENCE + PLUS + COMMIT
    body += "mov.f32 %d100, %d2; " + WAIT_GROUP.format(0) + "mov.f32 %d3, %d100;" + storing(4)
    out = torch.zeros(4, 128)
    run_kernel(HEAD + body, [image, out], block=(128, 1, 1), observers=[Watch()])
    assert out[3].isnan().all() and torch.equal(matrix(out, 4)[:8, 0::2], product[:8, 0::2])
    assert seen == [("%d2", 128, "mma_async")]


def test_two_warpgroups_at_different_places():
    """The second warpgroup multiplies later, and keeps its registers while the first is in flight."""
    image, product = plain_product()
    body = f"""setp.lt.u32 %p4, %r0, 128; {setting(4, "0f40000000")} {FENCE} @%p4 bra FIRST;
{"".join(f"add.f32 %d{i}, %d{i}, %d{i};" for i in range(4))} bar.sync 1, 256;
{MINUS} {COMMIT} {WAIT_GROUP.format(0)} bra DONE;
FIRST: {PLUS} {COMMIT} bar.sync 1, 256; {WAIT_GROUP.format(0)} DONE:
mul.wide.u32 %rd3, %r0, 4; add.s64 %rd3, %rd3, %rd1;""" + "".join(
        f"st.global.f32 [%rd3+{1024 * i}], %d{i}; " for i in range(4)
    )
    out = torch.zeros(4, 256)
    run_kernel(HEAD + body, [image, out], block=(256, 1, 1))
    assert torch.equal(matrix(out[:, :128], 4), product + 2) and torch.equal(matrix(out[:, 128:], 4), 4 - product)


def test_lanes_of_a_warpgroup_that_come_late_are_waited_for():
    image, product = plain_product()
    body = f"""{setting(4)} shr.u32 %r9, %r0, 5; setp.eq.u32 %p4, %r9, 2; @%p4 bra LATE; bra JOIN;
LATE: bar.sync 3, 32; JOIN: {FENCE} {PLUS} {COMMIT} {WAIT_GROUP.format(0)} {storing(4)}"""
    found = computed(body, image, 4)
    assert torch.equal(found, product)
