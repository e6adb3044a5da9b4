"""Tensor-core kernels as nvcc and Triton write them: <mma.h> in its shapes, `tl.dot` where Triton takes mma.sync."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import torch

from cuda_kernels import source
from gemm_ref import ptx
from gemm_ref.launch import Launch, cdiv

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "f32": torch.float32,
    "s8": torch.int8,
    "u8": torch.uint8,
    "s32": torch.int32,
    "f64": torch.float64,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
}


def integers(*shape: int, limit: int = 4) -> torch.Tensor:
    """Small ones, whose products every format and sum holds exactly."""
    return torch.randint(-limit, limit + 1, shape, generator=torch.Generator().manual_seed(sum(shape))).float()


# --- nvcc ----------------------------------------------------------------------------------------------------

FRAGMENTS = Path(__file__).with_name("fragments.cu")
NAMES = re.findall(r"^KERNELS\((\w+),", FRAGMENTS.read_text(encoding="utf-8"), re.M)
PITCH = 48  # elements from one row or column to the next


@functools.cache
def fragments() -> str:
    return source.compile_ptx(FRAGMENTS.read_text(encoding="utf-8"), FRAGMENTS.name)[0]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("name", NAMES)
def test_a_tile_through_wmma_as_nvcc_compiles_it(name, space):
    kind, *sizes, layout_a, layout_b, to = name.split("_")
    m, n, k = map(int, sizes)
    a, b = (integers(32, PITCH, limit=limit) for limit in (3, 4))
    a, b = (x.abs() if kind == "u8" else x for x in (a, b))
    a, b = a.to(DTYPES[kind]), b.to(DTYPES[kind])
    c = integers(32, PITCH, limit=5).to(DTYPES[to])
    before = c.clone()
    kernel = ptx.load(fragments(), f"{name}_{space}")
    with ptx.watched(detectors := ptx.Detectors()):
        ptx.run(kernel, Launch((1, 1, 1), (32, 1, 1)), [a, b, c, PITCH, PITCH, PITCH])
    x = (a if layout_a == "row" else a.T)[:m, :k].double()
    y = (b if layout_b == "row" else b.T)[:k, :n].double()
    assert torch.equal(c[:m, :n].double(), x @ y + before[:m, :n].double())
    assert torch.equal(c[m:], before[m:]) and torch.equal(c[:, n:], before[:, n:])
    assert {finding.kind for finding in detectors.findings} <= {"never written"}  # what is around the tile


# --- Triton --------------------------------------------------------------------------------------------------

# (BLOCK_M, num_warps) for which Triton takes mma.sync: on sm_90 it needs tiles or warps too few for wgmma.
TILES = {80: ((32, 4), (128, 8)), 90: ((32, 4), (64, 2))}
MODES = [
    ("fp16", "ieee"),
    ("bf16", "ieee"),
    ("fp32", "tf32"),
    ("fp32", "tf32x3"),
    ("fp8e4nv", "ieee"),
    ("fp8e5", "ieee"),
]


def compile_dot(capability: int, dtype: str, precision: str, block_m: int, num_warps: int):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tests.triton_kernels.plain_dot import BLOCK_K, BLOCK_N, dot

    to = "fp16" if dtype.startswith("fp8") else dtype
    signature = {"a": f"*{dtype}", "b": f"*{dtype}", "c": f"*{to}", "M": "i32", "N": "i32", "K": "i32"}
    constants = {"BLOCK_M": block_m, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "PRECISION": precision}
    text = ASTSource(dot, {**signature, **dict.fromkeys(constants, "constexpr")}, constexprs=constants)
    options = {"num_warps": num_warps, "num_stages": 3}
    return triton.compile(text, target=GPUTarget("cuda", capability, 32), options=options), DTYPES[to], BLOCK_N


# each mode for both architectures, in one tile or the other
DOTS = [(c, *tiles[(i + (c == 90)) % 2], *mode) for c, tiles in TILES.items() for i, mode in enumerate(MODES)]


@pytest.mark.parametrize("capability, block_m, num_warps, dtype, precision", DOTS)
def test_a_dot_as_triton_compiles_it(capability, block_m, num_warps, dtype, precision):
    if (capability, dtype) == (80, "fp8e4nv"):
        pytest.skip("Triton has no e4m3 below sm_89")
    compiled, to, block_n = compile_dot(capability, dtype, precision, block_m, num_warps)
    text = compiled.asm["ptx"]
    assert "mma.sync" in text and "wgmma" not in text
    kernel, (m, n, k) = ptx.load(text), (100, 90, 70)
    a, b = (integers(*shape).to(DTYPES[dtype]) for shape in ((m, k), (k, n)))
    c = torch.full((m, n), float("nan"), dtype=to)
    scratch = [torch.zeros(16, dtype=torch.uint8)] * (len(kernel.entry.parameters) - 6)
    bits = [x.view(torch.uint8) if dtype.startswith("fp8") else x for x in (a, b)]
    launch = Launch((cdiv(n, block_n), cdiv(m, block_m), 1), (32 * num_warps, 1, 1), compiled.metadata.shared)
    with ptx.watched(detectors := ptx.Detectors()):
        ptx.run(kernel, launch, [*bits, c, m, n, k, *scratch])
    assert torch.equal(c.double(), a.double() @ b.double())
    assert not detectors.findings
