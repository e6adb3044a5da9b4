"""Tiles of C that several blocks share, each with a part of K (stream-K), and blocks with many tiles: s14 and s19."""

from __future__ import annotations

import pytest
import torch

import cuda_kernels
import gemm_ref
from gemm_ref import Implementation, Problem, make_inputs, operands, ptx
from gemm_ref.call import Plan, layout
from gemm_ref.call.choose import select_tile
from gemm_ref.ptx import program
from tests.forms.forms import any_shape, check_exactly, load

BANKS = gemm_ref.get_stage("s14")
TILES = [
    ("cuda", "pair128x64"),
    ("cuda", "swapped64x16"),
    ("triton", "swapped64x16_deep"),
    ("gluon", "swapped64x16_deep"),
]
TWO_PARTS = [("triton", "tile64x192"), ("gluon", "tile64x192")]  # tiles of two products


def check(item: Implementation, sizes: tuple[int, int, int], clusters: int) -> None:
    check_exactly(load(item, clusters), Problem(*sizes, item.math), {})


@pytest.mark.parametrize("clusters, k", [(17, 1100), (130, 8300)])  # the twins add 65 shares of each tile in parts
@pytest.mark.parametrize("dialect, tile", TILES)
def test_a_tile_has_many_shares(dialect, tile, clusters, k):
    """More than a thread reads at a time, each of one tile only."""
    check(any_shape(dialect, tile), (130, 64, 1100) if "pair" in tile else (9, 104, k), clusters)


@pytest.mark.parametrize("clusters", [5, 12])  # one of five has shares of both tiles; six of twelve add a tile in parts
@pytest.mark.parametrize("dialect, tile", TWO_PARTS)
def test_both_parts_of_a_tile_are_shared(dialect, tile, clusters):
    """Two tiles, of whose second part C has two columns."""
    check(any_shape(dialect, tile), (100, 130, 700), clusters)


@pytest.mark.parametrize("dialect, tile", TILES)
def test_a_block_has_many_tiles(dialect, tile):
    """Stages and barriers are used over and over; in the last tiles nothing is left for another block."""
    check(any_shape(dialect, tile), (260, 328, 70) if "pair" in tile else (40, 328, 200), 1)


@pytest.mark.parametrize("dialect, tile", [*TILES, ("cuda", "tile64"), ("cuda", "pair64x128")])
def test_there_are_fewer_slices_to_share_than_blocks(dialect, tile):
    """6 tiles of 2 slices, of which 2 are shared by 5: some blocks have none, and nobody waits for them."""
    item = any_shape(dialect, tile)
    config = item.config
    m, n = config.BLOCK_M * config.CLUSTER_M, 6 * config.BLOCK_N
    k = config.BLOCK_K_BYTES // 2 + 36  # of 2 bytes each
    check(item, (n, m, k) if config.TRANSPOSE_C else (m, n, k), 5)


@pytest.mark.parametrize("tile, clusters", [("pair128x64", 9), ("swapped64x16", 40)])
def test_a_tile_that_is_added_together_has_the_same_bits(tile, clusters, monkeypatch):
    """As if one block added it: because it owns the tile, or because the others wait in vain for later blocks."""
    item = any_shape("cuda", tile)
    a, b = make_inputs(problem := Problem(70, 64, 700, item.math))
    assert item.config.columns_added(problem, clusters * item.config.CLUSTER_M)
    with ptx.watched(detectors := ptx.Detectors()):
        together = load(item, clusters)(a, b)
        monkeypatch.setattr(program, "BATCH_LANES", 1)  # a cluster runs after the other
        in_turn = load(item, clusters)(a, b)
        monkeypatch.setattr(type(item.config), "columns_added", lambda *_: 0)
        by_owner = load(item, clusters)(a, b)
    assert torch.equal(together, by_owner) and torch.equal(in_turn, by_owner) and not detectors.findings
    gemm_ref.check(together, a, b, math=item.math)


def test_a_cluster_that_shares_a_tile_has_no_other():
    with pytest.raises(ValueError, match="this tile takes 4 blocks, a cluster per tile of C, and not 2"):
        check(any_shape("cuda", "split2swapped128x32"), (9, 200, 264), 1)


@pytest.mark.parametrize(("tile", "sizes"), [("tile128", (130, 132, 400)), ("tile8x64", (40, 300, 600))])
def test_the_second_launch_of_s14_adds_the_shares(tile, sizes):
    """Two launches fill C and the partial sums between them, so neither has to write all of them."""
    a, b = make_inputs(Problem(*sizes))
    with ptx.watched(detectors := ptx.Detectors()):
        gemm_ref.check(cuda_kernels.gemm(a, b, stage="s14", variant=tile), a, b)
    item = Implementation(BANKS, tile, "cuda", "fp32")
    assert select_tile(Plan(item, Problem(*sizes)), a, b).launch.then and detectors.findings == ()


def test_padding_behind_the_rows_of_a_copied_b_does_not_count(monkeypatch):
    def poisoned(x: torch.Tensor) -> torch.Tensor:
        room = operands.padded_to_lines(x)
        operands.with_padding(room).fill_(torch.nan)
        return room

    monkeypatch.setattr(layout, "COPIES", {**layout.COPIES, layout.LINES: poisoned})
    a, b = make_inputs(Problem(70, 67, 40), "integers")
    gemm_ref.check(cuda_kernels.gemm(a, b, stage="s14", variant="tile64_copied"), a, b, exact=True)


@pytest.mark.parametrize("sizes", [(1, 100, 700), (2, 101, 33), (70, 1, 520), (9, 2, 33), (1, 1, 0)], ids=str)
@pytest.mark.parametrize("tile", ["tile1x32", "tile1x16", "tile4x1", "tile1x1"])
def test_one_row_and_one_column(tile, sizes, device):
    a, b = make_inputs(Problem(*sizes), "integers", seed=sum(sizes), device=device)
    gemm_ref.checked_run(load(Implementation(BANKS, tile, "cuda", "fp32")), a, b, exact=True)


@pytest.mark.gpu  # the reference GPU is slow, and runs blocks in one order
@pytest.mark.parametrize("sizes", [(512, 512, 4096), (8, 4096, 4096), (1025, 1023, 515), (4096, 4096, 4096)], ids=str)
@pytest.mark.parametrize("dialect", gemm_ref.DIALECTS)
def test_the_same_bits_in_every_run(dialect, sizes):
    a, b = make_inputs(Problem(*sizes), device="cuda")
    gemm = load(Implementation(BANKS, "default", dialect, "fp32"))
    first = gemm(a, b)
    for _ in range(200):
        assert torch.equal(gemm(a, b), first)
