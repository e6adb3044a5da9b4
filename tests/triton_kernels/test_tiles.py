"""What Triton decides by itself on the rungs of tiles, s05 to s09: the evidence behind the registry's sentences.

Read off the TTGIR and the PTX that the installed Triton makes for an H200 (sm_90), and off the addresses that the PTX
asks shared memory for on the reference GPU. A test that fails here after an upgrade means that a sentence is no longer
true, not that a kernel is wrong.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from gemm_ref import get_stage
from gemm_ref.rung import DEFAULT_VARIANT
from tests.triton_kernels.harness import body, compiled, opcodes, product_layout, shared_accesses, ttgir, worst

pytest.importorskip("triton")


def starting(counts: Counter[str], prefix: str) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name.startswith(prefix)}


def thread_tile(stage: str, dialect: str) -> tuple[str, str, str]:
    """The layout of the product: elements a thread, threads a warp, warps a block."""
    shape = r"sizePerThread = (.*?), threadsPerWarp = (.*?), warpsPerCTA = (.*?), order"
    layout = rf"^#{product_layout(stage, dialect)} = #ttg.blocked<\{{{shape}"
    return re.search(layout, ttgir(stage, dialect), re.MULTILINE).groups()


def conflicts(stage: str, dialect: str, variant: str = DEFAULT_VARIANT) -> dict[str, float]:
    """The worst access of each kind to shared memory: wavefronts over those without bank conflicts."""
    return worst(shared_accesses(stage, dialect, variant), lambda count: count.kind)


def test_s05_triton_stores_a_transposed_slice_as_it_was():
    text = ttgir("s05", "triton")
    assert text.count("ttg.memdesc_trans") == 1  # tl.trans: another name for the same bytes
    orders = re.findall(r"^#shared\d* = .*vec = 1, perPhase = 1, maxPhase = 1, order = (.*?)\}", text, re.MULTILINE)
    assert sorted(orders) == ["[0, 1]", "[1, 0]"]  # A (k, m) with k fastest, and B (k, n) with n fastest
    assert opcodes("s05", "triton") == opcodes("s04", "triton")
    assert conflicts("s05", "triton") == {"load": 1, "store": 1}


@pytest.mark.parametrize(
    ("variant", "layout", "shared", "load", "store"),
    [
        ("conflicted", "maxPhase = 1, order = [0, 1]", 8192, 8, 32),  # 4 k of B are read at once
        ("transposed", "maxPhase = 1, order = [0, 1]", 8192, 1, 32),
        ("padded", "padded_shared<[32:+1]", 8320, 1, 1),
        ("swizzled", "maxPhase = 32, order = [0, 1]", 8192, 1, 1),
    ],
)
def test_s05_gluon_stores_as_asked(variant, layout, shared, load, store):
    which = "s05", "gluon", variant
    assert layout in ttgir(*which)
    assert compiled(*which).metadata.shared == shared
    assert conflicts(*which) == {"load": load, "store": store}


@pytest.mark.parametrize("variant", get_stage("s05").variants_in("gluon"))
def test_s05_gluon_reads_four_k_at_once_only_where_they_are_neighbours(variant):
    counts = opcodes("s05", "gluon", variant)
    assert counts["fma.rn.f32"] == 32
    if variant == "conflicted":
        assert starting(counts, "ld") == {"ld.global.b32": 2, "ld.shared.v4.b32": 16} | starting(counts, "ld.param")
    else:
        assert counts["ld.shared.b32"] == 32  # A, a word that is the same for the warp
        assert counts["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] == 8  # B, four rows in one


@pytest.mark.parametrize(("variant", "bases"), [("transposed", 1), ("padded", 1), ("swizzled", 32)])
def test_s05_gluon_needs_an_address_for_each_swizzled_k(variant, bases):
    read = re.findall(r"ld\.shared\.b32\s+%r\d+, \[(%r\d+)", body("s05", "gluon", variant))
    assert len(set(read)) == bases


def test_s06_triton_cuts_pieces_of_2_by_2():
    assert thread_tile("s06", "triton") == ("[2, 2]", "[1, 32]", "[16, 1]")  # 32 x 64, twice: 4 x 2 a thread
    assert ttgir("s06", "triton").count("ttg.convert_layout") == 1
    assert compiled("s06", "triton").metadata.shared == 64 * 64 * 4  # to turn C round; the slices take half


def test_s06_gluon_is_obeyed():
    assert thread_tile("s06", "gluon") == ("[8, 1]", "[1, 32]", "[8, 2]")
    assert "ttg.convert_layout" not in ttgir("s06", "gluon")
    assert compiled("s06", "gluon").metadata.shared == 2 * 64 * 16 * 4
    assert opcodes("s06", "gluon")["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] == 4  # B: 16 k, four at once


@pytest.mark.parametrize("stage", ["s07", "s08", "s09"])
def test_triton_cuts_pieces_of_4_by_4(stage):
    assert thread_tile(stage, "triton") == ("[4, 4]", "[1, 32]", "[8, 1]")  # 32 x 128, four times: 16 x 4 a thread
    assert ttgir(stage, "triton").count("ttg.convert_layout") == 1


@pytest.mark.parametrize(("stage", "tile"), [("s07", "[8, 8]"), ("s08", "[8, 8]"), ("s09", "[4, 4]")])
def test_gluon_keeps_the_thread_tile(stage, tile):
    assert thread_tile(stage, "gluon") == (tile, "[2, 16]", "[8, 1]")
    assert "ttg.convert_layout" not in ttgir(stage, "gluon")


@pytest.mark.parametrize("dialect", ["triton", "gluon"])
def test_s07_accesses_global_memory_by_the_element(dialect):
    counts = opcodes("s07", dialect)
    assert counts["fma.rn.f32"] == 64 * 16
    assert starting(counts, "ld.global") == {"ld.global.b32": 16}
    assert starting(counts, "st.global") == {"st.global.b32": 64}


@pytest.mark.parametrize("dialect", ["triton", "gluon"])
@pytest.mark.parametrize("stage", ["s08", "s09"])
def test_s08_and_s09_access_global_memory_by_the_vector(stage, dialect):
    counts = opcodes(stage, dialect)
    assert counts["fma.rn.f32"] == 64 * 16
    assert starting(counts, "ld.global") == {"ld.global.v4.b32": 4}
    assert starting(counts, "st.global") == {"st.global.v4.b32": 16}


@pytest.mark.parametrize("dialect", ["triton", "gluon"])
def test_s08_takes_16_elements_for_a_vector_of_4(dialect):
    counts = opcodes("s08", dialect, DEFAULT_VARIANT, (4096, 4100, 4096))  # rows of B and C: 1025 vectors
    assert starting(counts, "ld.global") == {"ld.global.v4.b32": 2, "ld.global.b32": 8}
    assert starting(counts, "st.global") == {"st.global.b32": 64}


def test_s09_triton_is_s08():
    assert opcodes("s09", "triton") == opcodes("s08", "triton")


def test_s09_gluon_accesses_shared_memory_as_the_cuda_rung():
    counts = opcodes("s09", "gluon")
    assert "padded_shared<[128:+4] {order = [0, 1]" in ttgir("s09", "gluon")
    assert starting(counts, "ld.shared") == {"ld.shared.v4.b32": 64}  # 16 k, two vectors of A and two of B
    assert starting(counts, "st.shared") == {"st.shared.b32": 8, "st.shared.v4.b32": 2}
    assert not starting(counts, "ldmatrix") and not starting(counts, "stmatrix")


@pytest.mark.parametrize(
    ("stage", "dialect", "load"),
    [("s07", "gluon", 2), ("s08", "gluon", 2), ("s09", "gluon", 1), ("s08", "triton", 1), ("s09", "triton", 1)],
)
def test_the_reads_that_conflict(stage, dialect, load):
    assert conflicts(stage, dialect) == {"load": load, "store": 1}
