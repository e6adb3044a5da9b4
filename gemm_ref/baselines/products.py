"""The products of the baselines.

All are called as the kernels are, `fn(a, b, out=None)`, with fp32 operands a (M, K) and b (K, N) on the
baseline's device; they return C (M, N), which is `out` where one is given. Strides are free and sizes may be 0.
They raise ValueError for operands that do not fit, in the words of the kernels' own validation.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from gemm_ref.baselines import BASELINES, cutlass
from gemm_ref.baselines.cublaslt import best_algorithm
from gemm_ref.build import build_library, open_library
from gemm_ref.call.validate import check_out, check_tensors
from gemm_ref.compute import B_LAYOUTS, MATHS
from gemm_ref.launch import cdiv
from gemm_ref.operands import as_layout, as_operand, as_operand_b, layout_of, lies_in
from gemm_ref.problem import Problem

# Strict IEEE: without -ffast-math the compiler keeps the order of the sum, as the source has it.
_CXX_FLAGS = ("-O3",)
_FP8_VECTOR = 16  # what cuBLAS wants N and K to be multiples of
# torch may let cuBLAS add partial sums of 16-bit products in 16 bits.
_REDUCED = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")


@contextmanager
def fp32_products(precision: str = "ieee") -> Iterator[None]:
    """fp32 matrix products are computed in "ieee" fp32, or in "tf32", inside the block, whatever the process allows.

    Products of 16-bit operands are summed in fp32. The settings are torch's, process-wide, and put back as they were,
    also after an exception. torch has an old and a new interface to the first, and refuses to work where they
    disagree; so both are set while both are usable, and the new one alone for a program that has already moved to it.
    """
    scopes = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    reduced = {name: getattr(torch.backends.cuda.matmul, name) for name in _REDUCED}
    new = [scope.fp32_precision for scope in scopes]
    try:
        old = torch.get_float32_matmul_precision()
    except RuntimeError:  # the new interface was used before, and the old one may not be read any more
        old = None
    try:
        if old is not None:
            torch.set_float32_matmul_precision({"ieee": "highest", "tf32": "high"}[precision])
        for scope in scopes:
            scope.fp32_precision = precision
        for name in reduced:
            setattr(torch.backends.cuda.matmul, name, False)
        yield
    finally:
        if old is not None:
            torch.set_float32_matmul_precision(old)
        for scope, precision in zip(scopes, new, strict=True):
            scope.fp32_precision = precision
        for name, allowed in reduced.items():
            setattr(torch.backends.cuda.matmul, name, allowed)


def cpu_loop(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """The triple loop of `cpu_gemm.cpp` on one core. Raises BuildError where no C++ compiler is found."""
    c = _result(a, b, out, "cpu")
    a, b, whole = as_operand(a), as_operand(b), c.contiguous()
    _loop_function()(a.data_ptr(), b.data_ptr(), whole.data_ptr(), a.shape[0], b.shape[1], a.shape[1])
    return c if whole is c else c.copy_(whole)


def numpy_blas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """`np.matmul`: the BLAS that NumPy was built with, on all its threads."""
    c = _result(a, b, out, "cpu")
    left, right = (x.detach().resolve_neg().numpy() for x in (a, b))
    np.matmul(left, right, out=c.numpy())
    return c


def torch_blas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """`torch.mm` on the CPU, in IEEE fp32 (torch may be set to use bfloat16 there)."""
    c = _result(a, b, out, "cpu")
    with fp32_products("ieee"):
        return torch.mm(a.detach(), b.detach(), out=c)


def cublas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, math: str = "fp32") -> torch.Tensor:
    """`torch.mm` on the GPU, which calls cuBLAS, in one math mode whatever torch is set to; fp32 is IEEE, not TF32.

    fp8 is `torch._scaled_mm` with sums kept in the tensor cores, as the rungs do ("fast accumulation"). cuBLAS has it
    for B as N x K and whole vectors of 16 alone: other operands are copied first, in the time that is measured.
    """
    c = _result(a, b, out, "cuda", math)
    if math == "fp8":
        return _cublas_fp8(a.detach(), b.detach(), c)
    with fp32_products("tf32" if math == "tf32" else "ieee"):
        return torch.mm(a.detach(), b.detach(), out=c)


def cublas_sgemm(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, math: str = "fp32"
) -> torch.Tensor:
    """`cublas` in fp32, whichever of the modes `math` stands for that take fp32 and give fp32."""
    return cublas(a, b, _result(a, b, out, "cuda", math))


def _cublas_fp8(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    if not (m and n and k):
        return c.zero_()
    one = _one(a.device)
    whole = [cdiv(size, _FP8_VECTOR) * _FP8_VECTOR for size in (n, k)]
    if whole != [n, k]:
        wide_a, wide_b = a.new_zeros((m, whole[1])), b.new_zeros(whole)
        wide_a[:, :k], wide_b[:n, :k] = a, b.t()
        a, b = wide_a, wide_b.t()
    fast = {"scale_a": one, "scale_b": one, "out_dtype": c.dtype, "use_fast_accum": True}
    if whole[0] == n and c.is_contiguous():
        return torch._scaled_mm(as_operand(a), as_layout(b, "nk"), out=c, **fast)
    return c.copy_(torch._scaled_mm(as_operand(a), as_layout(b, "nk"), **fast)[:, :n])


@functools.cache
def _one(device: torch.device) -> torch.Tensor:
    return torch.ones((), device=device)


def cublaslt_best(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, math: str = "fp32"
) -> torch.Tensor:
    """cuBLASLt by the fastest of its algorithms, not the one its heuristic puts first (`cublaslt`)."""
    c = _result(a, b, out, "cuda", math)
    whole = c.contiguous()
    layout = layout_of(b, B_LAYOUTS)
    b = as_operand_b(b, layout)
    best_algorithm(as_operand(a), b, whole, Problem(a.shape[0], b.shape[1], a.shape[1], math, layout))
    return c if whole is c else c.copy_(whole)


def cutlass_simt(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """CUTLASS's SGEMM on the CUDA cores; see `gemm_ref.baselines.cutlass`."""
    return _cutlass("cutlass_simt", cutlass.SIMT, a, b, out, "fp32")


def cutlass_hopper(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, math: str = "bf16"
) -> torch.Tensor:
    """CUTLASS's warp-specialised GEMM of compute capability 9.0; see `gemm_ref.baselines.cutlass`."""
    if math not in cutlass.HOPPER:
        raise ValueError(f"cutlass_hopper does not compute in {math}: it has {', '.join(cutlass.HOPPER)}")
    layout = next((layout for layout in B_LAYOUTS if lies_in(b, layout)), B_LAYOUTS[0])
    return _cutlass("cutlass_hopper", cutlass.HOPPER[math][layout], a, b, out, math)


def _build_hopper(math: str, capability: tuple[int, int]) -> None:
    for kernel in set(cutlass.HOPPER[math].values()):
        cutlass.library(kernel, capability)


def _cutlass(
    name: str, kernel: cutlass.Kernel, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, math: str
) -> torch.Tensor:
    c = _result(a, b, out, "cuda", math)
    if reason := BASELINES[name].refusal(torch.cuda.get_device_capability(a.device)):
        raise ValueError(reason)
    cutlass.multiply(kernel, a.detach(), b.detach(), c)
    return c


def _result(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, device: str, math: str = "fp32"
) -> torch.Tensor:
    """Check the operands and hand back the C to fill."""
    check_tensors(a, b)
    if a.device.type != device:
        raise ValueError(f"this baseline runs on {device} and the operands are on {a.device}: move both there")
    if math not in MATHS:
        raise ValueError(f"unknown math mode {math!r}: there are {', '.join(MATHS)}")
    if a.dtype != MATHS[math].dtype:
        raise ValueError(f"in {math} this baseline takes {MATHS[math].dtype}; the operands are {a.dtype}")
    problem = Problem(a.shape[0], b.shape[1], a.shape[1], math)
    if out is None:
        return torch.empty((problem.m, problem.n), dtype=MATHS[math].out_dtype, device=a.device)
    check_out(out, a, b, problem)
    return out


@functools.cache
def _loop_function() -> Callable[..., None]:
    source = Path(__file__).with_name("cpu_gemm.cpp").read_text(encoding="utf-8")
    function = open_library(build_library("cpu_gemm", cpp=source, cflags=_CXX_FLAGS)).cpu_gemm
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3
    function.restype = None
    return function


# What `gemm_ref.baselines` lists: by name, fn(a, b, out=None), which takes `math` too where a baseline has several.
FUNCTIONS: Mapping[str, Callable[..., torch.Tensor]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            cpu_loop, numpy_blas, torch_blas, cublas, cublas_sgemm, cublaslt_best, cutlass_simt, cutlass_hopper,
        )
    }
)  # fmt: skip
# What compiles, before it is called, what a baseline will call: (math, capability).
BUILDS: Mapping[str, Callable[[str, tuple[int, int]], object]] = MappingProxyType(
    {
        "cutlass_simt": lambda math, capability: cutlass.library(cutlass.SIMT, capability),
        "cutlass_hopper": _build_hopper,
    }
)
