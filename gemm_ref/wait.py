"""How long the reference GPU takes for a product, and the warning before one that takes long."""

from __future__ import annotations

import sys
import warnings

from gemm_ref.problem import Problem

WARN_AFTER_S = 10.0
# Multiply-adds in a second on one core of an AMD EPYC, the slowest rungs, from 384 cubed on. A tensor core's
# instruction is one matrix product of NumPy's, so those rungs are faster.
_PRODUCTS_PER_S = {"fp32": 1e8}
_TENSOR_CORE_PRODUCTS_PER_S = 4e8
_INSIDE = ("gemm_ref", "cuda_kernels", "triton_kernels", "torch")  # packages between a caller and the warning


def seconds_on_reference_gpu(problem: Problem) -> float:
    """About how long the reference GPU takes to compute `problem`, in seconds; right within a factor of three."""
    return problem.flops / 2 / _PRODUCTS_PER_S.get(problem.math, _TENSOR_CORE_PRODUCTS_PER_S)


def describe_seconds(seconds: float) -> str:
    """Returns a time in words: `40 s`, `11 minutes`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


def warn_if_long(problem: Problem) -> None:
    """Warn whoever called `gemm` that the reference GPU will take longer than WARN_AFTER_S, and what to do."""
    seconds = seconds_on_reference_gpu(problem)
    if seconds > WARN_AFTER_S:
        warnings.warn(
            f"{problem} in {problem.math} will take the reference GPU about {describe_seconds(seconds)}: it runs every "
            "thread of the kernel on the CPU. Pass GPU tensors to use a GPU, smaller ones to try a kernel, or use "
            "gemm_ref.gemm(a, b) for the product alone",
            RuntimeWarning,
            stacklevel=_frames_to_caller(),
        )


def _frames_to_caller() -> int:
    """How many frames above `warn_if_long`, itself counted, is the line that called `gemm`."""
    frame, count = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _INSIDE:
        frame, count = frame.f_back, count + 1
    return count
