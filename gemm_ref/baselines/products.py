"""The products of the baselines.

All are called like the kernels, `fn(a, b, out=None)`, with a (M, K) and b (K, N) on the baseline's device; they return
C (M, N), which is `out` if that is passed. Any strides are accepted, and sizes may be 0. They raise ValueError for
operands that do not fit, with the messages of the kernels' validation.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from gemm_ref.baselines import BASELINES, CANDIDATES, cutlass
from gemm_ref.build import build_library, open_library
from gemm_ref.call.validate import check_out, check_tensors
from gemm_ref.compute import B_LAYOUTS, MATHS
from gemm_ref.launch import round_up
from gemm_ref.operands import as_layout, as_operand, as_operand_b, layout_of, lies_in
from gemm_ref.problem import Problem

# Strict IEEE: without -ffast-math the compiler keeps the order of the additions in the source.
_CXX_FLAGS = ("-O3",)
_FP8_VECTOR = 16  # cuBLAS requires N and K to be multiples of it
_TIMED_CALLS = 3  # of each algorithm of cuBLASLt
_cached_plan: dict[tuple, Any] = {}  # nvmath's plan of the last problem, by problem and device
# torch may let cuBLAS add partial sums of 16-bit products in 16 bits.
_REDUCED = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")


@contextmanager
def fp32_products(precision: str = "ieee") -> Iterator[None]:
    """Inside the block torch computes fp32 matrix products in "ieee" fp32, or in "tf32", whatever the process allows.

    Products of 16-bit operands are summed in fp32. The settings are process-wide, and restored at the end, also after
    an exception. torch has an old and a new interface to the precision, and raises an error if they disagree; so both
    are set while both are usable, and only the new one in a program that has already used it.
    """
    scopes = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    reduced = {name: getattr(torch.backends.cuda.matmul, name) for name in _REDUCED}
    new = [scope.fp32_precision for scope in scopes]
    try:
        old = torch.get_float32_matmul_precision()
    except RuntimeError:  # the new interface was used before, so the old one can no longer be read
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
    """The triple loop of `cpu_gemm.cpp` on one core. Raises BuildError if there is no C++ compiler."""
    c = _check_operands(a, b, out, "cpu")
    a, b, dense_c = as_operand(a), as_operand(b), c.contiguous()
    _loop_function()(a.data_ptr(), b.data_ptr(), dense_c.data_ptr(), a.shape[0], b.shape[1], a.shape[1])
    return c if dense_c is c else c.copy_(dense_c)


def numpy_blas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """`np.matmul`: the BLAS that NumPy was built with, on all its threads."""
    c = _check_operands(a, b, out, "cpu")
    left, right = (x.detach().resolve_neg().numpy() for x in (a, b))
    np.matmul(left, right, out=c.numpy())
    return c


def torch_blas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """`torch.mm` on the CPU, in IEEE fp32 (torch may be set to use bfloat16 there)."""
    c = _check_operands(a, b, out, "cpu")
    with fp32_products("ieee"):
        return torch.mm(a.detach(), b.detach(), out=c)


def cublas(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, math: str = "fp32") -> torch.Tensor:
    """`torch.mm` on the GPU, which calls cuBLAS, in one compute type whatever torch is set to; fp32 is IEEE, not TF32.

    fp8 is `torch._scaled_mm` with sums kept in the tensor cores, as in the rungs ("fast accumulation"). cuBLAS supports
    it only for B as N x K and sizes that are multiples of 16: other operands are copied first, in the measured time.
    """
    c = _check_operands(a, b, out, "cuda", math)
    if MATHS[math].has_scales:
        return _cublas_fp8(a.detach(), b.detach(), c)
    with fp32_products("tf32" if math == "tf32" else "ieee"):
        return torch.mm(a.detach(), b.detach(), out=c)


def cublas_sgemm(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, math: str = "fp32"
) -> torch.Tensor:
    """`cublas` in fp32, in place of a compute type `math` that takes fp32 and gives fp32."""
    return cublas(a, b, _check_operands(a, b, out, "cuda", math))


def _cublas_fp8(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    if not (m and n and k):
        return c.zero_()
    scale = _unit_scale(a.device)
    padded = [round_up(size, _FP8_VECTOR) for size in (n, k)]
    if padded != [n, k]:
        padded_a, padded_b = a.new_zeros((m, padded[1])), b.new_zeros(padded)
        padded_a[:, :k], padded_b[:n, :k] = a, b.t()
        a, b = padded_a, padded_b.t()
    fast = {"scale_a": scale, "scale_b": scale, "out_dtype": c.dtype, "use_fast_accum": True}
    if padded[0] == n and c.is_contiguous():
        return torch._scaled_mm(as_operand(a), as_layout(b, "nk"), out=c, **fast)
    return c.copy_(torch._scaled_mm(as_operand(a), as_layout(b, "nk"), **fast)[:, :n])


@functools.cache
def _unit_scale(device: torch.device) -> torch.Tensor:
    return torch.ones((), device=device)


def cublaslt_best(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, math: str = "fp32"
) -> torch.Tensor:
    """cuBLASLt by the fastest of its first CANDIDATES algorithms, which are timed when a problem is new.

    nvmath-python gives access to them. Raises ImportError if it is missing.
    """
    c = _check_operands(a, b, out, "cuda", math)
    layout = layout_of(b, B_LAYOUTS)
    problem = Problem(a.shape[0], b.shape[1], a.shape[1], math, layout)
    if not problem.flops:
        return c.zero_()  # cuBLASLt takes no empty operands
    a, b, dense_c = as_operand(a), as_operand_b(b, layout), c.contiguous()
    key = problem, a.device
    if key not in _cached_plan:
        for plan in _cached_plan.values():
            plan.free()
        _cached_plan.clear()
        _cached_plan[key] = _plan_cublaslt(a, b, dense_c, math)
    plan = _cached_plan[key]
    plan.reset_operands_unchecked(a=a, b=b, c=dense_c)
    plan.execute()
    return c if dense_c is c else c.copy_(dense_c)


def _plan_cublaslt(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, math: str) -> Any:
    from nvmath.linalg import advanced

    compute = advanced.MatmulComputeType
    kind = compute.COMPUTE_32F_FAST_TF32 if math == "tf32" else compute.COMPUTE_32F
    plan = advanced.Matmul(a, b, c, alpha=1.0, beta=0.0, options={"compute_type": kind, "inplace": True})
    plan.plan(preferences=advanced.MatmulPlanPreferences(limit=CANDIDATES))
    plan.autotune(iterations=_TIMED_CALLS)
    return plan


def cutlass_simt(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """CUTLASS's SGEMM on the CUDA cores; see `gemm_ref.baselines.cutlass`."""
    return _multiply_by_cutlass("cutlass_simt", a, b, out, "fp32")


def cutlass_hopper(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None, *, math: str = "bf16"
) -> torch.Tensor:
    """CUTLASS's warp-specialised GEMM of compute capability 9.0; see `gemm_ref.baselines.cutlass`."""
    return _multiply_by_cutlass("cutlass_hopper", a, b, out, math)


def _multiply_by_cutlass(
    name: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, math: str
) -> torch.Tensor:
    baseline = BASELINES[name]
    if math not in baseline.maths:
        raise ValueError(f"{name} does not compute in {math}: it has {', '.join(baseline.maths)}")
    c = _check_operands(a, b, out, "cuda", math)
    if reason := baseline.refusal(torch.cuda.get_device_capability(a.device)):
        raise ValueError(reason)
    layout = next((layout for layout in B_LAYOUTS if lies_in(b, layout)), B_LAYOUTS[0])
    cutlass.multiply(cutlass.KERNELS[math][layout], a.detach(), b.detach(), c)
    return c


def build_baseline(name: str, math: str, capability: tuple[int, int]) -> None:
    """Compile what a baseline calls in one compute type, for a GPU of this compute capability, before it is called."""
    if BASELINES[name].backend == "cutlass":
        for kernel in set(cutlass.KERNELS[math].values()):
            cutlass.build_kernel(kernel, capability)


def _check_operands(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, device: str, math: str = "fp32"
) -> torch.Tensor:
    """Raise ValueError for operands that do not fit; else return the C to fill, which is `out` if that is passed."""
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


# The baselines by name: fn(a, b, out=None), which takes `math` too if a baseline has several compute types.
FUNCTIONS: Mapping[str, Callable[..., torch.Tensor]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            cpu_loop, numpy_blas, torch_blas, cublas, cublas_sgemm, cublaslt_best, cutlass_simt, cutlass_hopper,
        )
    }
)  # fmt: skip
