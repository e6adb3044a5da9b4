"""Each tile of s14: the default variant runs only those that it chooses."""

from __future__ import annotations

import functools

import pytest
import torch

import cuda_kernels
import gemm_ref
from gemm_ref import Implementation, Problem, make_inputs, operands, ptx
from gemm_ref.call import Plan, layout
from gemm_ref.call.choose import select_tile
from tests.conftest import DEVICES
from tests.matrices import in_turn

RUNG = gemm_ref.get_stage("s14")
TILES = [name for name in RUNG.tiles["cuda"] if not name.endswith("_floats")]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("tile", "columns"), in_turn(TILES, (132, 131)))
def test_every_tile_bit_exact(tile, columns, device):
    """Tiles past both edges, shares of them, and a slice of K that is not whole.

    In turn with rows of whole vectors and of floats: the tiles for those differ from the others in COPY_N alone.
    """
    rows = 131 if RUNG.tiles["cuda"][tile].BLOCK_M > 4 else 7  # of small tiles there would be thousands
    for sizes in ((rows, columns, 76), (33, columns, 17)):
        a, b = make_inputs(Problem(*sizes), "integers", seed=sum(sizes), device=device)
        gemm_ref.checked_run(functools.partial(cuda_kernels.gemm, stage="s14", variant=tile), a, b, exact=True)


@pytest.mark.parametrize(("tile", "sizes"), [("tile128", (130, 132, 400)), ("tile8x64", (40, 300, 600))])
def test_shares_of_tiles_have_no_fault(tile, sizes):
    """Two launches fill C and the partial sums between them, so neither has to write all of them."""
    a, b = make_inputs(Problem(*sizes))
    with ptx.watched(detectors := ptx.Detectors()):
        gemm_ref.check(cuda_kernels.gemm(a, b, stage="s14", variant=tile), a, b)
    item = Implementation(RUNG, tile, "cuda", "fp32")
    assert select_tile(Plan(item, Problem(*sizes)), a, b).launch.then and detectors.findings == ()


def test_what_lies_behind_the_rows_of_a_copied_b_does_not_count(monkeypatch):
    def poisoned(x: torch.Tensor) -> torch.Tensor:
        room = operands.padded_to_lines(x)
        operands.with_padding(room).fill_(torch.nan)
        return room

    monkeypatch.setattr(layout, "COPIES", {**layout.COPIES, layout.LINES: poisoned})
    a, b = make_inputs(Problem(70, 67, 40), "integers")
    gemm_ref.check(cuda_kernels.gemm(a, b, stage="s14", variant="tile64_copied"), a, b, exact=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(1, 100, 700), (2, 101, 33), (70, 1, 520), (9, 2, 33), (1, 1, 0)], ids=str)
@pytest.mark.parametrize("tile", ["tile1x32", "tile1x16", "tile4x1", "tile1x1"])
def test_one_row_and_one_column(tile, sizes, device):
    a, b = make_inputs(Problem(*sizes), "integers", seed=sum(sizes), device=device)
    gemm_ref.checked_run(functools.partial(cuda_kernels.gemm, stage="s14", variant=tile), a, b, exact=True)


@pytest.mark.skipif("cuda" not in DEVICES, reason="the reference GPU is slow, and has no races to lose")
@pytest.mark.parametrize("sizes", [(512, 512, 4096), (8, 4096, 4096), (1025, 1023, 515), (4096, 4096, 4096)], ids=str)
def test_the_same_bits_in_every_run(sizes):
    a, b = make_inputs(Problem(*sizes), device="cuda")
    first = cuda_kernels.gemm(a, b, stage="s14")
    for _ in range(200):
        assert torch.equal(cuda_kernels.gemm(a, b, stage="s14"), first)
