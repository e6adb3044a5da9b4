"""Rungs on tensor cores, beyond what every rung is asked: alignment, rounding, the order of tiles, bank conflicts."""

from __future__ import annotations

import pytest
import torch

import cuda_kernels
import gemm_ref
from cuda_kernels import source
from gemm_ref import STAGES, Problem, make_inputs, ptx
from gemm_ref.call import validate
from tests.matrices import shifted

RUNGS = ("s15_wmma", "s16_mma_sync")
EACH = [
    (rung, variant, math)
    for rung in RUNGS
    for variant in STAGES[rung].variants_in("cuda")
    for math in STAGES[rung].maths
    if math != "fp16"  # whose fragments are those of bf16
]


def gemm_of(rung: str, variant: str, math: str):
    return lambda a, b, out=None: cuda_kernels.gemm(a, b, stage=rung, variant=variant, math=math, out=out)


@pytest.mark.parametrize("rung", RUNGS)
def test_a_c_whose_rows_are_whole_chunks_at_an_address_that_is_none(rung):
    """tests/test_kernels.py has such operands."""
    a, b = make_inputs(Problem(48, 64, 40, "bf16"), "integers", seed=5)
    out = shifted(torch.full((48, 64), float("nan"), dtype=a.dtype))
    cuda_kernels.gemm(a, b, stage=rung, out=out)
    gemm_ref.check(out, a, b, math="bf16", exact=True)


@pytest.mark.parametrize("b_layout", ["kn", "nk"])
@pytest.mark.parametrize("rung", ["s17_wgmma_tma", "s18_warp_specialized"])
def test_tma_rounds_to_tf32(rung, b_layout, device):
    """To nearest, ties to even, where s16 leaves it to the tensor core, which cuts."""
    bits = torch.arange(64 * 64, dtype=torch.int32) * 1237 % (1 << 23) + (127 << 23)
    bits[::3] = bits[::3] & ~0x1FFF | 0x1000  # halfway
    x = bits.view(torch.float32).reshape(64, 64)
    rounded = (torch.round(x.double() * 2**10) / 2**10).float()  # 1 <= x < 2
    assert (rounded != x).any()
    x, one = x.to(device), torch.eye(64, device=device)
    for a, b in ((x, one), (one, x)):
        b = gemm_ref.operands.as_layout(b, b_layout)
        assert torch.equal(gemm_of(rung, "default", "tf32")(a, b).cpu(), rounded)
    cut = gemm_of("s16_mma_sync", "default", "tf32")(x, one).cpu()
    assert (cut <= x.cpu()).all() and not torch.equal(cut, rounded)


@pytest.mark.parametrize("tiles", [(1, 3), (17, 2), (33, 1)])
def test_the_order_of_tiles_covers_each_once(tiles):
    """Groups of GROUP_M tiles along M, of which the last may be lower, or the only one."""
    config = STAGES["s16_mma_sync"].variants["tile128"]
    m, n = tiles[0] * config.BLOCK_M - 1, tiles[1] * config.BLOCK_N - 1
    a, b = make_inputs(Problem(m, n, 8, "bf16"), "integers", seed=6)
    with ptx.watched(detectors := ptx.Detectors()):
        gemm_ref.checked_run(gemm_of("s16_mma_sync", "tile128", "bf16"), a, b, math="bf16", exact=True)
    assert not detectors.findings  # nor is any element written twice


@pytest.mark.parametrize("variant", STAGES["s18_warp_specialized"].variants_in("cuda"))
def test_a_block_computes_one_tile_after_another(variant, monkeypatch):
    """On two multiprocessors there are many for each block, and `waits` alone has each stored before the next."""
    monkeypatch.setattr(validate, "REFERENCE_SMS", 2)
    a, b = make_inputs(Problem(385, 513, 70, "bf16"), "integers", seed=7)
    with ptx.watched(detectors := ptx.Detectors()):
        gemm_ref.checked_run(gemm_of("s18_warp_specialized", variant, "bf16"), a, b, math="bf16", exact=True)
    assert not detectors.findings
    item = source.choose(STAGES["s18_warp_specialized"], variant)
    assert ("cp.async.bulk.wait_group 0" in source.ptx(item)) == (variant == "waits")


@pytest.mark.parametrize("rung, variant, math", EACH)
def test_fragments_are_read_without_bank_conflicts(rung, variant, math):
    """s16's swizzles leave none in the copies of slices either; s15's padding does."""
    a, b = make_inputs(Problem(256, 256, 64, math))
    with ptx.watched(counter := ptx.Counter()):
        gemm_of(rung, variant, math)(a, b)
    names = ("ldmatrix", "ld.shared.b32", "wmma.load", *(("cp.async",) if rung == "s16_mma_sync" else ()))
    found = [count for count in counter.counts() if count.space == "shared" and count.op.startswith(names)]
    assert len(found) >= 2 and all(count.wavefronts == count.ideal for count in found)
