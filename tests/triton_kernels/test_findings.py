"""What Triton decides by itself on each rung: the evidence behind the sentences in experiments/publish/compilers.toml.

Read off the TTGIR, PTX and SASS that the installed Triton makes for an H200, without a GPU. A test that fails here
after an upgrade means that a sentence is no longer true, not that a kernel is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
import torch

from experiments.studies.shared.chains import chain_of
from gemm_ref import EMULATED, MATHS, get_stage
from gemm_ref.sass import tools
from tests.triton_kernels.harness import (
    compiled,
    conflicts,
    loop_opcodes,
    opcodes,
    opcodes_in,
    product_layout,
    ptx_of,
    total,
    ttgir,
)

pytest.importorskip("triton")

# --- instructions ---------------------------------------------------------------------------------------------

S04 = {"fma.rn.f32": 32, "ld.global": 2, "bar.sync": 2, "ld.shared": 8, "ld.shared.v4": 8, "ldmatrix": 8}
S05 = {"fma.rn.f32": 32, "ld.shared.b32": 32, "ldmatrix": 8}
ELEMENTS = {"fma.rn.f32": 1024, "ld.global": 16, "ld.global.b32": 16, "st.global": 64, "st.global.b32": 64}
VECTORS = {"fma.rn.f32": 1024, "ld.global": 4, "ld.global.v4": 4, "st.global": 16, "st.global.v4": 16}
RAGGED = {"ld.global.v4": 2, "ld.global.b32": 8, "st.global.b32": 64, "st.global.v4": 0}  # B and C by the element
COPIED = {"ld.global": 0, "cp.async.ca": 0}  # all slices by cp.async of 16 bytes
TMA = {"wgmma.mma_async.sync.aligned.m64n256k16": 4, "st.global": 0, "ld.global": 0, "cp.async.c": 0}
# How many instructions of a kernel begin so.
INSTRUCTIONS = {
    **dict.fromkeys(("s03 triton", "s03 gluon"), {"fma.rn.f32": 32, "ld.global": 64}),
    "s04 triton": S04,
    "s04 gluon": S04 | {"mma": 0, "wgmma": 0, "cvt.rna": 0},  # fp32, whatever its TTGIR calls it
    "s05 gluon conflicted": {"fma.rn.f32": 32, "ld.shared": 16, "ld.shared.v4": 16, "ldmatrix": 0},
    **dict.fromkeys(("s05 gluon transposed", "s05 gluon padded", "s05 gluon swizzled"), S05),
    "s06 gluon": {"ldmatrix.sync.aligned.m8n8.x4": 4},
    **dict.fromkeys(("s07 triton", "s07 gluon"), ELEMENTS),
    **dict.fromkeys(("s08 triton", "s08 gluon", "s09 triton"), VECTORS),
    **dict.fromkeys(("s08 triton 4096x4100x4096", "s08 gluon 4096x4100x4096"), RAGGED),
    "s09 gluon": VECTORS
    | {"ld.shared": 64, "ld.shared.v4": 64, "ldmatrix": 0, "st.shared.b32": 8, "st.shared.v4": 2, "stmatrix": 0},
    **dict.fromkeys(("s10 triton one_block", "s11 triton tile128", "s12 triton tile128"), COPIED),
    "s10 gluon one_block": {"bar.sync": 2, "ld.shared": 128, "ld.shared.v4": 128, "ldmatrix": 0, "cp.async": 0},
    "s11 gluon wide": {"bar.sync": 2, "ld.shared": 96, "ld.shared.v4": 96, "ldmatrix": 0, "cp.async": 0},
    "s12 gluon wide": {"bar.sync": 3, "ld.shared": 144, "ld.shared.v4": 144, "ldmatrix": 0},
    **dict.fromkeys(("s14 triton tile128x256", "s14 gluon tile128x256"), {"mul.f32": 128}),  # frees the sums
    # whole vectors, also where 16 does not divide the rows; and rows of an odd size
    "s14 triton tile64x128 64x132x20": {"cp.async.ca": 0, "ld.global": 0},
    "s14 triton tile64x128_floats 64x133x21": {"cp.async.cg": 0, "ld.global": 0},
    "s15 triton bf16": {"wgmma.mma_async.sync.aligned.m64n128k16": 8, "mma.sync": 0},
    # B is transposed by the word, where A is copied by four of them
    "s15 triton tf32": {"wgmma.mma_async.sync.aligned.m64n128k8": 8, "st.shared.b32": 32},
    "s15 triton bf16 sm_80": {"mma.sync.aligned.m16n8k16": 128, "wgmma": 0},
    "s15 gluon bf16": {"mma.sync.aligned.m16n8k16": 128, "ldmatrix": 32, "wgmma": 0},
    "s16 triton bf16": {"wgmma.mma_async.sync.aligned.m64n256k16": 4, "mma.sync": 0},
    "s16 triton tf32": {"wgmma.mma_async.sync.aligned.m64n256k8": 4, "cp.async.ca": 3 * 32, "cp.async.cg": 3 * 4},
    "s16 gluon bf16": {"mma.sync.aligned.m16n8k16": 256, "ldmatrix": 68, "wgmma": 0, "bar.sync": 5},
    "s16 gluon tf32": {"mma.sync.aligned.m16n8k8": 256, "bar.sync": 5},  # one a slice, and one before the loop
    "s17 triton": TMA | {"cp.async.bulk.tensor.2d.": 10, "setmaxnreg": 0},
    "s17 gluon": TMA | {"cp.async.bulk.tensor.2d.": 12, "setmaxnreg": 0},
    "s18 triton": TMA | {"setmaxnreg": 0},
    "s18 gluon": TMA | {"wgmma.mma_async.sync.aligned.m64n256k16": 8, "cp.async.bulk.tensor.2d.": 13},
}
# The same of its innermost loop; Gluon's loops of s10 to s14 have several slices.
IN_LOOP = {
    **dict.fromkeys(
        ("s10 triton one_block", "s11 triton tile128", "s12 triton tile128"), {"bar.sync": 2, "fma.rn.f32": 1024}
    ),
    "s10 gluon one_block": {"bar.sync": 2, "fma.rn.f32": 2 * 1024, "ld.global.v4": 2 * 4},
    "s11 gluon wide": {"bar.sync": 2, "fma.rn.f32": 2 * 1024, "ld.global.v4": 2 * 3},
    "s12 gluon wide": {
        **{"bar.sync": 3, "cp.async.wait_group": 3, "fma.rn.f32": 3 * 1024},
        **{"cp.async.ca": 3 * 4, "cp.async.cg": 3 * 2},  # A by the element, and B by the vector
    },
    "s14 gluon tile128x256": {
        **{"bar.sync": 2, "cp.async.wait_group": 2, "fma.rn.f32": 2 * 8 * 128},
        **{"ld.shared.v4": 2 * 8 * (8 + 16) // 4, "cp.async.ca": 8, "cp.async.cg": 4},
    },
    "s14 triton tile128x256": {"ld.shared.v4": 16 * (16 + 8) // 4, "fma.rn.f32": 16 * 16 * 8},
}
SAME = {
    **{f"{stage} triton": f"{stage} gluon" for stage in ("s02", "s03", "s04")},
    "s05 triton": "s04 triton",
    "s09 triton": "s08 triton",
    "s11 triton tile128": "s10 triton one_block",
}


@pytest.mark.parametrize("kernel", INSTRUCTIONS)
def test_instructions_of_a_kernel(kernel):
    expected = INSTRUCTIONS[kernel]
    assert {prefix: total(opcodes(kernel), prefix) for prefix in expected} == expected


@pytest.mark.parametrize("kernel", IN_LOOP)
def test_instructions_of_the_main_loop(kernel):
    expected = IN_LOOP[kernel]
    assert {prefix: total(loop_opcodes(kernel), prefix) for prefix in expected} == expected


@pytest.mark.parametrize("one, other", SAME.items())
def test_two_kernels_have_the_same_instructions(one, other):
    assert opcodes(one) == opcodes(other)


@pytest.mark.parametrize("variant, bases", [("transposed", 1), ("padded", 1), ("swizzled", 32)])
def test_s05_gluon_needs_an_address_for_each_swizzled_k(variant, bases):
    read = re.findall(r"ld\.shared\.b32\s+%r\d+, \[(%r\d+)", ptx_of(f"s05 gluon {variant}"))
    assert len(set(read)) == bases


@pytest.mark.parametrize("kernel", ["s10 gluon one_block", "s11 gluon wide"])
def test_gluon_loads_the_next_slice_before_the_products_and_stores_it_after_them(kernel):
    order = re.findall(r"ld\.global|fma\.rn\.f32|st\.shared", ptx_of(kernel).split("Inner Loop", 1)[1])
    first = [order.index(name) for name in ("ld.global", "fma.rn.f32", "st.shared")]
    assert first == sorted(first)


def test_s14_gluon_multiplies_column_by_column():
    columns = re.findall(r"fma\.rn\.f32\s+%r\d+, %r\d+, (%r\d+), ", ptx_of("s14 gluon tile128x256"))
    changes = sum(one != other for one, other in pairwise(columns))
    assert changes < 1.1 * len(columns) / 8  # of 8 rows a thread; row by row it would be each time


def test_s14_gluon_reads_nothing_ahead_of_a_trip():
    ahead = ptx_of("s14 gluon tile128x256").split("Inner Loop", 1)[0]
    assert opcodes_in(ahead)["ld.shared.v4.b32"] == 0  # where the source reads what the first products multiply


def test_s14_triton_writes_products_sum_by_sum():
    """Each sum takes all of a slice's products in a row; the order that counts is ptxas' own."""
    made = re.findall(r"fma\.rn\.f32\s+(%\w+), %\w+, %\w+, (%\w+);", ptx_of("s14 triton tile128x256"))
    chained = sum(result == addend for (result, _), (_, addend) in pairwise(made))
    assert chained >= 128 * (get_stage("s14").tiles["triton"]["tile128x256"].BLOCK_K - 1)


def test_b_by_rows_is_the_operand_as_it_lies_in_16_bits():
    """The last two numbers of a wgmma say whether its operands lie along M and N."""
    for kernel in ("s17 triton", "s17 gluon"):
        assert set(re.findall(r"wgmma\.mma_async[^\n]*?, (\d), (\d);", ptx_of(kernel))) == {("0", "1")}


def test_s18_gluon_shares_out_the_registers():
    counts = Counter(re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32\s+(\d+)", ptx_of("s18 gluon")))
    assert counts["inc", "232"] == counts["dec", "232"] == 1 and counts["dec", "40"]


# --- TTGIR, shared memory -------------------------------------------------------------------------------------

NO_CONVERSION = {"ttg.convert_layout": 0}
# How often a regular expression matches a kernel's TTGIR.
TEXTS = {
    "s01 triton": {"ttg.convert_layout": 1},  # which turns the store round
    **dict.fromkeys(("s01 gluon", "s02 triton", "s02 gluon", "s03 triton", "s03 gluon"), NO_CONVERSION),
    **dict.fromkeys(
        ("s04 triton", "s04 gluon"),
        {"ttg.local_alloc": 2, "ttg.local_load": 2, "vec = 1, perPhase = 1, maxPhase = 1, order = .1, 0.": 1},
    ),
    # another name for the same bytes: A as (k, m) with k fastest, and B as (k, n) with n fastest
    "s05 triton": {"ttg.memdesc_trans": 1, "maxPhase = 1, order = .0, 1.": 1, "maxPhase = 1, order = .1, 0.": 1},
    "s05 gluon conflicted": {"maxPhase = 1, order = .0, 1.": 1},
    "s05 gluon transposed": {"maxPhase = 1, order = .0, 1.": 1},
    "s05 gluon padded": {r"padded_shared<.32:\+1.": 1},
    "s05 gluon swizzled": {"maxPhase = 32, order = .0, 1.": 1},
    **dict.fromkeys(("s06 triton", "s07 triton", "s08 triton", "s09 triton"), {"ttg.convert_layout": 1}),
    **dict.fromkeys(("s06 gluon", "s07 gluon", "s08 gluon"), NO_CONVERSION),
    "s09 gluon": NO_CONVERSION | {r"padded_shared<.128:\+4. {order = .0, 1": 1},
    # of `num_stages` one buffer fewer; a copy of each operand before the loop for each, and one in it
    **dict.fromkeys(
        ("s10 triton one_block", "s11 triton tile128"),
        {"local_alloc : .* -> !ttg.memdesc<2x": 2, "ttg.async_copy_global_to_local": 6},
    ),
    "s12 triton tile128": {"local_alloc : .* -> !ttg.memdesc<3x": 2, "ttg.async_copy_global_to_local": 8},
    **dict.fromkeys(("s10 gluon one_block", "s11 gluon wide"), NO_CONVERSION | {"ttg.local_alloc": 4}),
    "s11 gluon tile128": {r"lane = ..0, 4., .4, 0., .0, 8., .0, 16., .8, 0.., warp = ..0, 64., .32, 0., .64, 0..": 1},
    "s12 gluon wide": NO_CONVERSION | {"ttg.local_alloc": 6},
    # two pieces of A and two of B are read for four products, of which a thread has 16 x 8 sums
    "s14 triton tile128x256": {
        **{"tt.dot ": 4, "ttg.local_load": 4},
        "sizePerThread = .4, 4., threadsPerWarp = .1, 32., warpsPerCTA = .8, 1.": 1,
    },
    "s15 triton bf16": {"pendings = .": 1, "pendings = 0": 1, "nvmma_shared<.*transposed = true": 0},
    "s15 triton tf32": {"nvmma_shared<.*transposed = true": 1, "nvmma_shared<.*transposed = false": 1},
    "s16 triton bf16": {"nvmma_shared<.*transposed = true": 0},
    "s16 triton tf32": {"nvmma_shared<.*transposed = true": 1, "nvmma_shared<.*transposed = false": 1},
}
OF_4_BY_4 = "sizePerThread = [4, 4], threadsPerWarp = [1, 32], warpsPerCTA = [8, 1]"
# The layout of the product, with the tile of a thread.
THREAD_TILES = {
    "s06 triton": "sizePerThread = [2, 2], threadsPerWarp = [1, 32], warpsPerCTA = [16, 1]",
    "s06 gluon": "sizePerThread = [8, 1], threadsPerWarp = [1, 32], warpsPerCTA = [8, 2]",
    **dict.fromkeys(("s07 triton", "s08 triton", "s09 triton"), OF_4_BY_4),
    **dict.fromkeys(("s10 triton one_block", "s11 triton tile128", "s12 triton tile128"), OF_4_BY_4),
    "s11 triton narrow": OF_4_BY_4.replace("8, 1", "4, 1"),
    **dict.fromkeys(
        ("s07 gluon", "s08 gluon"), "sizePerThread = [8, 8], threadsPerWarp = [2, 16], warpsPerCTA = [8, 1]"
    ),
    "s09 gluon": "sizePerThread = [4, 4], threadsPerWarp = [2, 16], warpsPerCTA = [8, 1]",
}
TILE_BYTES, SLICE_BYTES = 32 * 32 * 4, 2 * 128 * 16 * 4  # of s01 to s05; of A's and B's slices of s10 to s12
SHARED_BYTES = {
    "s01 triton": TILE_BYTES,
    **dict.fromkeys(("s01 gluon", "s02 triton", "s02 gluon", "s03 triton", "s03 gluon"), 0),
    "s06 triton": 64 * 64 * 4,  # to turn C round; the slices take half
    **dict.fromkeys(("s10 triton one_block", "s11 triton tile128"), 2 * SLICE_BYTES),
    "s12 triton tile128": 3 * SLICE_BYTES,
}
# The accesses to shared memory that have bank conflicts: wavefronts over those without.
CONFLICTS = {
    "s05 gluon conflicted": {"store of 4": 32, "load of 16": 8},  # 4 k of B are read at once
    "s05 gluon transposed": {"store of 4": 32},
    **dict.fromkeys(("s05 triton", "s05 gluon padded", "s05 gluon swizzled"), {}),
    **dict.fromkeys(("s07 gluon", "s08 gluon"), {"load of 4": 2, "load of 16": 2}),
    **dict.fromkeys(("s08 triton", "s09 triton", "s09 gluon", "s10 gluon one_block", "s11 gluon wide"), {}),
    "s12 gluon wide": {"async store of 4": 4},
}


@pytest.mark.parametrize("kernel", TEXTS)
def test_operations_of_the_ttgir(kernel):
    expected = TEXTS[kernel]
    assert {pattern: len(re.findall(pattern, ttgir(kernel))) for pattern in expected} == expected


@pytest.mark.parametrize("kernel, expected", THREAD_TILES.items())
def test_the_tile_of_a_thread(kernel, expected):
    assert f"<{{{expected}" in product_layout(kernel)


@pytest.mark.parametrize("kernel, expected", SHARED_BYTES.items())
def test_shared_memory(kernel, expected):
    assert compiled(kernel).metadata.shared == expected


@pytest.mark.parametrize("kernel", CONFLICTS)
def test_bank_conflicts(kernel):
    assert {name: share for name, share in conflicts(kernel).items() if share > 1} == CONFLICTS[kernel]


@pytest.mark.parametrize("kernel, load, store", [
    ("s01 triton", "[1, 32]", "[32, 1]"),  # the tile is (columns, rows): loads go down the rows of C
    ("s01 gluon", "[32, 1]", "[32, 1]"),  # (rows, columns): both go down the rows
    *((f"{stage} {dialect}", "[1, 32]", "[1, 32]") for stage in ("s02", "s03") for dialect in ("triton", "gluon")),
])  # fmt: skip
def test_lanes_of_global_accesses(kernel, load, store):
    text = ttgir(kernel)
    layouts = dict(re.findall(r"^#(\w+) = #ttg\.blocked<\{.*?threadsPerWarp = (\[.*?\])", text, re.MULTILINE))
    for operation, expected in (("tt.load", load), ("tt.store", store)):
        used = re.findall(operation + r" [^\n]*: tensor<\S+, #(\w+)>", text)
        assert {layouts[name] for name in used} == {expected}


@pytest.mark.parametrize("kernel", ["s10 triton one_block", "s11 triton tile128", "s12 triton tile128"])
def test_triton_starts_the_copy_after_the_multiplication(kernel):
    loop = ttgir(kernel).split("scf.for", 1)[1].split("scf.yield")[0]
    order = re.findall(r"async_wait|local_load|tt\.dot |async_copy_global_to_local", loop)
    assert order == ["async_wait", *["local_load"] * 2, "tt.dot ", *["async_copy_global_to_local"] * 2]


@pytest.mark.parametrize("kernel", ["s16 triton", "s17 triton", "s17 gluon", "s18 triton", "s18 gluon"])
def test_a_slice_is_multiplied_while_the_next_is_waited_for(kernel):
    assert "pendings = 1" in ttgir(kernel)


def test_s18_triton_stores_c_inside_the_loop_over_slices():
    """Its two loops are one, so the slices of the next tile are on their way meanwhile; s17's loop ends before."""
    for stage, last in (("s17", "async_tma_copy_local_to_global"), ("s18", "scf.yield")):
        after = ttgir(f"{stage} triton").split("ttng.warp_group_dot ")[1]
        order = re.findall(r"async_tma_copy_local_to_global|scf\.yield", after)
        assert order[-1] == last and order.count("async_tma_copy_local_to_global") == 2


# --- machine code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel, products", [
    ("s16 gluon bf16", 0), ("s16 gluon tf32", 0),  # by mma.sync
    *((kernel, 4) for kernel in ("s16 triton", "s17 triton", "s17 gluon", "s18 triton", "s18 gluon")),
    ("s19 triton tile64x192 bf16 6304x768x3072", 4), ("s19 triton tile64_two bf16 128x128x65536", 4),
    *((f"s20 {dialect} {math}", chain_of(math, dialect).depth // 16) for dialect in ("triton", "gluon")
      for math in EMULATED),
])  # fmt: skip
def test_nothing_spills_and_no_wgmma_waits_for_the_one_before(kernel, products):
    """s20 may spill before the products and behind them. Serialised, each wgmma would begin with a fence."""
    cubin = compiled(kernel).asm["cubin"]
    (usage,) = tools.usage(cubin).values()
    text = tools.disassemble(cubin)
    assert usage.stack_bytes <= (32 if "s20" in kernel else 0)
    assert not any("LDL" in between for between in re.findall(r"HGMMA.{,4000}?(?=HGMMA)", text, re.DOTALL))
    assert text.count("HGMMA") == products * text.count("WARPGROUP.ARRIVE")


@pytest.mark.parametrize("kernel, expected", [("tile64_two bf16 128x128x65536", True), ("tile64 bf16 64x64x64", False)])
def test_programs_that_wait_for_each_other_start_together(kernel, expected):
    assert compiled(f"s19 gluon {kernel}").metadata.launch_cooperative_grid is expected


# --- s20 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("math", EMULATED)
@pytest.mark.parametrize("dialect, consumers", [("triton", 1), ("gluon", 2)])
def test_every_sum_of_a_slice_is_added_outside_the_tensor_core(dialect, consumers, math):
    """Triton takes `acc += tl.dot(a, b)` for `tl.dot(a, b, acc)`: then no addition would be left."""
    counts = opcodes(f"s20 {dialect} {math}")
    assert total(counts, "wgmma.mma_async.sync.aligned.m64n128k16") == total(counts, "wgmma.mma_async") > 0
    assert counts["add.f32"] + counts["add.rn.f32"] >= consumers * 64


@pytest.mark.parametrize("as_fma", [False, True])
def test_triton_drops_an_addition_that_is_not_written_as_an_fma(as_fma):
    from tests.triton_kernels.programs import promoting
    from triton_kernels import without_gpu

    a, b, c = (torch.empty(64, 64, dtype=dtype, device="meta") for dtype in (torch.half, torch.half, torch.float))
    counts = opcodes_in(without_gpu.compiled(promoting, a, b, c, 9, AS_FMA=as_fma, grid=(1,)).asm["ptx"])
    assert counts["add.f32"] + counts["add.rn.f32"] == as_fma * 64 * 64 // 128


@pytest.mark.parametrize("math, products", [("fp16x3", 2), ("bf16x6", 5)])
def test_gluon_adds_while_small_products_are_multiplied(math, products):
    """All of a slice's products but the first may be under way."""
    assert max(map(int, re.findall(r"pendings = (\d+)", ttgir(f"s20 gluon {math}")))) == products


@pytest.mark.parametrize("math", EMULATED)
def test_three_of_tritons_slices_are_in_shared_memory(math):
    shared_bytes = compiled(f"s20 triton {math}").metadata.shared
    assert 3 * 2 * 128 * chain_of(math, "triton").depth * 2 * MATHS[math].parts < shared_bytes <= 227 * 1024
