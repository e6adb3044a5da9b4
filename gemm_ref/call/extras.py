"""The validation of what a call gives beside A and B (`gemm_ref.epilogue.Extras`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

import torch

from gemm_ref.compute import MATHS
from gemm_ref.epilogue import ACTIVATIONS, Extras
from gemm_ref.operands import check_grad
from gemm_ref.problem import Problem
from gemm_ref.rung import unknown


def settled(extras: Extras) -> Extras:
    """The same with alpha and beta as floats. Raises ValueError unless they are numbers, and for a beta without a c."""
    alpha, beta, c = extras.alpha, extras.beta, extras.c
    if beta is None:
        beta = 0.0 if c is None else 1.0
    if type(alpha) is not float or type(beta) is not float:
        for name, value in (("alpha", alpha), ("beta", beta)):
            if isinstance(value, torch.Tensor | str) or not isinstance(value, SupportsFloat):
                hint = f": pass {name}.item()" if isinstance(value, torch.Tensor) else ""
                raise ValueError(f"{name} must be a number, not {type(value).__name__}{hint}")
        alpha, beta = float(alpha), float(beta)
    if c is None and beta != 0.0:
        raise ValueError(f"beta is {beta} and there is nothing to multiply by it: pass c, of C's shape and dtype")
    return extras if (alpha, beta) == extras[-2:] else extras._replace(alpha=alpha, beta=beta)


def check_extras(extras: Extras, a: torch.Tensor, problem: Problem) -> None:
    """Raise ValueError unless all of it fits a product of these sizes, with a's device."""
    for name, scale in (("scale_a", extras.scale_a), ("scale_b", extras.scale_b)):
        if scale is not None:
            _check_scale(name, scale, a, problem.math)
    if extras.activation is not None and extras.activation not in ACTIVATIONS:
        raise ValueError(unknown("activation", extras.activation, ACTIVATIONS))
    dtype = MATHS[problem.math].out_dtype
    if extras.bias is not None:
        _check_added("bias", extras.bias, a, (problem.n,), "a number for each column of C")
        if extras.bias.dtype not in (dtype, torch.float32):
            allowed = " or ".join(map(str, dict.fromkeys((dtype, torch.float32))))
            raise ValueError(f"bias must be {allowed}; it is {extras.bias.dtype}")
    if extras.c is not None:
        _check_added("c", extras.c, a, (problem.m, problem.n), "as the result")
        if extras.c.dtype != dtype:
            raise ValueError(f"c must be {dtype}, as the result; it is {extras.c.dtype}")


def _check_added(name: str, x: torch.Tensor, a: torch.Tensor, shape: Sequence[int], what: str) -> None:
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{name} must be a torch.Tensor, not {type(x).__name__}")
    if x.layout != torch.strided:
        raise ValueError(f"{name} must be dense; its layout is {x.layout}: pass {name}.to_dense()")
    if tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, {what}; it has {tuple(x.shape)}")
    if x.device != a.device:
        raise ValueError(f"{name} is on {x.device} and a on {a.device}: move it there")
    check_grad(name, x)


def _check_scale(name: str, scale: torch.Tensor, a: torch.Tensor, math: str) -> None:
    if math != "fp8":
        raise ValueError(f"{name} is for fp8, whose range is small; in {math}, multiply the result")
    if not isinstance(scale, torch.Tensor) or scale.dtype != torch.float32 or scale.numel() != 1:
        raise ValueError(f"{name} must be a torch.float32 tensor of one element, as torch.tensor(0.5, device=a.device)")
    if scale.is_neg():
        raise ValueError(f"{name} has torch's negative bit set, which kernels do not read: pass {name}.resolve_neg()")
    if scale.device != a.device:
        raise ValueError(f"{name} is on {scale.device} and a on {a.device}: move it there")
