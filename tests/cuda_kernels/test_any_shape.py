"""Each tile of s19, whole and shared, in every math mode, with B either way round."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import cuda_kernels
import gemm_ref
from cuda_kernels import source, tensor_map
from experiments.records.contenders import with_blocks
from gemm_ref import Implementation, Problem, choice, make_inputs, ptx
from gemm_ref.call import Plan
from gemm_ref.choice.work import count_tiles
from gemm_ref.operands import as_layout, phases_at, with_tma_rows
from gemm_ref.operands.copy_layout import copy_all
from tests.conftest import DEVICES
from tests.matrices import in_turn

RUNG = gemm_ref.get_stage("s19")
TILES = RUNG.tiles["cuda"]
BY_ROWS = [math for math in RUNG.maths if "kn" in RUNG.reads_b(math, "cuda")]
MODES = [(math, layout) for math in RUNG.maths for layout in RUNG.reads_b(math, "cuda")]
SIZES = (77, 200, 264)  # tiles past both edges, and a slice of K that is not whole


def run(tile, math, layout, sizes, blocks, device="cpu"):
    """C is checked; the findings of the detectors are handed back."""
    problem = Problem(*sizes, math)
    a, b = make_inputs(problem, "integers", seed=sum(sizes), device=device)
    gemm = with_blocks(Implementation(RUNG, tile, "cuda", math), blocks).load()
    with ptx.watched(detectors := ptx.Detectors()):
        gemm_ref.checked_run(gemm, a, as_layout(b, layout), math=math, exact=True)
    return detectors.findings


def clusters_of(tile, math, layout, sizes):
    """As many as tiles; and the blocks of one."""
    config = TILES[tile]
    tiles_m, tiles_n, _ = count_tiles(config, Problem(*sizes, math, b_layout=layout))
    return tiles_m * tiles_n, config.CLUSTER_M * config.CLUSTER_K


# Each tile in one mode and each mode in tiles of C and of C^T, which read A and B the other way round.
# tests/test_epilogues.py has each tile in another mode.
SIDES = [[tile for tile, config in TILES.items() if config.TRANSPOSE_C == side] for side in (0, 1)]
EACH = [case for side in SIDES for case in in_turn(side, MODES)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tile, mode", EACH)
def test_every_tile_bit_exact_whole_and_shared(tile, mode, device):
    """A block for each tile, and shares, of which some blocks have two."""
    math, layout = mode
    tiles, cluster = clusters_of(tile, math, layout, SIZES)
    shared = {3} if TILES[tile].CLUSTER_K == 1 else set()
    for clusters in shared | {tiles}:
        assert not run(tile, math, layout, SIZES, clusters * cluster, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("tile", "mode"),
    [
        ("tile128x64", ("bf16", "kn")), ("tile64x32", ("fp16", "nk")), ("pair128x256", ("fp8", "nk")),
        ("tile128x192", ("tf32", "nk")), ("swapped64x16", ("bf16", "nk")), ("swappedpair64x96", ("tf32", "nk")),
        ("swapped128x32", ("tf32", "kn")),
    ],
)  # fmt: skip
def test_threads_store_a_c_whose_rows_begin_anywhere(tile, mode, device):
    """Whole tiles, and shares; none of it beside C."""
    sizes = 77, 201, 264
    tiles, cluster = clusters_of(tile, *mode, sizes)
    for clusters in (tiles, 3):
        assert not run(tile, *mode, sizes, clusters * cluster, device)


@pytest.mark.parametrize("tile", ["tile64x128", "swapped128x32", "pair128x256", "swappedpair128x192"])
def test_a_tile_has_many_shares_and_a_block_many_tiles(tile):
    """More shares than a thread reads at a time, each of one tile only; and one block that takes tile after tile."""
    _, cluster = clusters_of(tile, "bf16", "kn", SIZES)
    few = (130, 64, 1100) if "pair" in tile else (9, 100, 1100)
    assert not run(tile, "bf16", "kn", few, 17 * cluster)
    assert not run(tile, "bf16", "kn", (260, 330, 70), cluster)


@pytest.mark.parametrize("tile", ["tile64", "swappedpair64x96"])
def test_there_are_fewer_slices_to_share_than_blocks(tile):
    """Some blocks have none, and nobody waits for them."""
    cluster = TILES[tile].CLUSTER_M
    assert not run(tile, "bf16", "kn", (64, 6 * 64 * cluster, 100), 5 * cluster)  # 6 tiles of 2 slices: 2 are shared


def test_a_cluster_that_shares_a_tile_has_no_other():
    tile = "split2swapped128x32"
    with pytest.raises(ValueError, match="this tile takes 4 blocks, a cluster per tile of C, and not 2"):
        run(tile, "bf16", "kn", (9, 200, 264), 2)


@pytest.mark.parametrize("tile, math", in_turn(["pair64x128", "swapped128x32", "swappedpair64x96"], BY_ROWS))
@pytest.mark.parametrize("n", [8, 72, 136])
def test_what_is_read_behind_a_row_is_not_stored(tile, math, n):
    """A NaN in the first column of B, which a box of the last columns holds too, is in the first column of C alone."""
    a, b = make_inputs(Problem(70, n, 200, math), "integers", seed=n)
    b[:, 0] = float("nan")
    with ptx.watched(detectors := ptx.Detectors()):
        c = cuda_kernels.gemm(a, b, stage=RUNG.id, variant=tile, math=math)
    assert c[:, 0].isnan().all() and torch.equal(c[:, 1:], (a.double() @ b.double())[:, 1:].to(c.dtype))
    assert not detectors.findings


@pytest.mark.parametrize("sizes", [(70, 72, 200), (1, 8, 9), (129, 264, 64), (128, 256, 8), (300, 16, 1000)], ids=str)
@pytest.mark.parametrize("mode", MODES, ids="-".join)
@pytest.mark.parametrize("tile", ["quad64x128", "swappedpair128x192"])
def test_the_maps_of_edges_are_within_their_matrices(tile, mode, sizes):
    """Along K they have the last tile's rows, in eights; else columns of whole boxes, but for the last 8 rows."""
    math, layout = mode
    problem = Problem(*sizes, math, b_layout=layout)
    a, b = make_inputs(problem)
    b = with_tma_rows(b if layout == "kn" else b.t())
    plan = Plan(Implementation(RUNG, tile, "cuda", math, layout), problem)
    c = torch.empty((problem.m, problem.n), dtype=gemm_ref.MATHS[math].out_dtype)
    boxed, *_ = tensor_map.operands(plan, with_tma_rows(a), b if layout == "kn" else b.t(), with_tma_rows(c))
    for operand in boxed[:2]:
        whole, edge = tensor_map.View.all_of(operand)
        held = operand.matrix.untyped_storage().nbytes()
        assert (edge.rows - 1) * edge.row_bytes + edge.columns * operand.matrix.itemsize <= held
        if operand.along_k:
            sharers, rest = operand.tile // whole.box.rows, whole.rows % operand.tile
            assert replace(edge, box=whole.box) == whole and edge.box.rows % 8 == 0
            assert not rest or rest <= sharers * edge.box.rows < rest + 8 * sharers
        elif edge != whole:
            assert edge.box == whole.box and edge.columns % whole.box.columns == 0
            assert edge.rows == whole.rows - 8 and edge.columns - whole.columns < whole.box.columns


@pytest.mark.parametrize("math", RUNG.maths)
def test_few_rows_are_columns_of_the_product(math):
    item = Implementation(RUNG, "swapped64x16", "cuda", math, RUNG.reads_b(math, "cuda")[0])
    assert set(re.findall(r"m64n(\d+)k", source.ptx(item))) == {"16"}


@pytest.mark.parametrize(
    "shape", [(16, 4096, 4096), (4096, 4096, 4096), (128, 128, 65536), (1, 1, 1), (4097, 31, 7)], ids=str
)
def test_what_is_chosen_can_be_launched(shape):
    """In every mode, and for a tile that is asked for by name."""
    for math, layout in MODES:
        problem = Problem(*shape, math, b_layout=layout)
        for name in ("", *TILES):
            found = choice.choose(RUNG, "cuda", problem, 132, True, tile=name)
            assert found.tile == (name or found.tile)
            plan = Plan(Implementation(RUNG, found.tile, "cuda", math, layout), problem, blocks=found.blocks)
            assert 0 < plan.launch.grid[0] <= found.blocks


def in_phases(monkeypatch, tile, math, sizes, clusters=None):
    """A and B, and what gives their product with A read in its phases, its tiles dealt to so many clusters if any."""
    monkeypatch.setattr(choice, "select_phases", lambda stage, dialect, x, *_: replace(x, a_phases=phases_at(x)))
    problem = Problem(*sizes, math)
    a, b = make_inputs(problem, "integers", seed=sum(sizes))
    item = Implementation(RUNG, tile, "cuda", math)
    if clusters is None:
        return a, b, lambda a, b: cuda_kernels.gemm(a, b, stage=RUNG.id, variant=tile, math=math)
    return a, b, with_blocks(item, clusters * TILES[tile].CLUSTER_M * TILES[tile].CLUSTER_K).load()


# K of odd rows, of a slice and of one more with what is before a row; and C that the unit can store, and cannot
PHASED = in_turn(list(TILES), BY_ROWS, [(77, 64, 131), (150, 72, 63), (40, 33, 21), (77, 136, 66)])


@pytest.mark.parametrize("tile, math, sizes", PHASED)
def test_a_whose_rows_begin_anywhere_is_read_in_phases(tile, math, sizes, monkeypatch):
    """In whole tiles, and in shares; a NaN stays in its row, though the next row's box holds it too."""
    shared = [3] if TILES[tile].CLUSTER_K == 1 else []
    for clusters in (None, *shared):
        a, b, gemm = in_phases(monkeypatch, tile, math, sizes, clusters)
        with ptx.watched(detectors := ptx.Detectors()):
            assert torch.equal(gemm(a, b), (a.double() @ b.double()).to(gemm_ref.MATHS[math].out_dtype))
        assert not detectors.findings
    a[::2, -1] = float("nan")
    c = gemm(a, b)
    assert c[::2].isnan().all() and not c[1::2].isnan().any()


@pytest.mark.parametrize("math", BY_ROWS)
def test_phases_of_a_are_told_from_its_sizes(math, monkeypatch):
    """A is copied where a c is added by rows; and with an epilogue along columns it is not."""
    a, b, gemm = in_phases(monkeypatch, "tile64", math, (50, 64, 75))
    wanted = a.double() @ b.double() + 1
    bias, c = (torch.ones(shape, dtype=gemm_ref.MATHS[math].out_dtype) for shape in (64, (50, 64)))
    names = {"stage": RUNG.id, "variant": "tile64", "math": math}
    copied = []
    monkeypatch.setattr("gemm_ref.call.layout.copy_all", lambda *pairs: copied.append(len(pairs)) or copy_all(*pairs))
    assert torch.equal(cuda_kernels.gemm(a, b, bias=bias, **names), wanted.to(bias.dtype)) and not copied
    assert torch.equal(cuda_kernels.gemm(a, b, c=c, **names), wanted.to(bias.dtype)) and copied


@pytest.mark.parametrize("rung", ["s17", "s19"])
@pytest.mark.parametrize("math", RUNG.maths)
def test_one_column_is_computed_as_one_row(rung, math):
    """C^T = B^T @ A^T, into an `out` too, with the scales of fp8 exchanged."""
    a, b = make_inputs(Problem(130, 1, 72, math), "integers", seed=3)
    scales = {"scale_a": torch.tensor([0.5]), "scale_b": torch.tensor([4.0])} if math == "fp8" else {}
    out = torch.full((130, 1), float("nan"), dtype=gemm_ref.MATHS[math].out_dtype)
    wanted = (a.double() @ b.double()) * (2 if scales else 1)
    for c in (cuda_kernels.gemm(a, b, stage=rung, math=math, out=out, **scales), out):
        assert torch.equal(c, wanted.to(c.dtype))
    assert torch.equal(cuda_kernels.gemm(a, b, stage=rung, math=math, **scales), out)
