"""`mma.sync` against the PTX manual: where each element of a fragment lies; and sums as a tensor core makes them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.ptx.harness import bits_of, run_kernel, words
from tests.ptx.ieee import decode, encode, fma, number, width
from tests.ptx.plain_sums import hopper

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
    rows: int = 16


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def words_k8(bits: int) -> Form:
    """Returns the form in which an element fills a register, or two."""
    return Form(8, bits, lambda g, t, i: (g + 8 * (i in (1, 3)), t + 4 * (i > 1)), lambda g, t, i: ((t, t + 4)[i], g))


TF32_K4 = Form(4, 32, lambda g, t, i: ((g, g + 8)[i], t), lambda g, t, i: (t, g))
TF32_K8, F64_K8 = words_k8(32), words_k8(64)
F64_K4 = Form(4, 64, lambda g, t, i: (g, t), lambda g, t, i: (t, g), rows=8)
HALF_K8 = Form(8, 16, lambda g, t, i: (g + 8 * (i > 1), t * 2 + (i & 1)), lambda g, t, i: (t * 2 + (i & 1), g))
HALF_K16 = Form(
    16,
    16,
    lambda g, t, i: (g if 0 <= i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
    lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
)
BYTE_K16 = Form(16, 8, lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)), lambda g, t, i: (t * 4 + (i & 3), g))
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
    *((BYTE_K32, a, b, "f32") for a, b in (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))),
    (BYTE_K32, "e4m3", "e4m3", "f16"),
    *((form, a, b, "s32") for form in (BYTE_K16, BYTE_K32) for a, b in (("s8", "u8"), ("u8", "s8"))),
    *((F64_K4, "f64", "f64", "f64"), (F64_K8, "f64", "f64", "f64")),
]
IDS = [f"k{form.k}-{a}-{b}-{to}" for form, a, b, to in CASES]


def some_code(rng: random.Random, kind: str) -> int:
    """Returns a number of middling size, any finite one of 8 bits, or any integer; tf32 has bits that are not read."""
    if width(kind) == 8 or kind == "s32":
        code = rng.getrandbits(width(kind))
        return code if kind[0] in "su" or math.isfinite(decode(code, kind)) else 1
    code = encode(rng.uniform(-1, 1) * 2.0 ** rng.randint(-4, 4), kind)
    return code | rng.getrandbits(13) if kind == "tf32" else code


def packed(codes: list[int], bits: int) -> list[int]:
    """Returns the registers of these elements, the first lowest: the manual's order."""
    per = max(32 // bits, 1)
    return [sum(code << bits * i for i, code in enumerate(codes[at : at + per])) for at in range(0, len(codes), per)]


def multiply(
    form: Form, kinds: tuple[str, str, str], a: np.ndarray, b: np.ndarray, c: np.ndarray, modifier: str = ""
) -> dict[tuple[int, int, int], int]:
    """Runs one mma per warp on matrices of codes (warps, rows, columns); the code of D at (warp, row, column)."""
    (kind_a, kind_b, to), registers, sums = kinds, "%rd" if form.bits == 64 else "%r", form.rows // 4
    places = (form.a, form.rows * form.k // 32), (form.b, 8 * form.k // 32), (c_place, sums)
    body, names, tables = [".reg .b64 %at<2>, %rd<40>; .reg .b32 %r<40>; mov.u32 %r39, %tid.x;"], [], []
    for operand, (matrix, (place, count)) in enumerate(zip((a, b, c), places, strict=True)):
        bits, table = width(to) if operand == 2 else form.bits, []
        for warp, lane in np.ndindex(len(a), 32):
            table += packed([int(matrix[warp][place(*divmod(lane, 4), i)]) for i in range(count)], bits)
        tables.append(words(table, max(form.bits, 32)))
        size, own = max(form.bits, 32) // 8, len(table) // (32 * len(a))
        body.append(f"ld.param.u64 %at0, [p{operand}]; mad.wide.u32 %at0, %r39, {size * own}, %at0;")
        mine = [f"{registers}{10 * operand + i}" for i in range(own)]
        body += [f"ld.global.b{8 * size} {register}, [%at0+{size * i}];" for i, register in enumerate(mine)]
        names.append("{" + ", ".join(mine) + "}")
    shape = f"m{form.rows}n8k{form.k}.row.col{modifier}.{to}.{kind_a}.{kind_b}.{to}"
    body.append(f"mma.sync.aligned.{shape} {names[2]}, {names[0]}, {names[1]}, {names[2]};")
    body += [f"st.global.b{8 * size} [%at0+{size * i}], {register};" for i, register in enumerate(mine)]
    run_kernel("\n".join(body), tables, block=(32 * len(a), 1, 1))
    found = bits_of(tables[2])
    if to == "f16":
        found = [half for word in found for half in (word & 0xFFFF, word >> 16)]
    places_of_sums = ((warp, lane, i) for warp, lane, i in np.ndindex(len(a), 32, sums))
    return {(w, *c_place(*divmod(lane, 4), i)): code for (w, lane, i), code in zip(places_of_sums, found, strict=True)}


def total(kinds: tuple[str, str, str], a: list[int], b: list[int], c: int, modifier: str) -> int:
    """Returns the code of a . b + c."""
    if kinds[2] == "s32":
        exact = number(c, "s32") + sum(number(x, kinds[0]) * number(y, kinds[1]) for x, y in zip(a, b, strict=True))
        return (min(max(exact, -(1 << 31)), (1 << 31) - 1) if modifier else exact) & 0xFFFFFFFF
    if kinds[2] == "f64":
        for x, y in zip(a, b, strict=True):
            c = fma(*(decode(code, "f64") for code in (x, y, c)), "f64")
        return c
    return hopper("mma", a, b, c, kinds)


# --- tests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form, kind_a, kind_b, to", CASES, ids=IDS)
def test_sums_are_a_tensor_cores(form, kind_a, kind_b, to):
    rng = random.Random(f"{form.k}{kind_a}{kind_b}{to}")
    shapes = ((WARPS, form.rows, form.k), kind_a), ((WARPS, form.k, 8), kind_b), ((WARPS, form.rows, 8), to)
    a, b, c = (
        np.array([some_code(rng, kind) for _ in range(math.prod(shape))], object).reshape(shape)
        for shape, kind in shapes
    )
    for modifier in ("", ".satfinite") if to == "s32" else ("",):
        for (warp, row, column), got in multiply(form, (kind_a, kind_b, to), a, b, c, modifier).items():
            if warp and (row + column) % 4:
                continue  # the second warp's places are the first one's: some will do
            vectors = list(a[warp, row]), list(b[warp, :, column]), c[warp, row, column]
            assert got == total((kind_a, kind_b, to), *vectors, modifier), (warp, row, column)


def test_special_elements_reach_their_row_and_no_other():
    a, b = np.full((1, 16, 16), 0x3C00), np.full((1, 16, 8), 0x3C00)
    a[0, 2, 5], a[0, 9, 0], a[0, 4, 1], a[0, 4, 2] = 0x7C00, 0x7E00, 0x7C00, 0xFC00  # Inf; NaN; Inf - Inf
    a[0, 5] = [1] + [0] * 15  # a subnormal number
    found = multiply(HALF_K16, ("f16", "f16", "f32"), a, b, np.zeros((1, 16, 8), int))
    want = {2: math.inf, 4: math.nan, 5: 2.0**-24, 9: math.nan}
    np.testing.assert_equal([decode(code, "f32") for code in found.values()], [want.get(at[1], 16.0) for at in found])


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
    assert [decode(bits, "f32") for bits in bits_of(out)] == [18.0] * 32 + [2.0] * 32
