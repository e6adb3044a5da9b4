"""What Triton makes of s20: sums that leave the tensor core when they must, and no spills."""

from __future__ import annotations

import re

import pytest
import torch

import gemm_ref
from experiments.studies.shared.chains import chain_of
from gemm_ref import EMULATED
from gemm_ref.sass import tools
from tests.triton_kernels.harness import opcodes_in
from tests.triton_kernels.test_tensor_cores import compiled, opcodes, pendings, products

pytest.importorskip("triton")

MODES = [(dialect, math) for dialect in ("triton", "gluon") for math in EMULATED]


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
    a_product = chain_of(math, dialect).depth // 16
    assert text.count("HGMMA") == a_product * text.count("WARPGROUP.ARRIVE")


@pytest.mark.parametrize("math", EMULATED)
def test_gluon_adds_while_small_products_are_multiplied(math):
    """All of a slice's products but the first may be under way."""
    assert max(map(int, pendings("s20", "gluon", math))) == {"fp16x3": 2, "bf16x6": 5}[math]


def test_three_of_tritons_slices_are_in_shared_memory():
    for math in EMULATED:
        kernel = compiled("s20", "triton", math)
        slices = 3 * 2 * 128 * chain_of(math, "triton").depth * 2 * gemm_ref.MATHS[math].parts
        assert slices < kernel.metadata.shared <= 227 * 1024 and kernel.metadata.num_warps == 8
