"""The choice of tile and blocks by shape, and how tiles are dealt to blocks."""

from __future__ import annotations

from dataclasses import astuple, replace
from itertools import pairwise
from math import exp, inf

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gemm_ref
from gemm_ref import Implementation, Problem, cdiv, choice
from gemm_ref.call import Plan, driver
from gemm_ref.call.choose import choose, select_tile
from gemm_ref.call.validate import validate
from gemm_ref.choice import costs, work
from gemm_ref.config.hopper import clusters_at_once
from gemm_ref.epilogue import Extras
from gemm_ref.sass.occupancy import ARCHITECTURES, occupancy

S14, S19 = (gemm_ref.get_stage(number) for number in ("s14", "s19"))
WGMMA_TILES = S19.tiles["cuda"]
SMS = 132
SHAPES = [(4096, 4096, 4096), (1, 6144, 4096), (513, 513, 513), (128, 128, 65536), (100000, 64, 64), (33, 2, 1)]
sizes = st.integers(1, 9000)


FAMILIES = [(stage, dialect) for stage in gemm_ref.STAGES.values() for dialect in stage.tiles]


@pytest.mark.parametrize(("stage", "dialect"), FAMILIES, ids=lambda x: getattr(x, "id", x))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_least_of_what_is_predicted(shape, stage, dialect):
    gpu, problem = costs.find_device(), Problem(*shape, stage.maths[0])
    for vectors in (True, False):
        chosen = choice.choose(stage, dialect, problem, SMS, vectors)
        least = choice.predict_ns(stage, dialect, chosen, problem, SMS, gpu)
        tiles = choice.usable_tiles(stage, dialect, vectors)
        if stage.tma and dialect in stage.tma.boxes_past_edges:
            tiles = choice.filled_tiles(tiles, problem)
        for tile, config in tiles.items():
            for blocks in work.candidate_blocks(config, problem, SMS):
                assert least <= choice.predict_ns(stage, dialect, choice.Candidate(tile, blocks), problem, SMS, gpu)


def test_blocks_that_share_nothing_take_their_tiles_one_after_another():
    """22 tiles for each of 132 blocks, one on each multiprocessor, which does not hide what a tile begins with."""
    few, many = (
        choice.predict_ns(
            S14, "cuda", choice.Candidate("tile32x128", x), Problem(1408, 8384, 320), SMS, costs.find_device()
        )
        for x in (132, 2904)
    )
    assert few > 1.7 * many


@pytest.mark.parametrize(("stage", "dialect"), FAMILIES, ids=lambda x: getattr(x, "id", x))
def test_every_tile_has_its_costs(stage, dialect):
    for name, gpu in costs.load_devices().items():
        for family in (gpu.family(stage.id, dialect, math) for math in stage.maths):
            assert family.tiles.keys() == stage.tiles[dialect].keys(), name
            assert all(min(astuple(each)) > 0 for each in (family.splitting, *family.tiles.values()))
        assert costs.find_device(name) == gpu and any(
            family.fitted for families in gpu.rungs.values() for family in families.values()
        )
    assert costs.find_device("a GPU of tomorrow") == next(iter(costs.load_devices().values()))


@pytest.mark.parametrize("dialect", ["cuda", "gluon"])  # Triton's slices are not padded
def test_a_multiprocessor_has_shared_memory_for_so_many_blocks(dialect):
    """Blocks that share tiles are taken to be there all at once."""
    for name, config in S14.tiles[dialect].items():
        launch = config.launch(4096, 4096, 4096, SMS)
        held = occupancy(ARCHITECTURES["sm_90a"], launch.threads, 1, launch.shared_bytes)
        assert held.blocks >= config.BLOCKS_PER_SM, name


@given(m=sizes, n=sizes, k=sizes, tile=st.sampled_from(list(S14.tiles["cuda"])), sms=st.integers(1, 200))
def test_dealt_tiles_are_all_there(m, n, k, tile, sms):
    """Whole tiles and shares make up every slice of every tile, and no block has shares of more than two tiles."""
    config = S14.config(tile, "cuda")
    tiles = cdiv(m, config.BLOCK_M) * cdiv(n, config.BLOCK_N)
    slices = cdiv(k, config.BLOCK_K)
    for blocks in work.candidate_blocks(config, Problem(m, n, k), sms):
        launch = config.schedule(m, n, k, blocks, sms)
        left = tiles % blocks
        assert launch.grid == (blocks, 1, 1) and (launch.then is None) == (left == 0)
        if left:
            share = cdiv(left * slices, blocks)
            assert share <= slices and share * blocks >= left * slices
            assert launch.partials == 2 * blocks * config.BLOCK_M * config.BLOCK_N and launch.parts == blocks
            assert launch.then.grid[1] == left


def test_tiles_are_counted_in_what_the_kernel_computes():
    """C, or C^T in a swapped tile, and in tf32 where B is stored by rows; a cluster has several below one another."""
    for tile, math, layout, wanted in (
        ("tile128", "bf16", "kn", (3, 2, 4)),
        ("pair128x256", "bf16", "nk", (2, 1, 4)),
        ("swapped128x32", "bf16", "kn", (2, 10, 4)),
        ("tile128x64", "tf32", "kn", (2, 5, 8)),
        ("tile128x64", "tf32", "nk", (3, 4, 8)),
    ):
        problem = Problem(300, 200, 230, math, b_layout=layout)
        assert work.count_tiles(WGMMA_TILES[tile], problem) == wanted, tile


@pytest.mark.parametrize("sizes", [(1, 1, 1), (16, 4096, 4096), (128, 128, 65536), (4096, 4096, 4096), (5, 9, 70000)])
def test_blocks_are_whole_clusters_and_have_slices(sizes):
    problem = Problem(*sizes, "bf16")
    for config in WGMMA_TILES.values():
        tiles_m, tiles_n, slices = work.count_tiles(config, problem)
        found = work.candidate_blocks(config, problem, SMS)
        cluster = config.CLUSTER_M * config.CLUSTER_K
        assert tiles_m * tiles_n * cluster in found and not any(blocks % cluster for blocks in found)
        assert all(blocks // cluster <= max(1, slices) * tiles_m * tiles_n for blocks in found)
        assert config.CLUSTER_K == 1 or len(found) == 1


def test_clusters_of_four_leave_some_multiprocessors_idle():
    assert [clusters_at_once(SMS, 1, cluster) for cluster in (1, 2, 4)] == [132, 66, 30]
    assert clusters_at_once(SMS, 2, 2) == 132 and clusters_at_once(1, 1, 4) == 1
    quad = WGMMA_TILES["quad64"]
    many = quad.schedule(64 * 4 * 100, 64, 64, 400, SMS)
    assert quad.CLUSTER_M == 4 and many.grid == (120, 1, 1) and many.cluster == (4, 1, 1)


def test_what_is_chosen_on_tensor_cores_for_plain_cases():
    def choose(*sizes):
        found = choice.choose(S19, "cuda", Problem(*sizes, "bf16"), SMS, vectors=True)
        return WGMMA_TILES[found.tile], found.blocks

    few_rows, _ = choose(8, 8192, 4096)
    assert few_rows.TRANSPOSE_C and few_rows.BLOCK_N <= 32
    assert choose(128, 128, 65536)[1] > 64  # one tile or a few of them, and K in shares
    large, _ = choose(8192, 8192, 8192)
    assert large.BLOCK_M * large.BLOCK_N == 128 * 256


@pytest.mark.parametrize(("tile", "sizes"), [
    ("tile128x256", (4096, 4096, 16384)), ("pair128x256", (8192, 8192, 16384)), ("tile128", (1000, 1500, 9000)),
    ("tile128", (128, 8192, 4096)),
])  # fmt: skip
def test_what_the_cache_has_dropped_is_counted_as_by_hand(tile, sizes):
    """Each slice of the tiles that are shared, at the step at which each of them reads it."""
    config, problem, l2_bytes = WGMMA_TILES[tile], Problem(*sizes, "bf16"), 50e6
    down, right, slices = work.count_tiles(config, problem)
    clusters = SMS // config.CLUSTER_M
    left = down * right % clusters
    share = cdiv(left * slices, clusters)
    step = 2 * clusters * (config.BLOCK_M * config.CLUSTER_M + config.BLOCK_N) * config.BLOCK_K_BYTES  # in each half
    again = 0.0
    for side, times, tiles, apart in (
        (problem.m, right, min(right, left // config.GROUP_M), config.GROUP_M),
        (problem.n, down, min(down, left, config.GROUP_M), 1),
    ):
        lost = []
        for k in range(share):
            at = sorted((number * apart * slices + k) % share for number in range(tiles))
            lost += [work.evicted_share((after - before) * step, l2_bytes) for before, after in pairwise(at)]
        again += 2 * problem.k * side * (times - 1) * (sum(lost) / len(lost) if lost else 1.0)
    counted = work.count_work(config, problem, SMS, clusters * config.CLUSTER_M, l2_bytes)
    assert counted.scattered_bytes == pytest.approx(again, rel=1e-6)


@pytest.mark.parametrize("tile, splits", [("tile64x128", 1), ("tile64x128", 3), ("pair64x128", 1)])
def test_what_blocks_nearby_request_is_counted_as_by_hand(tile, splits):
    """Of 8 x 3 tiles, in groups of four rows, the tile before each that reads the same rows or columns."""
    config, k = replace(WGMMA_TILES[tile], GROUP_M=4), 640
    sides, blocks = (config.BLOCK_M * config.CLUSTER_M, config.BLOCK_N), config.CLUSTER_M * splits
    order = [(group + row, column) for group in (0, 4) for column in range(3) for row in range(4)]
    again = 0.0
    for at, place in enumerate(order):
        for side in (0, 1):
            before = [i for i in range(at // 12 * 12, at) if order[i][side] == place[side]]
            distance = (at - max(before)) * blocks if before else inf
            again += 2 * k * sides[side] * exp(-distance / work.NEIGHBOUR_BLOCKS)
    counted = work.count_work(config, Problem(8 * sides[0], 3 * sides[1], k, "bf16"), SMS, 24 * blocks, 50e6)
    assert counted.neighbour_bytes == pytest.approx(again)


@pytest.mark.parametrize("gpu", costs.load_devices())
def test_large_operands_are_not_read_at_different_slices(gpu):
    """Where shares leave no multiprocessor idle, but read from device memory what tiles in step have in the cache."""
    found = choice.choose(S19, "cuda", Problem(4096, 4096, 16384, "bf16"), SMS, vectors=True, gpu=gpu)
    assert found.blocks == 512


def test_more_work_takes_longer():
    def predicted_ns(*sizes):
        problem = Problem(*sizes, "bf16")
        blocks = work.candidate_blocks(WGMMA_TILES["tile128x256"], problem, SMS)[0]
        candidate = choice.Candidate("tile128x256", blocks)
        return choice.predict_ns(S19, "cuda", candidate, problem, SMS, costs.find_device())

    assert predicted_ns(4096, 4096, 4096) < predicted_ns(4096, 4096, 8192) < predicted_ns(8192, 4096, 8192)
    # rows of 8208 bytes begin within a line of the cache; those of 8200 are copied
    assert predicted_ns(4096, 4096, 4100) < predicted_ns(4096, 4096, 4104)


def test_an_odd_b_has_tiles_that_copy_floats_and_tiles_that_it_is_copied_for():
    problem = Problem(2039, 4093, 1021)
    even, odd = (
        {c.tile: t for c, t in choice.predict_all(S14, "cuda", problem, 132, x).items()} for x in (True, False)
    )
    assert "tile128" in even and not any(name.endswith((choice.FLOATS, choice.COPIED)) for name in even)
    assert "tile128" not in odd and {"tile128_floats", "tile128_copied", "tile1x16"} <= set(odd)
    (asked,) = {c.tile for c in choice.predict_all(S14, "cuda", problem, 132, False, tile="tile128_copied")}
    assert asked == "tile128_copied"
    assert choice.choose(S14, "cuda", problem, 132, True, tile="tile128_copied").tile == "tile128"


def test_one_row_and_one_column_have_strips():
    for problem in (Problem(1, 4096, 4096), Problem(7680, 1, 2560)):
        chosen = choice.choose(S14, "cuda", problem, 132, problem.n > 1)
        config = S14.config(chosen.tile, "cuda")
        assert config.SPLIT_WARPS and work.candidate_blocks(config, problem, 132) == [chosen.blocks]


def test_a_call_is_settled_once_its_operands_are_known():
    a, b = torch.zeros(40, 24), torch.zeros(24, 36)
    plan = validate(a, b, stage="s14")
    assert plan.implementation.variant == "default"
    odd = torch.zeros(24, 35)  # whose rows are no whole vectors
    wide, narrow = select_tile(plan, a, b), select_tile(plan, a, odd)
    assert wide.implementation.config.COPY_N == 4
    assert narrow.implementation.config.COPY_N == 1 or narrow.implementation.config.ALIGN_B
    asked = replace(plan, implementation=replace(plan.implementation, variant="tile64"))
    assert select_tile(asked, a, b).implementation.variant == "tile64"
    assert select_tile(asked, a, odd).implementation.variant in ("tile64_floats", "tile64_copied")
    other = Plan(Implementation(gemm_ref.get_stage("s12"), "wide", "cuda", "fp32"), Problem(8, 8, 8))
    assert select_tile(other, a, b) is other


def test_without_a_stage_it_is_the_last_that_fits():
    a, b = torch.zeros(4, 8), torch.zeros(8, 4)
    assert validate(a, b, stage=None).implementation.stage is gemm_ref.stages_in("fp32")[-1]
    assert validate(a, b, stage=None, math="tf32").implementation.stage.id == "s19_any_shape"
    assert validate(a.bfloat16(), b.bfloat16(), stage=None).implementation.stage.id == "s19_any_shape"


def test_a_gpu_without_a_table_has_the_first_ones_costs_scaled_by_what_its_driver_states(monkeypatch):
    first, name = costs.find_device(), "A GPU of yesterday"
    attributes = 66, 990_000, 1_000_000, 4096, 2**25  # half the clock; memory of 1024 GB/s
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: ["another", name][index])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    monkeypatch.setattr(driver, "device_attributes", lambda index, *which: attributes)
    costs.read_facts.cache_clear()
    found = costs.find_device(name)
    costs.read_facts.cache_clear()
    assert found.bytes_per_ns == pytest.approx(first.bytes_per_ns * 1024 / first.peak_bytes_per_ns)
    assert (found.l2_bytes, found.start_ns) == (2**25, first.start_ns)
    for rung, slower in (("s14_register_banks", 4), ("s19_any_shape", 2)):  # half of an H200's lanes, at half its clock
        here, there = found.family(rung, "triton", "bf16"), first.family(rung, "triton", "bf16")
        for tile, of in here.tiles.items():
            assert astuple(of) == pytest.approx([slower * cost for cost in astuple(there.tiles[tile])])
        assert here.cache.bytes_per_ns == there.cache.bytes_per_ns / 4 and here.splitting == there.splitting
    monkeypatch.setattr(driver, "device_attributes", lambda index, *which: (66, 990_000, 0, 4096, 2**25))
    assert costs.read_facts.__wrapped__(name) is None  # a driver that does not know its memory's clock


def test_costs_are_those_of_the_compute_type_and_of_a_gpu_on_which_they_were_fitted():
    h200, h100 = (costs.find_device(name) for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"))
    for dialect in ("cuda", "triton", "gluon"):
        tf32, bf16 = (h100.family("s19_any_shape", dialect, math) for math in ("tf32", "bf16"))
        assert tf32 != bf16
    fitted = h100.rungs["s19_any_shape"]["cuda_tf32"]
    assert fitted.fitted and h200.rungs["s19_any_shape"]["cuda_tf32"] == replace(fitted, fitted=False)


@pytest.mark.parametrize(
    ("m", "more", "layout"),
    [
        (8, {}, "kn"),
        (2048, {}, "nk"),  # many rows: wgmma gains more than the copy costs
        (8, {"batch_invariant": True}, "nk"),  # of the tiles for few rows the bits are others
        (8, {"variant": "tile128"}, "nk"),
    ],
)
def test_triton_copies_a_tf32_b_by_rows_unless_mma_sync_is_faster(m, more, layout):
    a, b = torch.empty(m, 4096), torch.empty(4096, 4096)
    plan = validate(a, b, stage="s19", dialect="triton", math="tf32", **more)
    plan = choose(plan, a, b, None, Extras())
    assert plan.problem.b_layout == plan.implementation.b_layout == layout
    assert plan.implementation.config.uses_mma_sync == (layout == "kn") == (plan.copy_b == "")
    odd = torch.empty(4096, 4095)  # whose rows the TMA unit cannot read: a copy it is in any case
    assert choose(validate(a, odd, stage="s19", dialect="triton", math="tf32"), a, odd, None, Extras()).copy_b


def test_boxes_are_not_mostly_outside_of_a_matrix():
    tiles = S19.tiles["triton"]
    found = choice.filled_tiles(tiles, Problem(8, 4096, 4096, "bf16"))
    assert "swapped64x16_deep" in found and "tile16x128" in found and "tile64_deep" not in found
    assert choice.filled_tiles(tiles, Problem(4096, 4096, 64, "bf16")) == dict(tiles)
    assert choice.filled_tiles(tiles, Problem(3, 5, 7, "bf16")) == dict(tiles)  # none is half full
