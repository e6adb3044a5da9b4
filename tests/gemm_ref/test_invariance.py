"""Batch-invariance: a row of A @ B has the same bits for any number of rows, and at any place among them.

The inputs cancel: each product has a counterpart of the other sign in the other half of K. What is left of a sum are
its rounding errors, so that hardly any element is the same where the products are added in another order.
"""

from __future__ import annotations

import importlib

import pytest
import torch

import gemm_ref
from gemm_ref import DIALECTS, MATHS, STAGES, Implementation, Problem, choice, get_stage
from gemm_ref.call import validate as validation
from gemm_ref.call.choose import choose
from gemm_ref.call.execute import run
from gemm_ref.call.validate import validate
from gemm_ref.choice.work import candidate_blocks, unshared_blocks
from gemm_ref.epilogue import Extras
from gemm_ref.rung import ALWAYS, NEVER, ON_REQUEST

ROWS = (1, 2, 3, 5, 8, 13, 16, 31, 64, 97, 128, 129, 257, 509, 640, 1021, 1024, 2048, 2053, 4096)  # on a GPU
FEW_ROWS = (1, 130)  # on the reference GPU: of one tile, and of more
SIZES = {"cuda": (1024, 4096), "cpu": (16, 144)}  # N and K: of more than one slice, the last one partial
FAMILIES = [
    (stage, dialect, math) for stage in STAGES.values() for dialect in stage.tiles for math in stage.maths
]  # fmt: skip
# On the reference GPU, where each tile is a program to compile: of C and of C^T, slices of either depth, copies to one
# block and to two
FEW_TILES = (
    *("tile128x256", "swapped64x16", "swapped64x16_deep", "pair64x128", "tile64x192", "tile128", "tile8x64"),
    "tile64x16",
)


def cancelling_inputs(m: int, n: int, k: int, math: str, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """A (M, K) and B (K, N) whose product is zero but for rounding."""
    random, half = torch.Generator().manual_seed(m + n + k), k // 2
    order = torch.randperm(half, generator=random)
    a, b = torch.randn(m, half, generator=random), torch.randn(half, n, generator=random)
    dtype, by_columns = MATHS[math].dtype, MATHS[math].has_scales  # as wgmma reads them
    a, b = torch.cat([a, -a[:, order]], 1).to(device, dtype), torch.cat([b, b[order]]).to(device)
    return a, b.t().contiguous().to(dtype).t() if by_columns else b.to(dtype)


def multiply(item: Implementation, a: torch.Tensor, b: torch.Tensor, batch_invariant: bool = True, **more):
    """The product by one kernel of the registry; more: blocks, or extras."""
    package = importlib.import_module(DIALECTS[item.dialect].package)
    blocks = more.pop("blocks", None)

    def prepare(plan, *matrices):
        return package.prepare(plan if blocks is None else plan.with_blocks(blocks), *matrices)

    names = item.stage.id, item.dialect, item.variant, item.math
    return run(a, b, None, prepare, *names, extras=Extras(**more), batch_invariant=batch_invariant)


def differing_rows(item: Implementation, device: str, rows: tuple[int, ...], **more) -> list[int]:
    """The numbers of rows for which the last rows have other bits than in the product of all rows."""
    n, k = SIZES[device]
    a, b = cancelling_inputs(max(rows), n, k, item.math, device)
    c = multiply(item, a, b, **more)
    assert c.any(dim=1).all()
    return [m for m in rows if not torch.equal(multiply(item, a[-m:], b, **more), c[-m:])]


def _is_invariant(item: Implementation) -> bool:
    return item.stage.batch_invariance(item.dialect) != NEVER


@pytest.mark.kernels("each_dialect", where=_is_invariant)
def test_a_row_has_the_same_bits_for_any_number_of_rows(implementation, device):
    """For 20 numbers of rows on a GPU, in which tiles of different sizes are mixed."""
    assert differing_rows(implementation, device, ROWS if device == "cuda" else FEW_ROWS) == []


@pytest.mark.parametrize(("stage", "dialect", "math"), FAMILIES, ids=lambda x: getattr(x, "id", x))
def test_tiles_that_no_blocks_share_give_equal_bits(stage, dialect, math):
    """So M may choose between them; a tile whose own warps or blocks share K gives others, and is left out."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and math != stage.maths[0]:
        pytest.skip("on the reference GPU in one compute type, since every tile is compiled")
    a, b = cancelling_inputs(5, *SIZES["cpu"], math, device)
    bits = {
        tile: multiply(Implementation(stage, tile, dialect, math), a, b)
        for tile, config in stage.tiles[dialect].items()
        if device == "cuda" or tile in FEW_TILES or config.splits_tile
    }
    first = next(iter(bits.values()))
    split = [tile for tile in bits if stage.config(tile, dialect).splits_tile]
    assert [tile for tile, c in bits.items() if not torch.equal(c, first)] == split
    assert first.any(dim=1).all()


def _splits(stage: gemm_ref.Rung, dialect: str, problem: Problem) -> bool:
    """Whether the default choice adds an element's products in more than one sum."""
    chosen = choice.choose(stage, dialect, problem, 132, True)
    config = stage.config(chosen.tile, dialect)
    return config.splits_tile or chosen.blocks != unshared_blocks(config, problem)


@pytest.mark.parametrize(
    ("stage", "dialect"), dict.fromkeys(x[:2] for x in FAMILIES), ids=lambda x: getattr(x, "id", x)
)
def test_a_call_that_does_not_ask_for_it_has_other_bits_at_some_number_of_rows(stage, dialect):
    """Blocks that share K give other bits, and M decides whether any do."""
    math = stage.maths[0]
    layers = (1024, 512), (1024, 4096), (4096, 14336)
    answers = [{_splits(stage, dialect, Problem(m, n, k, math)) for m in ROWS} for n, k in layers]
    assert {True, False} in answers
    tile = next(name for name in ("tile64", "tile64_two") if name in stage.tiles[dialect])
    item, sizes = Implementation(stage, tile, dialect, math), (5, SIZES["cpu"][0], 512)
    a, b = cancelling_inputs(*sizes, math)
    blocks = max(candidate_blocks(item.config, Problem(*sizes, math), 132))
    assert blocks > unshared_blocks(item.config, Problem(*sizes, math))
    assert not torch.equal(multiply(item, a, b, batch_invariant=False, blocks=blocks), multiply(item, a, b))


@pytest.mark.parametrize("dialect", get_stage("s13").dialects)
def test_s13_has_other_bits_at_other_numbers_of_rows(dialect, monkeypatch):
    """On a GPU of two multiprocessors, of which one tile leaves one idle, and two tiles none."""
    monkeypatch.setattr(validation, "REFERENCE_SMS", 2)
    item = Implementation(get_stage("s13"), "default", dialect, "fp32")
    assert differing_rows(item, "cpu", FEW_ROWS, batch_invariant=False) == [1]


@pytest.mark.parametrize(("stage", "dialect", "math"), FAMILIES, ids=lambda x: getattr(x, "id", x))
def test_no_number_of_rows_has_blocks_share_a_tile(stage, dialect, math):
    """Whatever the sizes: no partial sums, and no tile whose own parts share K."""
    for n, k in ((1, 64), (24, 40), (1024, 4096), (4096, 14336), (4097, 4099)):
        for m in ROWS:
            problem = Problem(m, n, k, math, b_layout=stage.reads_b(math, dialect)[0])
            found = choice.choose(stage, dialect, problem, 132, n % 4 == 0, batch_invariant=True)
            config = stage.config(found.tile, dialect)
            launch = config.schedule(*config.sides(problem), k, found.blocks, 132)
            assert (launch.partials, launch.shared_tiles, launch.then) == (0, 0, None) and not config.splits_tile


def test_rows_that_the_tma_unit_cannot_read_are_copied():
    """In phases a slice begins in front of some rows; whether A is read so, M decides."""
    a, b = cancelling_inputs(4096, 1024, 2052, "bf16")
    plans = [
        choose(plan, a, b, None, Extras())
        for plan in (validate(a, b, stage="s19", batch_invariant=asked) for asked in (False, True))
    ]
    assert [plan.problem.a_phases for plan in plans] == [2, 1] and plans[1].copy_a


def test_the_registry_says_which_rungs_are():
    """Those with a family of tiles only if they are asked to."""
    found = {(rung.id[:3], dialect): rung.batch_invariance(dialect) for rung in STAGES.values() for dialect in DIALECTS}
    on_request = {(number, dialect) for number in ("s14", "s19") for dialect in DIALECTS} | {
        ("s20", "cuda"),
        ("s20", "gluon"),
    }
    assert {key for key, answer in found.items() if answer == ON_REQUEST} == on_request
    assert {number for (number, _), answer in found.items() if answer == NEVER} == {"s13"}
    assert {answer for answer in found.values()} == {ALWAYS, ON_REQUEST, NEVER}


@pytest.mark.parametrize("dialect", get_stage("s19").epilogues)
def test_an_epilogue_gives_equal_bits_too(dialect):
    """Of a tile of C and one of C^T, where bias and c are read in another order; on a GPU of two others too."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = cancelling_inputs(5, 48, 144, "bf16", device)
    random = torch.Generator().manual_seed(0)
    bias, c = (torch.randn(shape, generator=random).to(device) * 2**-20 for shape in (48, (5, 48)))
    extras = {"bias": bias, "activation": "gelu", "c": c.bfloat16(), "alpha": 1.1, "beta": 0.7}
    few = ("tile64x192", "swapped64x16", "swapped64x16_deep", "tile128x256", "swapped64x32", "swapped64x32_deep")
    tiles = [tile for tile in few if tile in get_stage("s19").tiles[dialect]][: 2 if device == "cpu" else 4]
    first, *others = (
        multiply(Implementation(get_stage("s19"), tile, dialect, "bf16"), a, b, **extras) for tile in tiles
    )
    assert others and first.any() and all(torch.equal(first, other) for other in others)
