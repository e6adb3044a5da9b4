"""What Triton compiles of `tl.dot` where no rung has it: narrow swizzles, and warps that it specialises itself.

Gluon's own pipelines and warp specialisation are in the rungs s17 and s18.
"""

from __future__ import annotations

import pytest
import torch

from gemm_ref import Launch, cdiv

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels import launcher


def operands(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Returns small integers, a poisoned C, and the product, which every type holds exactly."""
    generator = torch.Generator().manual_seed(m * n + k)
    a, b = (torch.randint(-4, 5, shape, generator=generator).to(dtype) for shape in ((m, k), (k, n)))
    return a, b, torch.full((m, n), torch.nan), a.float() @ b.float()


@triton.jit
def described_dot(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPECIALIZED: tl.constexpr = False,
):  # fmt: skip
    row, col = tl.program_id(1) * BLOCK_M, tl.program_id(0) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in tl.range(0, K, BLOCK_K, warp_specialize=SPECIALIZED):
        acc = tl.dot(a.load([row, k]), b.load([k, col]), acc, input_precision="tf32")
    c.store([row, col], acc)


def launch(matrices, blocks: tuple[int, int, int], padding="zero", **constants):
    """Runs over the tiles of C, on descriptors of the matrices; returns the compiled kernel."""
    (m, k), n, (block_m, block_n, block_k) = matrices[0].shape, matrices[1].shape[1], blocks
    shapes = [block_m, block_k], [block_k, block_n], [block_m, block_n]
    given = [TensorDescriptor.from_tensor(*each, padding) for each in zip(matrices, shapes, strict=True)]
    constants |= {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    shape = Launch((cdiv(n, block_n), cdiv(m, block_m), 1), (128, 1, 1))
    prepared = launcher.Prepared(described_dot, shape, ("A", "B", "C"), (m, n, k), lambda *_: given, **constants)
    return prepared(*matrices)


@pytest.mark.parametrize("blocks, swizzles", [((64, 16, 16), (1, 1)), ((64, 32, 32), (2, 2)), ((64, 128, 32), (2, 3))])
def test_narrow_tiles_take_the_other_swizzles(blocks, swizzles):
    *matrices, product = operands(70, 72, 80, torch.bfloat16)
    compiled = launch(matrices, blocks, num_stages=2)
    assert tuple(about["swizzle"] for about in compiled.metadata.tensordesc_meta[:2]) == swizzles
    assert "wgmma" in compiled.asm["ptx"] and torch.equal(matrices[2], product)


def test_warps_that_triton_specialises_itself():
    *matrices, product = operands(150, 80, 328, torch.bfloat16)
    compiled = launch(matrices, (64, 64, 64), SPECIALIZED=True, num_stages=3)
    assert "setmaxnreg" in compiled.asm["ptx"] and torch.equal(matrices[2], product)


def test_a_descriptor_that_the_reference_gpu_cannot_follow():
    *matrices, _ = operands(64, 64, 64, torch.float32)
    with pytest.raises(ValueError, match="descriptor of A pads"):
        launch(matrices, (64, 64, 32), padding="nan")
