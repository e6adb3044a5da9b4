"""What Triton makes of s14's tiles: the evidence behind its sentence."""

from __future__ import annotations

import re

import pytest

from gemm_ref import get_stage
from tests.triton_kernels.harness import body, compiled, opcodes_in, ttgir

pytest.importorskip("triton")

TILES = get_stage("s14").tiles["triton"]
BIG = "s14", "triton", "tile128x256"


def test_a_tile_is_multiplied_in_pieces_that_share_what_is_read():
    """Four `tl.dot` read two pieces of A and two of B; a thread has 16 x 8 sums, where one would give it 32 x 4."""
    tile = TILES["tile128x256"]
    rows, columns = tile.BLOCK_M // tile.DOT_M, tile.BLOCK_N // tile.DOT_N
    text = ttgir(*BIG)
    assert text.count("tt.dot ") == rows * columns and text.count("ttg.local_load") == rows + columns
    warps = compiled(*BIG).metadata.num_warps
    assert f"sizePerThread = [4, 4], threadsPerWarp = [1, 32], warpsPerCTA = [{warps}, 1]" in text
    thread_m, thread_n = rows * tile.DOT_M // warps, columns * tile.DOT_N // 32
    assert (thread_m, thread_n) == (16, 8)
    before = body(*BIG).split("fma.rn.f32", 1)[0]
    label = re.findall(r"^(\$L\w+):", before, re.MULTILINE)[-1]
    loop = opcodes_in(body(*BIG).split(f"{label}:", 1)[1].split(label, 1)[0])
    assert loop["ld.shared.v4.b32"] == tile.BLOCK_K * (thread_m + thread_n) // 4
    assert loop["fma.rn.f32"] == tile.BLOCK_K * thread_m * thread_n


def test_products_are_written_sum_by_sum():
    """Each sum takes all of a slice's products in a row; the order that counts is ptxas' own."""
    made = re.findall(r"fma\.rn\.f32\s+(%\w+), %\w+, %\w+, (%\w+);", body(*BIG))
    chained = sum(result == addend for (result, _), (_, addend) in zip(made, made[1:], strict=False))
    tile = TILES["tile128x256"]
    assert chained >= 128 * (tile.BLOCK_K - 1)


def test_sums_are_freed_before_they_are_stored():
    tile = TILES["tile128x256"]
    threads = 32 * compiled(*BIG).metadata.num_warps
    assert opcodes_in(body(*BIG))["mul.f32"] == tile.BLOCK_M * tile.BLOCK_N // threads


def test_rows_of_whole_vectors_are_copied_as_such():
    """Also where 16, of which Triton tells its compiler by itself, does not divide them."""
    for tile, sizes, size in (("tile64x128", (64, 132, 20), "0x10"), ("tile64x128_floats", (64, 133, 21), "0x4")):
        text = body("s14", "triton", tile, sizes)
        assert set(re.findall(r"cp\.async\.c[ag]\S* \[[^\n]*?, (0x\w+),", text)) == {size}
