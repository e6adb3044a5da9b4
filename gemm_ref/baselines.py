"""What the rungs are measured against: a triple loop in C++, the CPU's BLAS twice, and cuBLAS.

All are called as the kernels are, `fn(a, b, out=None)`, with fp32 operands a (M, K) and b (K, N) on the
baseline's device; they return C (M, N), which is `out` where one is given. Strides are free and sizes may be 0.
They raise ValueError for operands that do not fit, in the words of the kernels' own validation.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from gemm_ref.build import build_library, open_library
from gemm_ref.call import as_operand, check_out, check_tensors
from gemm_ref.problem import Problem

# Strict IEEE: without -ffast-math the compiler keeps the order of the sum, as the source has it.
_CXX_FLAGS = ("-O3",)


@contextmanager
def ieee_fp32() -> Iterator[None]:
    """fp32 matrix products are computed in fp32 inside the block, whatever the process allows outside of it.

    The setting is torch's, process-wide, and put back as it was, also after an exception. torch has an old and a
    new interface to it, and refuses to work where they disagree; so both are set while both are usable, and the
    new one alone for a program that has already moved to it.
    """
    scopes = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    new = [scope.fp32_precision for scope in scopes]
    try:
        old = torch.get_float32_matmul_precision()
    except RuntimeError:  # the new interface was used before, and the old one may not be read any more
        old = None
    try:
        if old is not None:
            torch.set_float32_matmul_precision("highest")
        for scope in scopes:
            scope.fp32_precision = "ieee"
        yield
    finally:
        if old is not None:
            torch.set_float32_matmul_precision(old)
        for scope, precision in zip(scopes, new, strict=True):
            scope.fp32_precision = precision


def cpu_loop(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """The triple loop of `cpu_gemm.cpp` on one core. Raises BuildError where no C++ compiler is found."""
    c = _result(a, b, out, "cpu")
    a, b, whole = as_operand(a), as_operand(b), c.contiguous()
    _loop_function()(a.data_ptr(), b.data_ptr(), whole.data_ptr(), a.shape[0], b.shape[1], a.shape[1])
    return c if whole is c else c.copy_(whole)


def numpy_blas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """`np.matmul`: the BLAS that NumPy was built with, on all its threads."""
    c = _result(a, b, out, "cpu")
    np.matmul(*(x.detach().resolve_neg().numpy() for x in (a, b)), out=c.numpy())
    return c


def torch_blas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """`torch.mm` on the CPU, in IEEE fp32 (torch may be set to use bfloat16 there)."""
    c = _result(a, b, out, "cpu")
    with ieee_fp32():
        return torch.mm(a.detach(), b.detach(), out=c)


def cublas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """`torch.mm` on the GPU, which calls cuBLAS, in IEEE fp32 (torch may be set to use TF32 there)."""
    c = _result(a, b, out, "cuda")
    with ieee_fp32():
        return torch.mm(a.detach(), b.detach(), out=c)


@dataclass(frozen=True)
class Baseline:
    """A GEMM that is not a rung: what it is called, where it runs and what it shows."""

    name: str
    title: str
    idea: str  # one line
    function: Callable[..., torch.Tensor]  # fn(a, b, out=None)
    device: str  # "cpu" or "cuda"
    backend: str  # the `backend` column of the results


_TABLE = (
    Baseline("cpu_loop", "CPU loop", "three loops in C++ on one core", cpu_loop, "cpu", "cpu"),
    Baseline("numpy_blas", "NumPy BLAS", "the BLAS that NumPy was built with", numpy_blas, "cpu", "numpy"),
    Baseline("torch_blas", "torch BLAS", "the BLAS that torch uses on a CPU, in IEEE fp32", torch_blas, "cpu", "torch"),
    Baseline("cublas", "cuBLAS", "the vendor's GEMM through torch, in IEEE fp32 (no TF32)", cublas, "cuda", "cublas"),
)

BASELINES: Mapping[str, Baseline] = MappingProxyType({baseline.name: baseline for baseline in _TABLE})


def _result(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, device: str) -> torch.Tensor:
    """Check the operands and hand back the C to fill."""
    check_tensors(a, b)
    if a.device.type != device:
        raise ValueError(f"this baseline runs on {device} and the operands are on {a.device}: move both there")
    if a.dtype != torch.float32:
        raise ValueError(f"the baselines take torch.float32; the operands are {a.dtype}")
    problem = Problem(a.shape[0], b.shape[1], a.shape[1])
    if out is None:
        return torch.empty((problem.m, problem.n), dtype=a.dtype, device=a.device)
    check_out(out, a, b, problem)
    return out


@functools.cache
def _loop_function() -> Callable[..., None]:
    source = Path(__file__).with_name("cpu_gemm.cpp").read_text(encoding="utf-8")
    function = open_library(build_library("cpu_gemm", cpp=source, cflags=_CXX_FLAGS)).cpu_gemm
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3
    function.restype = None
    return function
