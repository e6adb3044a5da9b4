"""s19 in CUDA: its tensor maps, what lies between the rows that it reads, and what is decided from a call's shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import cuda_kernels
import gemm_ref
from cuda_kernels import tensor_map
from gemm_ref import Implementation, Problem, choice, make_inputs, ptx
from gemm_ref.call import Plan
from gemm_ref.operands import with_tma_rows
from gemm_ref.operands.copy_layout import copy_all
from tests.forms.forms import RUNG, Form, any_shape, in_phases, load

MODES = [(math, layout) for math in RUNG.maths for layout in RUNG.reads_b(math, "cuda")]


@pytest.mark.parametrize(
    "tile, math", [("pair64x128", "bf16"), ("swapped128x32", "fp16"), ("swappedpair64x96", "tf32")]
)
@pytest.mark.parametrize("n", [8, 72, 136])
def test_a_nan_behind_a_row_of_b_is_not_stored(tile, math, n):
    """A NaN in the first column of B, which a box of the last columns holds too, is in the first column of C alone."""
    a, b = make_inputs(Problem(70, n, 200, math), "integers", seed=n)
    b[:, 0] = float("nan")
    with ptx.watched(detectors := ptx.Detectors()):
        c = load(any_shape("cuda", tile, math))(a, b)
    assert c[:, 0].isnan().all() and torch.equal(c[:, 1:], (a.double() @ b.double())[:, 1:].to(c.dtype))
    assert not detectors.findings


@pytest.mark.parametrize(
    "form",
    [
        Form("cuda", "tile64", "bf16", "kn", "unit", "most"),
        Form("cuda", "swapped64x16", "fp16", "kn", "threads", "some"),
        Form("cuda", "swappedpair64x32", "tf32", "kn", "unit", "most"),
        Form("cuda", "split2swapped64x16", "tf32", "kn", "threads", "some"),
    ],
    ids=str,
)
def test_a_nan_stays_in_its_row_where_a_is_read_in_phases(form):
    """The box of the next row in memory holds it too."""
    a, b = make_inputs(form.problem, "integers")
    a[::2, -1] = float("nan")
    with in_phases():
        c = form.gemm()(a, b)
    assert c[::2].isnan().all() and torch.equal(c[1::2], (a.double() @ b.double())[1::2].to(c.dtype))


@pytest.mark.parametrize("sizes", [(70, 72, 200), (1, 8, 9), (129, 264, 64), (128, 256, 8), (300, 16, 1000)], ids=str)
@pytest.mark.parametrize("tile", ["quad64x128", "swappedpair128x192"])
def test_the_maps_of_edges_are_within_their_matrices(tile, sizes):
    """Along K they have the last tile's rows, in eights; else columns of whole boxes, but for the last 8 rows."""
    for math, layout in MODES:
        problem = Problem(*sizes, math, b_layout=layout)
        a, b = make_inputs(problem)
        b = with_tma_rows(b if layout == "kn" else b.t())
        plan = Plan(replace(any_shape("cuda", tile, math), b_layout=layout), problem)
        c = torch.empty((problem.m, problem.n), dtype=gemm_ref.MATHS[math].out_dtype)
        boxed, *_ = tensor_map.operands(plan, with_tma_rows(a), b if layout == "kn" else b.t(), with_tma_rows(c))
        for operand in boxed[:2]:
            whole, edge = tensor_map.View.all_of(operand)
            bytes_stored = operand.matrix.untyped_storage().nbytes()
            assert (edge.rows - 1) * edge.row_bytes + edge.columns * operand.matrix.itemsize <= bytes_stored
            if operand.along_k:
                sharers, rest = operand.tile // whole.box.rows, whole.rows % operand.tile
                assert replace(edge, box=whole.box) == whole and edge.box.rows % 8 == 0
                assert not rest or rest <= sharers * edge.box.rows < rest + 8 * sharers
            elif edge != whole:
                assert edge.box == whole.box and edge.columns % whole.box.columns == 0
                assert edge.rows == whole.rows - 8 and edge.columns - whole.columns < whole.box.columns


@pytest.mark.parametrize(
    "shape", [(16, 4096, 4096), (4096, 4096, 4096), (128, 128, 65536), (1, 1, 1), (4097, 31, 7)], ids=str
)
def test_each_selected_tile_can_be_launched(shape):
    """In every compute type and layout; and for a tile that is named by the caller."""
    for math, layout in MODES:
        problem = Problem(*shape, math, b_layout=layout)
        for name in ("", *RUNG.tiles["cuda"]):
            selected = choice.choose(RUNG, "cuda", problem, 132, True, tile=name)
            assert selected.tile == (name or selected.tile)
            plan = Plan(Implementation(RUNG, selected.tile, "cuda", math, layout), problem, blocks=selected.blocks)
            assert 0 < plan.launch.grid[0] <= selected.blocks


def test_a_is_read_in_phases_but_where_a_c_is_added(monkeypatch):
    """A is copied where a c is added by rows; with an epilogue along columns it is not."""
    a, b = make_inputs(Problem(50, 64, 75, "bf16"), "integers")
    wanted = (a.double() @ b.double() + 1).to(a.dtype)
    gemm, copied = load(any_shape("cuda", "tile64")), []
    monkeypatch.setattr("gemm_ref.call.layout.copy_all", lambda *pairs: copied.append(len(pairs)) or copy_all(*pairs))
    with in_phases():
        assert torch.equal(gemm(a, b, bias=torch.ones(64, dtype=a.dtype)), wanted) and not copied
    assert torch.equal(gemm(a, b, c=torch.ones(50, 64, dtype=a.dtype)), wanted) and copied


@pytest.mark.parametrize("rung, math", [("s17", "bf16"), ("s19", "tf32"), ("s19", "fp8")])
def test_one_column_is_computed_as_one_row(rung, math):
    """C^T = B^T @ A^T, into an `out` too, with the scales of fp8 exchanged."""
    a, b = make_inputs(Problem(130, 1, 72, math), "integers", seed=3)
    scales = {"scale_a": torch.tensor([0.5]), "scale_b": torch.tensor([4.0])} if math == "fp8" else {}
    out = torch.full((130, 1), float("nan"), dtype=gemm_ref.MATHS[math].out_dtype)
    wanted = (a.double() @ b.double()) * (2 if scales else 1)
    for c in (cuda_kernels.gemm(a, b, stage=rung, math=math, out=out, **scales), out):
        assert torch.equal(c, wanted.to(c.dtype))
    assert torch.equal(cuda_kernels.gemm(a, b, stage=rung, math=math, **scales), out)
