"""Each tile of s19 in Triton's dialects, whole and shared, in every math mode, with B either way round."""

from __future__ import annotations

import pytest

import gemm_ref
from experiments.records.contenders import with_blocks
from gemm_ref import Implementation, Problem, make_inputs, ptx
from gemm_ref.choice.work import count_tiles
from gemm_ref.operands import as_layout
from tests.conftest import DEVICES
from tests.matrices import in_turn

pytest.importorskip("triton")

RUNG = gemm_ref.get_stage("s19")
DIALECTS = [dialect for dialect in RUNG.tiles if gemm_ref.DIALECTS[dialect].package == "triton_kernels"]
# Each tile and each mode of a dialect, in tiles of C and of C^T, which read A and B the other way round
EACH = []
for _dialect in DIALECTS:
    _tiles, _modes = RUNG.tiles[_dialect], [(m, layout) for m in RUNG.maths for layout in RUNG.reads_b(m, _dialect)]
    for _side in (0, 1):
        EACH += in_turn([_dialect], [tile for tile in _tiles if _tiles[tile].TRANSPOSE_C == _side], _modes)


def run(dialect, tile, math, layout, sizes, blocks, device="cpu"):
    """C is checked; the findings of the detectors are handed back."""
    a, b = make_inputs(Problem(*sizes, math), "integers", seed=sum(sizes), device=device)
    gemm = with_blocks(Implementation(RUNG, tile, dialect, math), blocks).load()
    with ptx.watched(detectors := ptx.Detectors()):
        gemm_ref.checked_run(gemm, a, as_layout(b, layout), math=math, exact=True)
    return detectors.findings


def tiles_of(dialect, tile, math, layout, sizes):
    config, problem = RUNG.config(tile, dialect), Problem(*sizes, math, b_layout=layout)
    tiles_m, tiles_n, _ = count_tiles(config, problem)
    return tiles_m * tiles_n


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dialect", "tile", "mode"), EACH)
def test_every_tile_and_mode_bit_exact_whole_and_shared(dialect, tile, mode, device):
    """Tiles past both edges, a slice that is not whole; shares, some programs with two; in bf16 tile after tile too."""
    sizes = 77, 136, 456
    tiles = tiles_of(dialect, tile, *mode, sizes)
    for blocks in {1, tiles + 1, 5} if mode == ("bf16", "kn") else {5}:
        assert not run(dialect, tile, *mode, sizes, blocks, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", [("bf16", "kn"), ("tf32", "nk")])
@pytest.mark.parametrize("tile", ["tile128x256", "swapped64x32"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_threads_store_a_c_whose_rows_begin_anywhere(dialect, tile, mode, device):
    """Whole tiles, in pieces, and shares; none of it beside C."""
    sizes = 77, 301, 200
    for blocks in (tiles_of(dialect, tile, *mode, sizes), 3):
        assert not run(dialect, tile, *mode, sizes, blocks, device)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_there_are_fewer_slices_to_share_than_programs(dialect):
    """Some programs have none, and nobody waits for them."""
    assert not run(dialect, "tile64", "bf16", "kn", (64, 6 * 64, 100), 5)  # 6 tiles of 2 slices: 2 are shared


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tile_has_many_shares(dialect):
    assert not run(dialect, "swapped64x16", "bf16", "kn", (9, 100, 1100), 17)
