"""The choice of tile and blocks by shape, and how tiles are dealt to blocks."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gemm_ref
from gemm_ref import Implementation, Problem, choice, grids
from gemm_ref.call import Call, settle, validate
from gemm_ref.sass.occupancy import ARCHITECTURES, occupancy

RUNG = gemm_ref.get_stage("s14")
SHAPES = [(4096, 4096, 4096), (1, 6144, 4096), (513, 513, 513), (128, 128, 65536), (100000, 64, 64), (33, 2, 1)]
sizes = st.integers(1, 9000)


@pytest.mark.parametrize("dialect", RUNG.tiles)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_least_of_what_is_predicted(shape, dialect):
    gpu, problem = choice.device(), Problem(*shape)
    family = gpu.rungs[RUNG.id][dialect]
    for vectors in (True, False):
        chosen = choice.choose(RUNG, dialect, problem, 132, vectors)
        least = choice.predict(RUNG.config(chosen.tile, dialect), chosen.tile, family, gpu, problem, 132, chosen.blocks)
        for tile, config in choice.tiles_for(RUNG, dialect, vectors).items():
            for blocks in choice.blocks_for(config, problem, 132):
                assert least <= choice.predict(config, tile, family, gpu, problem, 132, blocks)


def test_blocks_that_share_nothing_take_their_tiles_one_after_another():
    """22 tiles for each of 132 blocks, one on each multiprocessor, which does not hide what a tile begins with."""
    gpu, config, problem = choice.device(), RUNG.config("tile32x128", "cuda"), Problem(1408, 8384, 320)
    few, many = (
        choice.predict(config, "tile32x128", gpu.rungs[RUNG.id]["cuda"], gpu, problem, 132, x) for x in (132, 2904)
    )
    assert few > 1.7 * many


@pytest.mark.parametrize("dialect", RUNG.tiles)
def test_every_tile_has_its_costs(dialect):
    for name, gpu in choice.devices().items():
        costs = gpu.rungs[RUNG.id][dialect].tiles
        assert set(costs) == set(RUNG.tiles[dialect]), name
        assert all(min(astuple(cost)) > 0 for cost in costs.values())
    assert choice.device("a GPU of tomorrow") == next(iter(choice.devices().values()))


@pytest.mark.parametrize("dialect", ["cuda", "gluon"])  # Triton's slices are not padded
def test_a_multiprocessor_has_shared_memory_for_so_many_blocks(dialect):
    """Blocks that share tiles are taken to be there all at once."""
    for name, config in RUNG.tiles[dialect].items():
        launch = RUNG.launch_shape(config, 4096, 4096, 4096, 132)
        held = occupancy(ARCHITECTURES["sm_90a"], launch.threads, 1, launch.shared_bytes)
        assert held.blocks >= config.BLOCKS_PER_SM, name


@given(m=sizes, n=sizes, k=sizes, tile=st.sampled_from(list(RUNG.tiles["cuda"])), sms=st.integers(1, 200))
def test_dealt_tiles_are_all_there(m, n, k, tile, sms):
    """Whole tiles and shares make up every slice of every tile, and no block has shares of more than two tiles."""
    config = RUNG.config(tile, "cuda")
    tiles = grids.cdiv(m, config.BLOCK_M) * grids.cdiv(n, config.BLOCK_N)
    slices = grids.cdiv(k, config.BLOCK_K)
    for blocks in choice.blocks_for(config, Problem(m, n, k), sms):
        launch = grids.deal(config, m, n, k, blocks)
        left = tiles % blocks
        assert launch.grid == (blocks, 1, 1) and (launch.then is None) == (left == 0)
        if left:
            share = grids.cdiv(left * slices, blocks)
            assert share <= slices and share * blocks >= left * slices
            assert launch.partials == 2 * blocks * config.BLOCK_M * config.BLOCK_N and launch.parts == blocks
            assert launch.then.grid[1] == left


def test_a_call_is_settled_once_its_operands_are_known():
    a, b = torch.zeros(40, 24), torch.zeros(24, 36)
    call = validate(a, b, stage="s14")
    assert call.implementation.variant == "default"
    odd = torch.zeros(24, 35)  # whose rows are no whole vectors
    wide, narrow = settle(call, a, b), settle(call, a, odd)
    assert wide.implementation.config.COPY_N == 4 and narrow.implementation.config.COPY_N == 1
    asked = replace(call, implementation=replace(call.implementation, variant="tile64"))
    assert settle(asked, a, b).implementation.variant == "tile64"
    assert settle(asked, a, odd).implementation.variant == "tile64_floats"
    other = Call(Implementation(gemm_ref.get_stage("s12"), "wide", "cuda", "fp32"), Problem(8, 8, 8))
    assert settle(other, a, b) is other
    with pytest.raises(ValueError, match="unknown variant of s14_register_banks 'tile65'"):
        validate(a, b, stage="s14", variant="tile65")


def test_without_a_stage_it_is_the_last_that_fits():
    a, b = torch.zeros(4, 8), torch.zeros(8, 4)
    assert validate(a, b, stage=None).implementation.stage is RUNG
    assert validate(a, b, stage=None, math="tf32").implementation.stage.id == "s19_any_shape"
    assert validate(a.bfloat16(), b.bfloat16(), stage=None).implementation.stage.id == "s19_any_shape"
    with pytest.raises(ValueError, match="no rung in cuda takes torch.float64 on this GPU"):
        validate(a.double(), b.double(), stage=None)
    with pytest.raises(ValueError, match="a must be a torch.Tensor, not list"):
        validate([1.0], b, stage=None)
