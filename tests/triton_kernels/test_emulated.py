"""s20 in Triton's dialects: the bits of the model, sums that leave the tensor core when they must, and wide lines."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import pytest
import torch

import gemm_ref
import triton_kernels
from experiments.records.contenders import with_blocks
from experiments.studies.shared.chains import CHAINS, Emulated
from gemm_ref import EMULATED, Implementation, Problem, make_inputs, ptx
from gemm_ref.choice.work import count_tiles
from gemm_ref.sass import tools
from tests.triton_kernels.harness import opcodes_in
from tests.triton_kernels.test_tensor_cores import compiled, opcodes, pendings, products

pytest.importorskip("triton")

DIALECTS = ("triton", "gluon")
RUNG = gemm_ref.get_stage("s20")
MODES = [(dialect, math) for dialect in DIALECTS for math in EMULATED]
INF, NAN = float("inf"), float("nan")


def chain_of(dialect: str, math: str) -> Emulated:
    """In which order a kernel adds: of its model's, the last for Triton, whose slices of three parts are less deep."""
    return CHAINS[math][-1 if dialect == "triton" else 0]


def computed(
    dialect: str, math: str, a: torch.Tensor, b: torch.Tensor, tile: str = "tile128", blocks: int = 0
) -> torch.Tensor:
    """C, after the detectors have found nothing; in Gluon from one of its tiles."""
    gemm = functools.partial(triton_kernels.gemm, stage="s20", dialect=dialect, math=math)
    if dialect in RUNG.tiles:
        item = Implementation(RUNG, tile, dialect, math)
        down, right, _ = count_tiles(item.config, Problem(len(a), b.shape[1], len(b), math))
        gemm = with_blocks(item, blocks or down * right).load()
    with ptx.watched(detectors := ptx.Detectors()):
        c = gemm(a, b)
    assert detectors.findings == ()
    return c


@pytest.mark.parametrize("dialect, math", MODES)
def test_the_bits_of_the_model(dialect, math):
    """Past both edges, with each stage used twice; of numbers of one sign, so that each sum that is cut shows."""
    a, b = (x.abs() for x in make_inputs(Problem(70, 140, 202, b_layout="kn" if math == "fp16x3" else "nk")))
    chain = chain_of(dialect, math)
    want = chain.product(a, b, math)
    never = replace(chain, promote=256).product(a, b, math)  # what fused additions would give
    assert not torch.equal(never, want)
    assert torch.equal(computed(dialect, math, a, b), want)


@pytest.mark.parametrize("number, tile", list(enumerate(RUNG.tiles["gluon"])))
def test_the_bits_of_each_tile(number, tile):
    """In turn the modes, the layouts, and one of the tiles shared."""
    math, shared = EMULATED[number % 2], tile == "tile64"
    a, b = make_inputs(Problem(70, 140, 202, b_layout=("nk", "kn")[number // 2 % 2]))
    a[3, 1] = INF
    want, c = chain_of("gluon", math).product(a, b, math), computed("gluon", math, a, b, tile, 4 * shared)
    assert torch.equal(c[3].nan_to_num(0.0), want[3].nan_to_num(0.0))
    rest = [row for row in range(70) if row != 3]
    assert torch.equal(c[rest], want[rest]) != shared
    assert gemm_ref.check(c[rest], a[rest], b, math=math).rel_error < 3e-7


@pytest.mark.parametrize("dialect, math", MODES)
def test_wide_lines_are_added_in_fp32(dialect, math):
    """In one tile and not in its neighbours; with infinities and NaN as SGEMM has them."""
    a, b = make_inputs(Problem(70, 140, 70))
    a[3, 1], a[66] = INF, a[66] * torch.logspace(-30, 8, 70)
    b[7, 100], b[:, 5] = NAN, b[:, 5] * 1e-33
    want = chain_of(dialect, math).product(a, b, math)
    c = computed(dialect, math, a, b)
    assert torch.equal(c.isnan(), want.isnan()) and torch.equal(c.nan_to_num(0.0), want.nan_to_num(0.0))
    assert c[3].isinf().any() and c[:, 100].isnan().all()


@pytest.mark.parametrize("dialect, math", MODES)
def test_every_sum_of_a_slice_is_added_outside_the_tensor_core(dialect, math):
    """Triton takes `acc += tl.dot(a, b)` for `tl.dot(a, b, acc)`: then no addition would be left."""
    consumers = 2 if dialect == "gluon" else 1
    assert products("s20", dialect, math) == {"m64n128k16"}
    assert opcodes("s20", dialect, math)["add.f32"] + opcodes("s20", dialect, math)["add.rn.f32"] >= consumers * 64


@pytest.mark.parametrize("as_fma", [False, True])
def test_triton_drops_an_addition_that_is_not_written_as_an_fma(as_fma):
    from tests.triton_kernels.programs import promoting
    from triton_kernels import without_gpu

    a, b, c = (torch.empty(64, 64, dtype=dtype, device="meta") for dtype in (torch.half, torch.half, torch.float))
    counts = opcodes_in(without_gpu.compiled(promoting, a, b, c, 9, AS_FMA=as_fma, grid=(1,)).asm["ptx"])
    assert counts["add.f32"] + counts["add.rn.f32"] == as_fma * 64 * 64 // 128


@pytest.mark.parametrize("dialect, math", MODES)
def test_nothing_spills_and_no_wgmma_waits_for_the_one_before(dialect, math):
    cubin = compiled("s20", dialect, math).asm["cubin"]
    (usage,) = tools.usage(cubin).values()
    assert usage.stack_bytes <= 32  # before the products and behind them alone
    text = tools.disassemble(cubin)
    assert not any("LDL" in between for between in re.findall(r"HGMMA.{,4000}?(?=HGMMA)", text, re.DOTALL))
    a_product = chain_of(dialect, math).depth // 16
    assert text.count("HGMMA") == a_product * text.count("WARPGROUP.ARRIVE")


@pytest.mark.parametrize("math", EMULATED)
def test_gluon_adds_while_small_products_are_multiplied(math):
    """All of a slice's products but the first may be under way."""
    assert max(map(int, pendings("s20", "gluon", math))) == {"fp16x3": 2, "bf16x6": 5}[math]


def test_three_of_tritons_slices_are_in_shared_memory():
    for math in EMULATED:
        kernel = compiled("s20", "triton", math)
        slices = 3 * 2 * 128 * chain_of("triton", math).depth * 2 * gemm_ref.MATHS[math].parts
        assert slices < kernel.metadata.shared <= 227 * 1024 and kernel.metadata.num_warps == 8
