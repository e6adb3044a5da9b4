"""s20 in every dialect: the bits of the model, lines that parts do not hold, and operands that are in parts already."""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pytest
import torch

import cuda_kernels
import gemm_ref
from cuda_kernels import source
from experiments.studies.shared.chains import CHAINS, chain_of
from gemm_ref import B_LAYOUTS, EMULATED, Implementation, Problem, make_inputs, ptx
from gemm_ref.call import choose
from gemm_ref.call.validate import validate
from gemm_ref.choice.work import count_tiles
from gemm_ref.epilogue import Extras
from gemm_ref.operands.split import error_bound
from gemm_ref.sass import tools
from gemm_ref.toolchain import REFERENCE_CAPABILITY
from tests.forms.forms import load
from tests.matrices import Pairs

RUNG = gemm_ref.get_stage("s20")
INF, NAN = float("inf"), float("nan")
COLUMNS = {"unit": 140, "threads": 133}  # who stores C: the TMA unit needs rows of whole vectors


class Form(NamedTuple):
    """What the kernel is compiled for, and how the tiles of C are scheduled."""

    dialect: str
    tile: str
    math: str
    layout: str
    stores: str
    schedule: str

    def __str__(self) -> str:
        return "-".join(self)

    @property
    def item(self) -> Implementation:
        return Implementation(RUNG, self.tile, self.dialect, self.math, self.layout)

    @property
    def properties(self) -> list:
        """Each tile, and each pair of the values of two factors, of which a tile is two.

        In the twins, which take seconds to compile, the compute type and the layout of B are no such pair: to what
        depends on the layout, the compute type is the number of parts, and that is a bound of its loops.
        """
        config, math = self.item.config, self.math
        others = config.TRANSPOSE_C, config.CLUSTER_M, self.stores, self.schedule
        both = math, self.layout if self.dialect == "cuda" else None
        pairs = [Pairs((*others, each), self.dialect) for each in (self.layout, math)]
        return [(self.dialect, self.tile), *pairs, (self.dialect, both)]

    def multiply(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Returns a @ b of the clusters that the schedule has; no detector finds anything."""
        problem = Problem(len(a), b.shape[1], len(b), self.math, self.layout)
        tiles_m, tiles_n, _ = count_tiles(self.item.config, problem)
        clusters = (3 if self.schedule == "shared" else tiles_m * tiles_n) if self.dialect in RUNG.tiles else None
        with ptx.watched(detectors := ptx.Detectors()):
            c = load(self.item, clusters)(a, b)
        assert not detectors.findings
        return c


def all_forms() -> list[Form]:
    forms = []
    for dialect in RUNG.dialects:
        configs = {tile: RUNG.config(tile, dialect) for tile in RUNG.tiles.get(dialect, RUNG.variants_in(dialect))}
        # small tiles come first: they compile faster, and of equal forms `cover` selects the first
        tiles = sorted(configs, key=lambda tile: configs[tile].BLOCK_M * configs[tile].BLOCK_N)
        stores = COLUMNS if dialect in RUNG.tma.c_by_threads else ["unit"]
        schedules = ["whole", "shared"] if dialect in RUNG.tiles else ["whole"]
        rest = product(tiles, EMULATED, B_LAYOUTS, stores, schedules)
        forms += [Form(dialect, *each) for each in rest]
    return forms


def same(c: torch.Tensor, want: torch.Tensor) -> bool:
    """To the bit, but for the payload of a NaN."""
    return torch.equal(c.isnan(), want.isnan()) and torch.equal(c.nan_to_num(nan=0.0), want.nan_to_num(nan=0.0))


@pytest.mark.forms("form", all_forms(), lambda form: form.properties)
def test_the_bits_are_the_models(form):
    """Whole tiles have the model's bits, and shared tiles its sums in another order; wide lines are added in fp32.

    The tiles are past both edges, and K has a tail and more slices than stages. The numbers are of one sign, so that
    each sum that is rounded shows. Lines that parts cannot represent have a product of their own, since the reference
    GPU needs long for each column and each k of them: K is one slice there, and two where blocks share a tile.
    """
    problem = Problem(70, COLUMNS[form.stores], 202, form.math, form.layout)
    chain = chain_of(form.math, form.dialect)
    a, b = (x.abs() for x in make_inputs(problem))
    c, want = form.multiply(a, b), chain.product(a, b, form.math)
    fused = replace(chain, promote=256).product(a, b, form.math)  # what sums that stay in the tensor core would be
    assert not torch.equal(want, fused)
    if form.schedule == "whole":
        assert torch.equal(c, want)
    else:
        assert gemm_ref.check(c, a, b, math=form.math).rel_error < 3e-7

    k = 70 if form.schedule == "shared" else 20
    a, b = (x.abs() for x in make_inputs(replace(problem, n=problem.n - 96, k=k)))
    a[3, 1], a[66] = INF, a[66] * torch.logspace(-36, 8, k)  # which spans more than the parts do
    b[7, 30], b[:, 5] = NAN, b[:, 5] * 1e-33
    c, want = form.multiply(a, b), chain.product(a, b, form.math)
    if form.schedule == "whole":
        assert same(c, want)
    else:
        assert same(c[[3, 66]], want[[3, 66]]) and same(c[:, [5, 30]], want[:, [5, 30]])


@pytest.mark.parametrize("math", EMULATED)
def test_lines_that_parts_do_not_hold(math):
    """They are what SGEMM gives, and a report names them; asked to raise, the call does so instead."""
    a, b = make_inputs(Problem(20, 9, 24, math), "normal", seed=6)
    a[3, 1], a[17, 2], b[5, 7] = INF, NAN, -INF
    a[6, :4], b[:, 2] = 1e-42, b[:, 2] * 2.0**100
    a[8, 5:] *= 2.0**-60
    with gemm_ref.range_report() as report:
        c = cuda_kernels.gemm(a, b, stage="s20", math=math)
    rows = [3, 6, 8, 17] if math == "fp16x3" else [3, 6, 17]
    assert report.widened and report.wide == [(rows, [7])]
    assert same(c, CHAINS[math][0].product(a, b, math))
    assert repr(report) == f"RangeReport(rungs=['s20_emulated'], wide=[({rows}, [7])])"
    message = ("in fp32, or math='bf16x6', .*" if math == "fp16x3" else "in fp32") + "$"
    message = rf"{math} does not hold rows {rows[0]}, .* of a and columns 7 of b \(.*{message}"
    with pytest.raises(gemm_ref.OutOfRange, match=message):
        cuda_kernels.gemm(a, b, stage="s20", math=math, on_range="raise")


@pytest.mark.parametrize("math", EMULATED)
@pytest.mark.parametrize("dialect", RUNG.dialects)
def test_the_contract_holds_whichever_rung_the_model_takes(dialect, math, monkeypatch):
    """A call that names no rung: a report says which computed it. Few rows are SGEMM's, in parts or not."""
    package = importlib.import_module(gemm_ref.DIALECTS[dialect].package)
    gemm = functools.partial(package.gemm, math=math, **{} if dialect == "cuda" else {"dialect": dialect})
    a, b = make_inputs(Problem(9, 20, 150, math), "uniform", seed=8)
    a, exact = a.abs(), a.abs().double() @ b.double()
    bounds = [error_bound(a, b, math, in_fp32) for in_fp32 in (True, False)]
    kept = gemm_ref.split_operand(b, "b", math=math)
    with gemm_ref.range_report() as report:
        plain = gemm(a, b)
        assert torch.equal(gemm(a, kept), plain)
        monkeypatch.setattr(choose, "_predict_ns", lambda plan, **operands: bool(plan.in_place_of))
        emulated = gemm(a, b)
    assert report.rungs == ["s14_register_banks"] * 2 + ["s20_emulated"] and not report.widened
    for c, bound in zip((plain, emulated), bounds, strict=True):
        assert ((c.double() - exact).abs() <= bound).all()
    assert torch.equal(plain, gemm(a, b, math=None)) and not torch.equal(plain, emulated)


@pytest.mark.parametrize("dialect", RUNG.dialects)
def test_the_rung_that_takes_less_time_by_the_model(dialect):
    """SGEMM where rows are few or C is small and K deep; but where a call asks for what s20 alone has, or for s20."""
    for m, n, k, expected in ((1, 4096, 4096, "s14"), (128, 128, 65536, "s14"), (4096, 4096, 4096, "s20")):
        a, b = torch.empty(m, k), torch.empty(k, n)
        for more in ({}, {"on_range": "raise"}, {"batch_invariant": True}, {"stage": "s20"}):
            plan = validate(a, b, dialect=dialect, math="fp16x3", **{"stage": None, **more})
            found = choose.choose(plan, a, b, None, Extras()).implementation.stage.id
            assert found.startswith("s20" if more else expected), (m, more)


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_operands_in_parts(layout):
    a, b = make_inputs(Problem(9, 20, 33, "fp16x3", layout), "normal", seed=7)
    want = cuda_kernels.gemm(a, b, stage="s20", math="fp16x3", on_range="raise")
    kept = gemm_ref.split_operand(b, "b", math="fp16x3")
    first = gemm_ref.split_operand(a, "a", math="fp16x3")
    out = torch.empty_like(want)
    assert cuda_kernels.gemm(first, kept, stage="s20", math="fp16x3", out=out) is out and torch.equal(out, want)
    b.zero_()  # what was split is kept
    assert torch.equal(cuda_kernels.gemm(a, kept, stage="s20", math="fp16x3"), want)
    with pytest.raises(ValueError, match="b is in parts for fp16x3: pass math='fp16x3'"):
        cuda_kernels.gemm(a, kept, stage="s20", math="bf16x6")


@pytest.mark.parametrize(
    ("x", "side", "math", "message"),
    [
        (torch.ones(4, 4), "c", "fp16x3", "side must be 'a' or 'b'"),
        (torch.ones(4, 4), "a", "tf32", "operands are split in fp16x3 or bf16x6, not in 'tf32'"),
        (torch.ones(4, 5).half(), "a", "fp16x3", r"a must be a dense .*; it is of torch.float16, of shape \(4, 5\)"),
        (torch.ones(4).numpy(), "b", "fp16x3", "b must be a torch.Tensor, not ndarray"),
        (torch.nn.Parameter(torch.ones(4, 4)), "b", "fp16x3", r"b requires grad, .*: pass b.detach\(\)"),
    ],
)
def test_what_cannot_be_split(x, side, math, message):
    with pytest.raises(ValueError, match=message):
        gemm_ref.split_operand(x, side, math=math)


def test_an_operand_in_parts_is_for_its_side():
    """Square, so that no size tells; rows of B^T are scaled as those of A."""
    x = torch.randn(8, 8)
    kept = {side: gemm_ref.split_operand(y, side, math="fp16x3") for side, y in (("a", x), ("b", x.t()))}
    assert repr(kept["b"]) == "Split(b of shape (8, 8) in fp16x3, on cpu)"
    for given, message in (((kept["b"], x), "a was split as b"), ((x, kept["a"]), "b was split as a")):
        with pytest.raises(ValueError, match=message):
            cuda_kernels.gemm(*given, stage="s20", math="fp16x3")


def test_on_range_is_for_emulated_modes():
    a, b = make_inputs(Problem(4, 5, 6), "normal")
    for stage, math in (("s04", None), ("s19", "tf32")):
        with pytest.raises(ValueError, match="on_range is 'widen' or 'raise', in fp16x3 and bf16x6 alone"):
            cuda_kernels.gemm(a, b, stage=stage, math=math, on_range="raise")
    with pytest.raises(ValueError, match="it is 'ignore' in fp16x3"):
        cuda_kernels.gemm(a, b, stage="s20", math="fp16x3", on_range="ignore")


@pytest.mark.parametrize("math", EMULATED)
def test_sums_stay_in_registers(math):
    """192 of them in a thread that multiplies: some words may lie outside the loop, and none between its products."""
    item = source.choose(RUNG, math=math)
    cubin = source.cubin(item, REFERENCE_CAPABILITY).read_bytes()
    (usage,) = tools.usage(cubin).values()
    assert usage.stack_bytes <= 24 and usage.registers == 168
    between = re.findall(r"HGMMA.{,4000}?(?=HGMMA)", tools.disassemble(cubin), re.DOTALL)
    assert between and not any("LDL" in text for text in between)
