"""`experiments check` on Python files: Triton and Gluon kernels launched by functions of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.check.command import check
from experiments.check.cuda.cuda_file import Options
from experiments.selection import make_request

triton = pytest.importorskip("triton")

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr = 32):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + row * K + k[None, :], mask=(row < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + col, mask=(k[:, None] < K) & (col < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


def gemm(a, b, c, block=32):
    (M, K), N = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))
    kernel[grid](a, b, c, M, N, K, BLOCK_M=block, BLOCK_N=block)
"""
GLUON = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [gl.num_warps(), 1], [1, 0])
    row = gl.program_id(1) * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(1, layout))[:, None]
    col = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, layout))[None, :]
    acc = gl.zeros((BLOCK, BLOCK), gl.float32, layout)
    for k in range(0, K):
        a = gl.load(a_ptr + row * K + k, mask=row < M, other=0.0)
        b = gl.load(b_ptr + k * N + col, mask=col < N, other=0.0)
        acc += a * b
    gl.store(c_ptr + row * N + col, acc, mask=(row < M) & (col < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    kernel[-(-N // 32), -(-M // 32)](a, b, c, M, N, K, BLOCK=32)
    return c
"""
TUNED = TRITON.replace(
    "@triton.jit",
    '@triton.autotune([triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}), triton.Config({"BLOCK_M": 64, "BLOCK_N": 32})], '
    'key=["M"])\n@triton.jit',
).replace(", BLOCK_M=block, BLOCK_N=block)", ")")


def report(folder: Path, text: str, sizes=("33x35x39",), **options):
    path = folder / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return check(path, Options(**options), make_request((), (), sizes, "", "cpu"))


@pytest.mark.parametrize("text", [TRITON, GLUON, TUNED], ids=["triton", "gluon", "autotuned"])
def test_a_sound_kernel(tmp_path, text):
    found = report(tmp_path, text)
    assert found.sound, found
    assert {line.array for line in found.lines if line.space == "global"} == {"A", "B", "C"}
    assert all(line.quote for line in found.lines)
    assert found.code[0].kernel == "kernel" and found.code[0].registers > 0
    assert any("allocates C itself" in note for note in found.notes) == (text is GLUON)


def test_a_missing_mask_is_named_with_its_line(tmp_path):
    found = report(tmp_path, TRITON.replace("mask=(row < M) & (k[None, :] < K)", "mask=row < M"))
    assert not found.sound
    (fault,) = found.faults
    assert fault.kind == "out of bounds" and fault.quote.startswith("a = tl.load(a_ptr")


def test_a_partial_store_and_a_dropped_tail(tmp_path):
    found = report(tmp_path, TRITON.replace("range(0, K, BLOCK_K)", "range(0, K - BLOCK_K + 1, BLOCK_K)"))
    assert any("the last K % 32 products" in reason or "only the first 32 of 39" in reason for reason in found.why)
    half = TRITON.replace("acc, mask=(row < M) & (col < N)", "acc, mask=(row < M) & (col < N // 2)")
    assert "never written" in {fault.kind for fault in report(tmp_path, half).faults}


def test_it_is_judged_by_the_arithmetic_that_is_meant(tmp_path):
    found = report(tmp_path, TRITON, math="tf32")
    assert found.sound and {verdict.problem for verdict in found.verdicts} == {"33x35x39"}


def test_the_driver_is_left_as_it_was(tmp_path):
    before = triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run, triton.runtime.driver._active
    report(tmp_path, TRITON)
    assert (triton.JITFunction.run, triton.runtime.autotuner.Autotuner.run, triton.runtime.driver._active) == before


USAGE = [
    ("import nowhere_to_be_found", {}, "cannot be imported: ModuleNotFoundError"),
    ("x = 1", {}, "gemm(a, b, c) or gemm(a, b); it has none"),
    ("def f(a, b): pass\ndef g(a, b): pass", {}, "several (f, g): choose one with --kernel"),
    ("def f(a, b): pass", {"kernel": "g"}, "has no function g(a, b, c) or g(a, b) that launches: there is f"),
    ("def f(a, b): return a @ b", {}, "launched no Triton kernel"),
    ("def f(a, b): a.cuda_is_not_here", {}, "could not be run with CPU tensors: AttributeError"),
    (GLUON.replace("return c", "return a"), {}, "must return C of shape (33, 35); it returned one of (33, 39)"),
    ("def f(a, b): pass", {"block": "16"}, "--block is for CUDA"),
    ("def f(a, b): pass", {"define": "X=1"}, "--define is for CUDA"),
]


@pytest.mark.parametrize(("text", "options", "message"), USAGE, ids=[message[:30] for *_, message in USAGE])
def test_usage_errors(invoke, tmp_path, text, options, message):
    path = tmp_path / "kernel.py"
    path.write_text(text, encoding="utf-8")
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = invoke("check", path, "--device", "cpu", "--size", "33x35x39", *given)
    assert result.exit_code == 2, result.output
    assert message in result.said, result.output
