"""What Triton and Gluon make of Hopper's units, on the reference GPU: wgmma in every type, TMA, warp specialisation."""

from __future__ import annotations

import pytest
import torch

from gemm_ref import Launch, cdiv, ptx

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_kernels import launcher

# Renamed after Triton 3.6.
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2]
CASES = [(dtype, 4) for dtype in DTYPES] + [(torch.bfloat16, 8), (torch.float32, 8)]


@triton.jit
def pointers(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + cols[None, :], mask=(k[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc, input_precision="tf32")
    tl.store(c + rows[:, None] * N + cols[None, :], acc, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def descriptors(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIALIZED: tl.constexpr = False
):  # fmt: skip
    row, col = tl.program_id(1) * BM, tl.program_id(0) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=SPECIALIZED):
        acc = tl.dot(a.load([row, k]), b.load([k, col]), acc, input_precision="tf32")
    c.store([row, col], acc)


@gluon.jit
def pipelined(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    row, col = gl.program_id(1) * BM, gl.program_id(0) * BN
    a = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BM, BK], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BK, BN], b_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], instr_shape=[16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, layout)
    slices = gl.cdiv(K, BK)
    for k in range(-STAGES + 1, slices):
        ahead = k + STAGES - 1  # into the slot whose product the last turn has waited for
        if ahead < slices:
            slot = full.index(ahead % STAGES)
            mbarrier.expect(slot, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma_load(a_desc, [row, ahead * BK], slot, a.index(ahead % STAGES))
            tma_load(b_desc, [ahead * BK, col], slot, b.index(ahead % STAGES))
        if k >= 0:
            mbarrier.wait(full.index(k % STAGES), (k // STAGES) & 1)
            acc = warpgroup_mma(a.index(k % STAGES), b.index(k % STAGES), acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=(acc,))
    c = gl.allocate_shared_memory(c_desc.dtype, [BM, BN], c_desc.layout)
    c.store(acc)
    fence_async_shared()
    tma_store(c_desc, [row, col], c)
    tma.store_wait(0)


@gluon.jit
def _produce(a_desc, b_desc, a, b, full, empty, row, col, slices, STAGES: gl.constexpr, BK: gl.constexpr):
    for k in range(slices):
        slot = k % STAGES
        mbarrier.wait(empty.index(slot), ((k // STAGES) & 1) ^ 1)
        mbarrier.expect(full.index(slot), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma_load(a_desc, [row, k * BK], full.index(slot), a.index(slot))
        tma_load(b_desc, [k * BK, col], full.index(slot), b.index(slot))


@gluon.jit
def _consume(c_desc, a, b, full, empty, row, col, slices, STAGES: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], instr_shape=[16, BN, 16])
    acc = gl.zeros((BM, BN), gl.float32, layout)
    for k in range(slices):
        slot = k % STAGES
        mbarrier.wait(full.index(slot), (k // STAGES) & 1)
        acc = warpgroup_mma(a.index(slot), b.index(slot), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index(slot), count=1)
    c = gl.allocate_shared_memory(c_desc.dtype, [BM, BN], c_desc.layout)
    c.store(acc)
    fence_async_shared()
    tma_store(c_desc, [row, col], c)
    tma.store_wait(0)


@gluon.jit
def specialized(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    row, col, slices = gl.program_id(1) * BM, gl.program_id(0) * BN, gl.cdiv(K, BK)
    a = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BM, BK], a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BK, BN], b_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (_consume, (c_desc, a, b, full, empty, row, col, slices, STAGES, BM, BN)),
            (_produce, (a_desc, b_desc, a, b, full, empty, row, col, slices, STAGES, BK)),
        ],
        [1],
        [24],
    )


# --- running -------------------------------------------------------------------------------------------------


def operands(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Small integers with rows of a multiple of 16 bytes, a poisoned C, and the product."""
    generator = torch.Generator().manual_seed(m * n + k)
    a, b = (torch.randint(-4, 5, shape, generator=generator).to(dtype) for shape in ((m, k), (k, n)))
    return a, b, torch.full((m, n), torch.nan), a.float() @ b.float()


def started(kernel, grid: Launch, args: tuple, **constants):
    """Run on A, B and C or descriptors of them, and sizes; returns the compiled kernel."""
    described, sizes = args[:3], args[3:]
    matrices = [getattr(x, "base", x) for x in described]
    return launcher.Prepared(kernel, grid, ("A", "B", "C"), sizes, lambda *_: described, **constants)(*matrices)


def launch(kernel, args: tuple, m: int, n: int, warps: int, observers=(), **constants) -> str:
    """Run over the tiles of C; returns the PTX."""
    grid = (cdiv(n, constants["BN"]), cdiv(m, constants["BM"]), 1)
    with ptx.watched(*observers):
        compiled = started(kernel, Launch(grid, (32 * warps, 1, 1)), args, **constants)
    return compiled.asm["ptx"]


@pytest.mark.parametrize("dtype, warps", CASES, ids=str)
def test_dot_of_pointers(dtype, warps):
    m, n, k = 150, 80, 200
    a, b, c, product = operands(m, n, k, dtype)
    detectors = ptx.Detectors()
    text = launch(pointers, (a, b, c, m, n, k), m, n, warps, [detectors], BM=128, BN=64, BK=64, num_stages=3)
    # Between cp.async and wgmma Triton 3.6 has no fence of proxies, which the PTX manual asks for; 3.9 has one.
    assert all("fence.proxy.async" in str(finding) for finding in detectors.findings)
    assert detectors.findings == () or VERSION < (3, 9)
    assert "wgmma.mma_async" in text and torch.equal(c, product)


@pytest.mark.parametrize("dtype, warps", CASES, ids=str)
def test_dot_of_descriptors(dtype, warps):
    m, n, k = 150, 80, 208
    a, b, c, product = operands(m, n, k, dtype)
    args = [TensorDescriptor.from_tensor(x, block) for x, block in ((a, [128, 64]), (b, [64, 64]), (c, [128, 64]))]
    detectors = ptx.Detectors()
    text = launch(descriptors, (*args, m, n, k), m, n, warps, [detectors], BM=128, BN=64, BK=64, num_stages=3)
    assert detectors.findings == ()
    assert "cp.async.bulk.tensor.2d" in text and "wgmma.mma_async" in text and torch.equal(c, product)


@pytest.mark.parametrize(
    "blocks, swizzles", [((16, 16), (1, 1)), ((32, 32), (2, 2)), ((64, 16), (1, 3)), ((128, 32), (2, 3))]
)
def test_narrow_tiles_take_the_other_swizzles(blocks, swizzles):
    (block_n, block_k), (m, n, k) = blocks, (70, 72, 80)
    a, b, c, product = operands(m, n, k, torch.bfloat16)
    shapes = (a, [64, block_k]), (b, [block_k, block_n]), (c, [64, block_n])
    args = [TensorDescriptor.from_tensor(x, block) for x, block in shapes]
    grid = Launch((cdiv(n, block_n), cdiv(m, 64), 1), (128, 1, 1))
    constants = {"BM": 64, "BN": block_n, "BK": block_k, "num_stages": 2}
    compiled = started(descriptors, grid, (*args, m, n, k), **constants)
    assert tuple(about["swizzle"] for about in compiled.metadata.tensordesc_meta[:2]) == swizzles
    assert "wgmma" in compiled.asm["ptx"] and torch.equal(c, product)


def test_warps_that_triton_specialises_itself():
    m, n, k = 150, 80, 328
    a, b, c, product = operands(m, n, k, torch.bfloat16)
    args = [TensorDescriptor.from_tensor(x, block) for x, block in ((a, [64, 64]), (b, [64, 64]), (c, [64, 64]))]
    constants = {"BM": 64, "BN": 64, "BK": 64, "SPECIALIZED": True, "num_stages": 3}
    text = launch(descriptors, (*args, m, n, k), m, n, 4, **constants)
    assert "setmaxnreg" in text and torch.equal(c, product)


def gluon_operands(m: int, n: int, k: int) -> tuple[list, torch.Tensor, torch.Tensor]:
    a, b, c, product = operands(m, n, k, torch.bfloat16)
    args = []
    for x, block in ((a, [128, 64]), (b, [64, 64]), (c, [128, 64])):
        layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16 if x is not c else gl.float32)
        args.append(GluonDescriptor.from_tensor(x, block, layout))
    return args, c, product


@pytest.mark.parametrize("kernel, warps", [(pipelined, 4), (pipelined, 8), (specialized, 4)])
@pytest.mark.parametrize("k", [56, 328])  # one slice and six, neither a multiple of 16: one kernel
def test_gluon(kernel, warps, k):
    args, c, product = gluon_operands(150, 80, k)
    detectors = ptx.Detectors()
    text = launch(kernel, (*args, k), 150, 80, warps, [detectors], STAGES=3, BM=128, BN=64, BK=64)
    # Triton tells its worker warps what to do by a byte that all threads of the others write, all the same.
    assert all("writes in the same instruction" in str(finding) for finding in detectors.findings)
    assert kernel is specialized or detectors.findings == ()
    assert ("setmaxnreg" in text) == (kernel is specialized) and torch.equal(c, product)


def test_a_descriptor_that_the_reference_gpu_cannot_follow():
    a, b, c, _ = operands(64, 64, 64, torch.float32)
    shapes = (a, [64, 32]), (b, [32, 64]), (c, [64, 64])
    args = [TensorDescriptor.from_tensor(x, block, padding="nan" if x is a else "zero") for x, block in shapes]
    with pytest.raises(ValueError, match="descriptor of A pads"):
        launch(descriptors, (*args, 64, 64, 64), 64, 64, 4, BM=64, BN=64, BK=32)
