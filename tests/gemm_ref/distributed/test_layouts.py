"""Products divided among processes: to the bit with integers, at sizes that ranks do not divide, run after run."""

from __future__ import annotations

import pytest
import torch

import gemm_ref
from gemm_ref import Problem
from gemm_ref.distributed import spawn
from gemm_ref.distributed.layouts import IN_TURN, LAYOUTS, OVERLAPPED, grid_shape
from gemm_ref.distributed.partition import group_peers, peer_order, rank_slice, slice_length

RANKS = 4
SIZES = {
    Problem(5, 3, 2): 1,  # the last rank has no row, one no column, and of K two have nothing
    Problem(33, 31, 37): 1,  # nothing is divided evenly
    Problem(64, 48, 32): 10**6,  # everything is; and parts are joined
}
# As compiled, on the reference GPU: what is multiplied are views of larger matrices, and C is one.
KERNELS = {
    ("all-gather", "s14_register_banks fp32"): "integers",
    ("grid", "s14_register_banks fp32"): "integers",
    ("reduce-scatter", "s19_any_shape bf16"): "one_hot",
    ("grid", "s20_emulated fp16x3"): "normal",
}
CASES = [(name, problem, "integers", "torch", least) for name in LAYOUTS for problem, least in SIZES.items()]
CASES += [(name, Problem(70, 66, 40, local.split()[1]), kind, local, 1) for (name, local), kind in KERNELS.items()]


@pytest.fixture(scope="module")
def products():
    """What each case gave, from processes that are started once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spawn, "START_METHOD", "fork")
        target = "tests.gemm_ref.distributed.in_ranks:compute"
        return list(spawn.run_on_ranks(target, CASES, RANKS, "cpu", 300.0, 250.0))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[3]}")
def test_it_is_the_product_and_the_same_bits_again(products, case):
    name, problem, kind, _, _ = case
    results, link_bytes = products[CASES.index(case)]
    a, b = gemm_ref.make_inputs(problem, kind)
    assert set(results) == {IN_TURN, OVERLAPPED} and link_bytes > 0
    for way, (c, again) in results.items():
        gemm_ref.check(c, a, b, math=problem.math, exact=kind != "normal")
        assert torch.equal(c.view(torch.uint8), again.view(torch.uint8)), (name, way)


@pytest.mark.parametrize("size", (1, 5, 8, 33))
@pytest.mark.parametrize("ranks", (1, 2, 3, 8))
def test_parts_are_the_whole_and_each_peer_comes_once(size, ranks):
    parts = [rank_slice(size, ranks, rank) for rank in range(ranks)]
    assert [i for each in parts for i in range(size)[each]] == list(range(size))
    for rank in range(ranks):
        for least in (1, 4, size):
            joined = group_peers(size, ranks, rank, least)
            assert sorted(peer for peers, _ in joined for peer in peers) == [
                peer for peer in range(ranks) if peer != rank and slice_length(parts[peer])
            ]
            rows = [i for _, rows in joined for i in range(size)[rows]]
            assert sorted(rows + list(range(size)[parts[rank]])) == list(range(size))
            assert all(slice_length(rows) >= least or rows.stop in (size, parts[rank].start) for _, rows in joined)
    for step in zip(*(peer_order(rank, ranks) for rank in range(ranks)), strict=True):
        assert len(set(step)) == ranks  # no two at one peer


def test_grids_are_near_squares():
    assert [grid_shape(ranks) for ranks in (1, 2, 4, 6, 7, 8, 1024)] == [
        (1, 1), (1, 2), (2, 2), (2, 3), (1, 7), (2, 4), (32, 32)
    ]  # fmt: skip
