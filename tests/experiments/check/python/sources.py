"""Kernels in Python files that are checked, and the check of one."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from experiments.check import cost
from experiments.check.messages import Note
from experiments.check.report import Report
from gemm_ref.build import CACHE, digest, write_whole
from tests.experiments.check.helpers import check_file, values

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


def report(text: str, sizes=("33x35x39",), counted: bool = False, **options) -> Report:
    """The report on a text; without the cost of its kernel, which takes half of the time, unless it is `counted`.

    The file is where it was in earlier runs, since what Triton has compiled is cached by file.
    """
    path = CACHE / "checked-by-tests" / digest(text) / "kernel.py"
    write_whole(path, text)
    with pytest.MonkeyPatch.context() as patch:
        if not counted:
            patch.setattr(cost, "count", lambda subject, problem, quote: ([], [], ""))
        return check_file(path, sizes, **options)


class Case(NamedTuple):
    """A sound file, the beginning of the headline, what is said of the call, and the values of a note of each code."""

    text: str
    headline: str = "sound: right"
    how: str = ""
    notes: dict[Note, dict[str, object]] = {}
    options: dict = {}

    def check(self) -> None:
        """Fails unless the report says just this."""
        found = report(self.text, **self.options)
        assert found.sound and found.headline.startswith(self.headline), (found.headline, found.why, found.faults)
        assert self.how in ("", found.how), found.how
        for code, expected in self.notes.items():
            assert expected.items() <= values(found.notes, code).items(), found.notes
