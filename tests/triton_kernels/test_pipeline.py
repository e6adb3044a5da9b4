"""What Triton decides by itself on the rungs of pipelines, s10 to s14: the evidence behind the registry's sentences.

Read off the TTGIR and the PTX that the installed Triton makes for an H200 (sm_90), and off the addresses that the PTX
asks shared memory for on the reference GPU. A test that fails here after an upgrade means that a sentence is no longer
true, not that a kernel is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
import torch

from gemm_ref import Implementation, Problem, get_stage
from gemm_ref.call import Plan
from tests.triton_kernels.harness import body, compiled, opcodes_in, product_layout, shared_accesses, ttgir, worst

pytest.importorskip("triton")

SLICE_BYTES = 2 * 128 * 16 * 4  # of A and of B, in the tile of 128 x 128 x 16
TRITON = [("s10", "one_block"), ("s11", "tile128"), ("s12", "tile128")]
GLUON = [("s10", "one_block"), ("s11", "wide"), ("s12", "wide")]


def config(stage: str, variant: str):
    return get_stage(stage).variants[variant]


def main_loop(*which) -> Counter[str]:
    """The instructions of the one loop that has none in it."""
    text = body(*which)
    (label,) = re.findall(r"^(\$L\w+):(?:[^\n]*\n +//)*[^\n]*Inner Loop", text, re.MULTILINE)
    return opcodes_in(text.split(f"{label}:", 1)[1].rsplit(label, 1)[0])


def copied_bytes(*which) -> set[str]:
    return set(re.findall(r"cp\.async\.c[ag]\S* \[[^\n]*?, (0x\w+),", body(*which)))


def conflicts(stage: str, dialect: str, variant: str) -> dict[str, float]:
    """The worst access of each kind and size to shared memory: wavefronts over those without bank conflicts."""
    return worst(shared_accesses(stage, dialect, variant), lambda count: f"{count.kind} of {count.size}")


@pytest.mark.parametrize(("stage", "variant"), TRITON)
def test_triton_copies_asynchronously_from_the_first_rung_on(stage, variant):
    which = stage, "triton", variant
    buffers = config(stage, variant).NUM_STAGES
    text = ttgir(*which)
    assert re.findall(r"local_alloc : \(\) -> !ttg.memdesc<(\w+)xf32", text) == [
        f"{buffers}x128x16",
        f"{buffers}x16x128",
    ]
    assert text.count("ttg.async_copy_global_to_local") == 2 * (buffers + 1)  # before the loop, and one slice in it
    assert compiled(*which).metadata.shared == buffers * SLICE_BYTES
    assert opcodes_in(body(*which))["ld.global.v4.b32"] == 0 and copied_bytes(*which) == {"0x10"}


@pytest.mark.parametrize(("stage", "variant"), TRITON)
def test_triton_starts_the_copy_after_the_multiplication_behind_a_second_barrier(stage, variant):
    loop = ttgir(stage, "triton", variant).split("scf.for", 1)[1]
    order = re.findall(r"ttg.async_wait|ttg.local_load|tt.dot |ttg.async_copy_global_to_local|scf.yield", loop)
    assert order[: order.index("scf.yield")] == [
        "ttg.async_wait", *["ttg.local_load"] * 2, "tt.dot ", *["ttg.async_copy_global_to_local"] * 2,
    ]  # fmt: skip
    counts = main_loop(stage, "triton", variant)
    assert counts["bar.sync"] == 2 and counts["fma.rn.f32"] == 64 * 16


def test_triton_keeps_one_buffer_fewer_than_num_stages():
    """Of two stages, one buffer is left, and its copy cannot start before the slice in it has been multiplied."""
    from triton_kernels import launcher, s10_double_buffer

    stage = get_stage("s10")
    plan = Plan(Implementation(stage, "one_block", "triton", "fp32"), Problem(4096, 4096, 4096))
    a = torch.empty((4096, 4096), device="meta")
    kernel = launcher.prepare(s10_double_buffer._gemm_kernel, plan, num_stages=2)(a, a, a)
    assert "!ttg.memdesc<1x128x16xf32" in kernel.asm["ttgir"]
    assert kernel.metadata.shared == SLICE_BYTES


def test_triton_s11_is_s10():
    assert opcodes_in(body("s11", "triton", "tile128")) == opcodes_in(body("s10", "triton", "one_block"))


@pytest.mark.parametrize(("stage", "variant"), [*TRITON, ("s11", "narrow")])
def test_triton_lays_a_warp_along_whole_rows(stage, variant):
    which = stage, "triton", variant
    shape = (
        f"sizePerThread = [4, 4], threadsPerWarp = [1, 32], warpsPerCTA = [{compiled(*which).metadata.num_warps}, 1]"
    )
    assert f"#{product_layout(*which)} = #ttg.blocked<{{{shape}" in ttgir(*which)


@pytest.mark.parametrize(("stage", "variant"), GLUON)
def test_gluon_has_one_barrier_a_slice(stage, variant):
    """And no other: the buffers are apart, so nothing else needs one."""
    shape = config(stage, variant)
    which = stage, "gluon", variant
    products = shape.BLOCK_K * shape.THREAD_M * shape.THREAD_N
    assert opcodes_in(body(*which))["bar.sync"] == main_loop(*which)["bar.sync"] == shape.NUM_STAGES
    assert main_loop(*which)["fma.rn.f32"] == shape.NUM_STAGES * products
    assert ttgir(*which).count("ttg.local_alloc") == 2 * shape.NUM_STAGES
    assert "ttg.convert_layout" not in ttgir(*which)


@pytest.mark.parametrize(("stage", "variant"), GLUON)
def test_gluon_reads_shared_memory_in_vectors_without_conflicts(stage, variant):
    shape = config(stage, variant)
    counts = opcodes_in(body(stage, "gluon", variant))
    reads = shape.NUM_STAGES * shape.BLOCK_K * (shape.THREAD_M + shape.THREAD_N) // 4
    assert {name: count for name, count in counts.items() if name.startswith(("ld.shared", "ldmatrix"))} == {
        "ld.shared.v4.b32": reads
    }
    expected = {"load of 16": 1, "store of 4": 1, "store of 16": 1}
    if stage == "s12":
        expected = {"load of 16": 1, "async store of 4": 4, "async store of 16": 1}
    assert conflicts(stage, "gluon", variant) == expected


@pytest.mark.parametrize(("stage", "variant"), [w for w in GLUON if w[0] != "s12"])
def test_gluon_loads_the_next_slice_into_registers(stage, variant):
    shape = config(stage, variant)
    which = stage, "gluon", variant
    threads = 32 * compiled(*which).metadata.num_warps
    vectors = shape.BLOCK_K * (shape.BLOCK_M + shape.BLOCK_N) // 4 // threads
    assert main_loop(*which)["ld.global.v4.b32"] == shape.NUM_STAGES * vectors
    order = re.findall(r"ld\.global|fma\.rn\.f32|st\.shared", body(*which).split("Inner Loop", 1)[1])
    first = [order.index(name) for name in ("ld.global", "fma.rn.f32", "st.shared")]
    assert first == sorted(first)  # loaded before the multiplication, stored after it
    assert not copied_bytes(*which)


def test_s12_gluon_copies_a_by_the_element_and_b_by_the_vector():
    shape = config("s12", "wide")
    which = "s12", "gluon", "wide"
    threads = 32 * compiled(*which).metadata.num_warps
    counts = main_loop(*which)
    assert counts["cp.async.ca.shared.global"] == shape.NUM_STAGES * shape.BLOCK_M * shape.BLOCK_K // threads
    assert counts["cp.async.cg.shared.global"] == shape.NUM_STAGES * shape.BLOCK_N * shape.BLOCK_K // 4 // threads
    assert counts["cp.async.wait_group"] == shape.NUM_STAGES
    assert copied_bytes(*which) == {"0x4", "0x10"}
    assert compiled(*which).metadata.shared == 4 * shape.NUM_STAGES * shape.BLOCK_K * (shape.BLOCK_M + shape.BLOCK_N)


def test_s11_gluon_keeps_the_compact_warp():
    text = ttgir("s11", "gluon", "tile128")
    assert "lane = [[0, 4], [4, 0], [0, 8], [0, 16], [8, 0]], warp = [[0, 64], [32, 0], [64, 0]]" in text


def test_s14_gluon_multiplies_column_by_column():
    """And each sum by one before the store, so that it may have any register until then."""
    which = "s14", "gluon", "tile128x256"
    shape = get_stage("s14").tiles["gluon"]["tile128x256"]
    columns = re.findall(r"fma\.rn\.f32\s+%r\d+, %r\d+, (%r\d+), ", body(*which))
    assert len(columns) == main_loop(*which)["fma.rn.f32"] == 2 * shape.BLOCK_K * shape.THREAD_M * shape.THREAD_N
    changes = sum(one != other for one, other in pairwise(columns))
    assert changes < 1.1 * len(columns) / shape.THREAD_M  # row by row it would be each time
    assert opcodes_in(body(*which))["mul.f32"] == shape.THREAD_M * shape.THREAD_N


def test_s14_gluon_has_a_barrier_a_slice_and_no_read_ahead_of_a_trip():
    which = "s14", "gluon", "tile128x256"
    counts, ahead = main_loop(*which), body(*which).split("Inner Loop", 1)[0]
    assert counts["bar.sync"] == counts["cp.async.wait_group"] == 2  # slices of a trip
    assert counts["ld.shared.v4.b32"] == 2 * 8 * (8 + 16) // 4
    assert opcodes_in(ahead)["ld.shared.v4.b32"] == 0  # where the source reads what the first products multiply
    assert copied_bytes(*which) == {"0x4", "0x10"}
