"""Every form of s19, and every tile of s14: the default variants run only those that a shape selects."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from itertools import product

import pytest

import gemm_ref
from gemm_ref import Implementation, Problem, make_inputs
from gemm_ref.choice import FLOATS
from tests.forms.forms import EPILOGUES, all_forms, check_exactly, in_phases, load

BANKS = gemm_ref.get_stage("s14")
TILES = [(dialect, tile) for dialect, tiles in BANKS.tiles.items() for tile in tiles if not tile.endswith(FLOATS)]


@pytest.mark.forms("form", all_forms(), lambda form: form.properties)
def test_every_form_of_s19_bit_exact(form, device):
    with in_phases() if form.phases != "none" else contextlib.nullcontext():
        check_exactly(form.gemm(), form.problem, EPILOGUES[form.epilogue], device, form.layout)


def properties_of_s14(which: tuple[str, str], columns: int) -> list[Hashable]:
    """What a covering array has: in CUDA each tile, and in the twins each value of its numbers."""
    dialect, tile = which
    config = BANKS.config(tile, dialect)
    sides = config.BLOCK_M, config.BLOCK_N, config.BLOCK_K, config.NUM_STAGES
    return [(dialect, each) for each in (tile if dialect == "cuda" else None, *sides, columns)]


@pytest.mark.forms("which, columns", list(product(reversed(TILES), (132, 131))), lambda case: properties_of_s14(*case))
def test_every_tile_of_s14_bit_exact(which, columns, device):
    """Tiles past both edges, shared tiles, and a slice of K that is not whole.

    In turn with rows of whole vectors and of floats: the tiles for those differ from the others in COPY_N alone.
    """
    dialect, tile = which
    rows = 131 if BANKS.config(tile, dialect).BLOCK_M > 4 else 7  # of small tiles there would be thousands
    for sizes in ((rows, columns, 76), (33, columns, 17))[: 2 if dialect == "cuda" else 1]:
        a, b = make_inputs(Problem(*sizes), "integers", seed=sum(sizes), device=device)
        gemm_ref.checked_run(load(Implementation(BANKS, tile, dialect, "fp32")), a, b, exact=True)
