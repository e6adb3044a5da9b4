"""The ladder in Triton, one file per rung, and in `gluon/` its twins with explicit layouts.

`gemm` runs a rung on a GPU, or on the reference GPU for tensors in CPU memory. Triton is imported when a kernel
is first called, so this package imports without it.
"""

from __future__ import annotations

import importlib
import types

import torch

from gemm_ref import Implementation
from gemm_ref.call import Launcher, Plan
from gemm_ref.call.torch_op import call, check_package, define_op
from gemm_ref.dialect import DIALECTS
from gemm_ref.epilogue import Extras
from gemm_ref.rung import DEFAULT_VARIANT


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    stage: str | None = None,
    dialect: str = "triton",
    variant: str = DEFAULT_VARIANT,
    math: str | None = None,
    out: torch.Tensor | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    c: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    on_range: str | None = None,
    batch_invariant: bool = False,
) -> torch.Tensor:
    """activation(alpha A @ B + beta c + bias) by the rung `stage`, as Triton or Gluon compiles it.

    Without a stage it is the last rung that takes such operands.

    a: (..., K), b: (K, N), of one dtype, out: (..., N) or None, all on one device; returns `out` or a new (..., N).
    `math` is by the dtype, but that tf32, which rounds fp32 operands, must be asked for. In fp8 C is bfloat16,
    multiplied by `scale_a` and `scale_b`, each an fp32 tensor of one element or None for 1. bias, activation, c, alpha,
    beta, on_range, batch_invariant, gradients and what torch.compile sees are those of `cuda_kernels.gemm`.

    CUDA tensors run on their GPU, in torch's current stream; CPU tensors on the reference GPU (`gemm_ref.ptx`), from
    the same PTX. Strided operands are copied first. Raises ValueError for anything that does not fit (`gemm_ref.call`),
    ModuleNotFoundError where Triton is not installed.
    """
    check_package(dialect, __name__)
    extras = Extras(scale_a, scale_b, bias, activation, c, alpha, beta)
    return call(a, b, out, prepare, stage, dialect, variant, math, extras, on_range, batch_invariant)


def kernel_module(implementation: Implementation) -> types.ModuleType:
    """The module that holds a rung in one of Triton's dialects, imported when it is first asked for.

    Raises ModuleNotFoundError saying what to install where Triton is missing or has no Gluon yet.
    """
    name = f"{DIALECTS[implementation.dialect].module}.{implementation.stage.id}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "triton":
            raise
        message = f"{implementation} needs Triton 3.6 or newer ({error}): pip install triton"
        raise ModuleNotFoundError(message, name=error.name) from error


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """The launcher for a plan and matrices like these: `gemm_ref.call.Prepare`."""
    return kernel_module(plan.implementation).prepare(plan, a, b, c)


define_op(__name__, "triton", prepare)
