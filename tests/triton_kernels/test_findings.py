"""What Triton decides by itself on each rung: the evidence behind the sentences in experiments/publish/compilers.toml.

Read off the TTGIR and the PTX that the installed Triton makes for an H200 (sm_90), without a GPU. A test that fails
here after an upgrade means that a sentence is no longer true, not that a kernel is wrong.
"""

from __future__ import annotations

import re

import pytest

from tests.triton_kernels.harness import compiled, opcodes, total, ttgir

pytest.importorskip("triton")

TILE = 32  # BLOCK_M, BLOCK_N and BLOCK_K of these rungs
TILE_BYTES = TILE * TILE * 4


def lanes(stage: str, dialect: str, operation: str) -> set[str]:
    """The `threadsPerWarp` of the layouts that a memory operation's pointers have."""
    text = ttgir(stage, dialect)
    layouts = dict(re.findall(r"^#(\w+) = #ttg\.blocked<\{.*?threadsPerWarp = (\[.*?\])", text, re.MULTILINE))
    used = re.findall(operation + r" [^\n]*: tensor<\S+, #(\w+)>", text)
    assert used, f"no {operation} in the TTGIR of {stage} in {dialect}"
    return {layouts[name] for name in used}


def test_s01_triton_keeps_the_loads_strided_and_turns_the_store_round():
    # The tile is (columns, rows): lanes along its last axis are lanes down the rows of C.
    assert lanes("s01", "triton", "tt.load") == {"[1, 32]"}
    assert lanes("s01", "triton", "tt.store") == {"[32, 1]"}
    assert ttgir("s01", "triton").count("ttg.convert_layout") == 1
    assert compiled("s01", "triton").metadata.shared == TILE_BYTES


def test_s01_gluon_is_obeyed():
    # Here the tile is (rows, columns): lanes along its first axis are lanes down the rows, in loads and store alike.
    assert lanes("s01", "gluon", "tt.load") == lanes("s01", "gluon", "tt.store") == {"[32, 1]"}
    assert "ttg.convert_layout" not in ttgir("s01", "gluon")
    assert compiled("s01", "gluon").metadata.shared == 0


@pytest.mark.parametrize("dialect", ["triton", "gluon"])
@pytest.mark.parametrize("stage", ["s02", "s03"])
def test_s02_and_s03_run_lanes_along_columns_without_shared_memory(stage, dialect):
    assert lanes(stage, dialect, "tt.load") == lanes(stage, dialect, "tt.store") == {"[1, 32]"}
    assert "ttg.convert_layout" not in ttgir(stage, dialect)
    assert compiled(stage, dialect).metadata.shared == 0


@pytest.mark.parametrize("stage", ["s02", "s03", "s04"])
def test_triton_and_gluon_become_the_same_instructions(stage):
    assert opcodes(stage, "triton") == opcodes(stage, "gluon")


@pytest.mark.parametrize("dialect", ["triton", "gluon"])
def test_s03_keeps_no_tile(dialect):
    counts = opcodes("s03", dialect)
    assert total(counts, "fma.rn.f32") == TILE
    assert total(counts, "ld.global") == 2 * TILE  # each product loads both of its operands, as in s02


@pytest.mark.parametrize("dialect", ["triton", "gluon"])
def test_s04_stages_both_tiles(dialect):
    text, counts = ttgir("s04", dialect), opcodes("s04", dialect)
    assert compiled("s04", dialect).metadata.shared == 2 * TILE_BYTES
    assert "vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0]" in text  # rows as they are, not swizzled
    assert text.count("ttg.local_alloc") == text.count("ttg.local_load") == 2
    assert total(counts, "bar.sync", "barrier") == 2
    assert total(counts, "ld.global") == 2


@pytest.mark.parametrize("dialect", ["triton", "gluon"])
def test_s04_reads_shared_memory_in_16_bytes_a_lane(dialect):
    counts = opcodes("s04", dialect)
    assert total(counts, "fma.rn.f32") == TILE
    assert counts["ld.shared.v4.b32"] == TILE // 4  # A: four steps of K in one load, the same for the whole warp
    assert counts["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] == TILE // 4  # B: four rows in one
    assert total(counts, "ld.shared", "ldmatrix") == TILE // 2


def test_s04_gluon_dot_fma_is_fp32_whatever_its_ttgir_says():
    assert "inputPrecision = tf32" in ttgir("s04", "gluon")  # the name of Gluon's default, without effect on FMAs
    assert total(opcodes("s04", "gluon"), "mma", "wgmma", "cvt.rna") == 0
