"""Each tile of s14 in Triton's dialects: the default variant runs only those that it chooses."""

from __future__ import annotations

import functools

import pytest
import torch

import gemm_ref
import triton_kernels
from gemm_ref import Problem, choice, make_inputs
from tests.conftest import DEVICES
from tests.matrices import in_turn

pytest.importorskip("triton")

RUNG = gemm_ref.get_stage("s14")
DIALECTS = [dialect for dialect in RUNG.tiles if gemm_ref.DIALECTS[dialect].package == "triton_kernels"]
TILES = [(dialect, tile) for dialect in DIALECTS for tile in RUNG.tiles[dialect] if not tile.endswith(choice.FLOATS)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("which", "columns"), in_turn(TILES, (132, 131)))
def test_every_tile_bit_exact(which, columns, device):
    """Tiles past both edges, shares of them, a slice of K that is not whole; in one of them whole slices as well.

    In turn with rows of whole vectors and of floats: the tiles for those differ from the others in COPY_N alone.
    """
    dialect, tile = which
    gemm = functools.partial(triton_kernels.gemm, stage="s14", dialect=dialect, variant=tile)
    twice = which == ("triton", "tile64") and columns % 4 == 0  # for a K that 16 divides Triton compiles again
    for sizes in ((131, columns, 76), (33, columns, 48))[: 1 + twice]:
        a, b = make_inputs(Problem(*sizes), "integers", seed=sum(sizes), device=device)
        gemm_ref.checked_run(gemm, a, b, exact=True)


@pytest.mark.skipif("cuda" not in DEVICES, reason="the reference GPU is slow, and has no races to lose")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("sizes", [(512, 512, 4096), (8, 4096, 4096), (1025, 1023, 515)], ids=str)
def test_the_same_bits_in_every_run(dialect, sizes):
    a, b = make_inputs(Problem(*sizes), device="cuda")
    first = triton_kernels.gemm(a, b, stage="s14", dialect=dialect)
    for _ in range(200):
        assert torch.equal(triton_kernels.gemm(a, b, stage="s14", dialect=dialect), first)
