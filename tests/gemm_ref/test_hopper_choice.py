"""The choice of s19's tile and blocks: its table, its candidates, and what the model says of plain cases."""

from __future__ import annotations

import pytest

import gemm_ref
from gemm_ref import Problem, choice, hopper_choice

RUNG = gemm_ref.get_stage("s19")
TILES = RUNG.tiles["cuda"]
SMS = 132


def chosen(*sizes, math="bf16", b_layout="kn"):
    return choice.choose(RUNG, "cuda", Problem(*sizes, math, b_layout=b_layout), SMS, vectors=True)


def test_the_table_has_every_tile_of_every_kind_of_gpu():
    for name, gpu in hopper_choice.devices().items():
        assert hopper_choice.device(name) == gpu
        for dialect, tiles in RUNG.tiles.items():
            assert gpu.tiles[RUNG.id][dialect].keys() == tiles.keys()
    assert hopper_choice.device("a GPU of tomorrow") == next(iter(hopper_choice.devices().values()))


def test_tiles_are_counted_in_what_the_kernel_computes():
    """C, or C^T in a swapped tile, and in tf32 where B is stored by rows; a cluster has several below one another."""
    for tile, math, layout, wanted in (
        ("tile128", "bf16", "kn", (3, 2, 4)),
        ("pair128x256", "bf16", "nk", (2, 1, 4)),
        ("swapped128x64", "bf16", "kn", (2, 5, 4)),
        ("tile128x64", "tf32", "kn", (2, 5, 8)),
        ("tile128x64", "tf32", "nk", (3, 4, 8)),
    ):
        problem = Problem(300, 200, 230, math, b_layout=layout)
        assert hopper_choice.tiles_of(TILES[tile], problem) == wanted, tile


@pytest.mark.parametrize("sizes", [(1, 1, 1), (16, 4096, 4096), (128, 128, 65536), (4096, 4096, 4096), (5, 9, 70000)])
def test_blocks_are_whole_clusters_and_have_slices(sizes):
    problem = Problem(*sizes, "bf16")
    for config in TILES.values():
        tiles_m, tiles_n, slices = hopper_choice.tiles_of(config, problem)
        found = hopper_choice.blocks_for(config, problem, SMS)
        cluster = config.CLUSTER_M * config.CLUSTER_K
        assert tiles_m * tiles_n * cluster in found and not any(blocks % cluster for blocks in found)
        assert all(blocks // cluster <= max(1, slices) * tiles_m * tiles_n for blocks in found)
        assert config.CLUSTER_K == 1 or len(found) == 1


def test_what_is_chosen_for_plain_cases():
    assert TILES[chosen(8, 8192, 4096).tile].SWAPPED and not TILES[chosen(8192, 8192, 4096).tile].SWAPPED
    few = chosen(128, 128, 65536)
    assert few.blocks > 64  # one tile or a few of them, and K in shares
    large = TILES[chosen(8192, 8192, 8192).tile]
    assert large.BLOCK_M * large.BLOCK_N == 128 * 256


def test_more_work_takes_longer():
    config, gpu = TILES["tile128x256"], hopper_choice.device()
    costs = gpu.tiles[RUNG.id]["cuda"]["tile128x256"]

    def took(*sizes):
        problem = Problem(*sizes, "bf16")
        blocks = hopper_choice.blocks_for(config, problem, SMS)[0]
        return hopper_choice.predict(config, costs, gpu, problem, SMS, blocks)

    assert took(4096, 4096, 4096) < took(4096, 4096, 8192) < took(8192, 4096, 8192)
    # rows of 8208 bytes begin within a line of the cache; those of 8200 are copied
    assert took(4096, 4096, 4100) < took(4096, 4096, 4104)
