"""`mma.sync` against the PTX manual: where each element of a fragment lies; and sums as a tensor core makes them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from gemm_ref import ptx
from tests.ptx.harness import bits_of, covers, kernel_text, run_kernel, words
from tests.ptx.ieee import from_bits, rounded, to_bits
from tests.ptx.plain_sums import hopper, value_of

WARPS = 2

# --- the manual's fragments ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """Element i of a lane, by its groupID g = lane / 4 and threadID_in_group t = lane % 4; PTX ISA 9.7.14.5.

    Each section, 'Matrix Fragments for mma.m16n8k4', 'k8', 'k16' and 'k32', has the formulas as they stand here.
    """

    k: int
    bits: int
    a: Callable[[int, int, int], tuple[int, int]]  # (g, t, i) -> (row, column) of A
    b: Callable[[int, int, int], tuple[int, int]]  # the same of B


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


TF32_K4 = Form(4, 32, lambda g, t, i: ((g, g + 8)[i], t), lambda g, t, i: (t, g))
TF32_K8 = Form(8, 32, lambda g, t, i: (g + 8 * (i in (1, 3)), t + 4 * (i > 1)), lambda g, t, i: ((t, t + 4)[i], g))
HALF_K8 = Form(8, 16, lambda g, t, i: (g + 8 * (i > 1), t * 2 + (i & 1)), lambda g, t, i: (t * 2 + (i & 1), g))
HALF_K16 = Form(
    16,
    16,
    lambda g, t, i: (g if 0 <= i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
    lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
)
BYTE_K32 = Form(
    32,
    8,
    lambda g, t, i: (g if 0 <= i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16)),
    lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g),
)
CASES = [
    *((TF32_K4, "tf32", "tf32", "f32"), (TF32_K8, "tf32", "tf32", "f32")),
    *((form, kind, kind, "f32") for form in (HALF_K8, HALF_K16) for kind in ("f16", "bf16")),
    *((form, "f16", "f16", "f16") for form in (HALF_K8, HALF_K16)),
    *((BYTE_K32, a, b, "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    (BYTE_K32, "e4m3", "e4m3", "f16"),
]
IDS = [f"k{form.k}-{a}-{b}-{to}" for form, a, b, to in CASES]

# --- numbers -------------------------------------------------------------------------------------------------


def some_code(rng: random.Random, kind: str) -> int:
    """A number of middling size, whose products and their sums have no more bits than a float64."""
    if kind in ("e4m3", "e5m2"):
        while not math.isfinite(value_of(code := rng.getrandbits(8), kind)):
            pass
        return code
    code = to_bits(rng.uniform(-1, 1) * 2.0 ** rng.randint(-4, 4), "f16" if kind == "f16" else "f32")
    return {"f16": code, "bf16": code >> 16, "tf32": code & ~0x1FFF | rng.getrandbits(13)}[kind]


def packed(codes: list[int], bits: int) -> list[int]:
    """Elements into 32-bit registers, the first lowest: the manual's order."""
    per = 32 // bits
    return [sum(code << bits * i for i, code in enumerate(codes[at : at + per])) for at in range(0, len(codes), per)]


def multiply(form: Form, kinds: tuple[str, str, str], a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[list[int]]:
    """Run one mma in each warp on matrices of codes (warps, rows, columns); the bits of D by lane."""
    (kind_a, kind_b, to), per = kinds, 32 // form.bits
    counts = [16 * form.k // 32 // per, 8 * form.k // 32 // per, 4 if to == "f32" else 2]
    tables: list[list[int]] = [[], [], []]
    for warp in range(len(a)):
        for lane in range(32):
            g, t = divmod(lane, 4)
            tables[0] += packed([int(a[warp][form.a(g, t, i)]) for i in range(counts[0] * per)], form.bits)
            tables[1] += packed([int(b[warp][form.b(g, t, i)]) for i in range(counts[1] * per)], form.bits)
            tables[2] += packed([int(c[warp][c_place(g, t, i)]) for i in range(4)], 32 if to == "f32" else 16)
    body, names = [".reg .b64 %rd<9>; .reg .b32 %r<40>; mov.u32 %r39, %tid.x;"], []
    for operand, count in enumerate(counts):
        body.append(f"ld.param.u64 %rd0, [p{operand}]; mul.wide.u32 %rd1, %r39, {4 * count}; add.u64 %rd0, %rd0, %rd1;")
        mine = [f"%r{10 * operand + i}" for i in range(count)]
        body += [f"ld.global.u32 {register}, [%rd0+{4 * i}];" for i, register in enumerate(mine)]
        names.append("{" + ", ".join(mine) + "}")
    shape = f"m16n8k{form.k}.row.col.{to}.{kind_a}.{kind_b}.{to}"
    body.append(f"mma.sync.aligned.{shape} {names[2]}, {names[0]}, {names[1]}, {names[2]};")
    body.append(f"ld.param.u64 %rd0, [p3]; mul.wide.u32 %rd1, %r39, {4 * counts[2]}; add.u64 %rd0, %rd0, %rd1;")
    body += [f"st.global.u32 [%rd0+{4 * i}], %r{20 + i};" for i in range(counts[2])]
    out = words([0] * 32 * len(a) * counts[2])
    run_kernel("\n".join(body), [*(words(table) for table in tables), out], block=(32 * len(a), 1, 1))
    found = bits_of(out)
    if to == "f16":
        found = [half for word in found for half in (word & 0xFFFF, word >> 16)]
    return [found[4 * lane : 4 * lane + 4] for lane in range(32 * len(a))]


def check(found: list[list[int]], want: Callable[[int, int, int], int]) -> None:
    for lane, four in enumerate(found):
        warp, (g, t) = lane // 32, divmod(lane % 32, 4)
        for i, got in enumerate(four):
            row, column = c_place(g, t, i)
            assert got == want(warp, row, column), f"D[{row}, {column}] of warp {warp}: {got:#x}"


# --- tests ---------------------------------------------------------------------------------------------------


@covers("mma")
@pytest.mark.parametrize("form, kind_a, kind_b, to", CASES, ids=IDS)
def test_sums_are_a_tensor_cores(form, kind_a, kind_b, to):
    rng = random.Random(f"{form.k}{kind_a}{kind_b}{to}")
    a = np.array([some_code(rng, kind_a) for _ in range(WARPS * 16 * form.k)]).reshape(WARPS, 16, form.k)
    b = np.array([some_code(rng, kind_b) for _ in range(WARPS * form.k * 8)]).reshape(WARPS, form.k, 8)
    c = np.array([to_bits(rng.uniform(-8, 8), to) for _ in range(WARPS * 16 * 8)]).reshape(WARPS, 16, 8)

    def want(warp: int, row: int, column: int) -> int:
        vectors = (list(map(int, part)) for part in (a[warp, row], b[warp, :, column]))
        return hopper("mma", *vectors, int(c[warp, row, column]), (kind_a, kind_b, to))

    check(multiply(form, (kind_a, kind_b, to), a, b, c), want)


@covers("mma")
@pytest.mark.parametrize("kind, tiny", [("f16", 1), ("bf16", 1), ("e4m3", 1), ("e5m2", 1), ("tf32", 1 << 13)])
def test_subnormal_elements_count(kind, tiny):
    form = {"f16": HALF_K16, "bf16": HALF_K16, "tf32": TF32_K8}.get(kind, BYTE_K32)
    one = {"f16": 0x3C00, "bf16": 0x3F80, "tf32": 0x3F800000, "e4m3": 0x38, "e5m2": 0x3C}[kind]
    a, b = np.full((1, 16, form.k), tiny), np.zeros((1, form.k, 8), int)
    b[0, 3] = one
    want = rounded(Fraction(value_of(tiny, kind)), "f32")
    assert want != 0
    check(multiply(form, (kind, kind, "f32"), a, b, np.zeros((1, 16, 8), int)), lambda warp, row, column: want)


@covers("mma")
def test_infinities_and_nan_reach_their_row_and_no_other():
    a, b = np.full((1, 16, 16), 0x3C00), np.full((1, 16, 8), 0x3C00)
    a[0, 2, 5], a[0, 9, 0], a[0, 4, 1], a[0, 4, 2] = 0x7C00, 0x7E00, 0x7C00, 0xFC00  # Inf; NaN; Inf - Inf
    found = multiply(HALF_K16, ("f16", "f16", "f32"), a, b, np.zeros((1, 16, 8), int))
    for lane, four in enumerate(found):
        for i, got in enumerate(four):
            row, value = c_place(*divmod(lane, 4), i)[0], from_bits(got, "f32")
            if row in (4, 9):
                assert math.isnan(value)
            else:
                assert value == (math.inf if row == 2 else 16.0)


_MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
ONES = f""".reg .b64 %rd<4>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .pred %p<2>;
mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
mov.u32 %r1, 0x3C003C00; mov.f32 %f0, 0f40000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
LEAVE {_MMA} {{%f0, %f1, %f2, %f3}}, {{%r1, %r1, %r1, %r1}}, {{%r1, %r1}}, {{%f0, %f1, %f2, %f3}};
END: st.global.f32 [%rd0], %f0;"""


def test_a_warp_that_takes_no_part_keeps_its_registers():
    """Registers that are the same number in all lanes, too."""
    out = words([0] * 64)
    run_kernel(ONES.replace("LEAVE", "setp.ge.u32 %p1, %r0, 32; @%p1 bra END;"), [out], block=(64, 1, 1))
    assert [from_bits(bits, "f32") for bits in bits_of(out)] == [18.0] * 32 + [2.0] * 32


@pytest.mark.parametrize("code, threads", [("setp.ge.u32 %p1, %r0, 30; @%p1 bra END;", 64), ("", 48)])
def test_a_warp_without_all_its_lanes_is_refused(code, threads):
    with pytest.raises(ptx.WarpFault, match="of its warp has left at line|its warp has 16 threads only"):
        run_kernel(ONES.replace("LEAVE", code), [words([0] * 64)], block=(threads, 1, 1))


@pytest.mark.parametrize("text, reason", [
    ("m16n8k16.row.col.f32.f16.f16.f32 {%r1, %r1}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%r1, %r1}", "a fragment has 4"),
    ("m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r1,%r1,%r1}, {%r1, %r1}, {%r1}, {%r1,%r1,%r1,%r1}", "a fragment has 4"),
    ("m16n8k16.row.col.f16.bf16.bf16.f16 {%r1, %r1}, {%r1, %r1, %r1, %r1}, {%r1, %r1}, {%r1, %r1}", "has no mma"),
    ("m16n8k16.row.col.f32.tf32.tf32.f32 {%r1}, {%r1}, {%r1}, {%r1}", "has no mma"),
    ("m16n8k16.row.col.f32.f16.bf16.f32 {%r1}, {%r1}, {%r1}, {%r1}", "has no mma"),
])  # fmt: skip
def test_a_form_that_does_not_exist_is_refused(text, reason):
    with pytest.raises(ptx.PtxError, match=reason):
        ptx.load(kernel_text(f".reg .b32 %r<2>;\nmma.sync.aligned.{text};"))
