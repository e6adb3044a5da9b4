"""The third step of a call: operands and extras, copied to where and how the plan says that the kernel reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from gemm_ref.call import Plan
from gemm_ref.compute import B_LAYOUTS
from gemm_ref.epilogue import Extras
from gemm_ref.operands import align_pairs, as_operand, padded, padded_to_lines, resolve_views
from gemm_ref.operands.copy_layout import copy_all
from gemm_ref.operands.split import Operand, Split, check_range, split_operands

# How an operand is copied: the new tensor, whose rows are those of A, or of B as it is stored. RESOLVE alone copies
# nothing that torch does not: it takes the operand out of autograd, and carries a lazy negation out.
RESOLVE, DENSE, PADDED, LINES = "resolve", "dense", "padded", "lines"
COPIES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {DENSE: lambda x: x.new_empty(x.shape), PADDED: padded, LINES: padded_to_lines}
)


def matrix_of(x: Any, side: str, math: str | None) -> Any:
    """The matrix that an operand stands for: of a Split its own, and else the operand itself.

    Raises ValueError for a Split of another compute type, or of the other side.
    """
    if not isinstance(x, Split):
        return x
    if x.math != math:
        raise ValueError(f"{side} is in parts for {x.math}: pass math={x.math!r}, or the operand itself")
    if x.side not in ("", side):
        raise ValueError(
            f"{side} was split as {x.side}, whose lines are others: pass split_operand(x, {side!r}, math={math!r})"
        )
    return x.matrix.t() if side == "b" and x.by_rows else x.matrix


def split_layout(x: Any) -> str:
    """The layout of an operand that is in parts already, which cannot be changed; empty for any other."""
    return B_LAYOUTS[x.by_rows] if isinstance(x, Split) else ""


def transpose_call(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, extras: Extras
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, Extras]:
    """The operands of C^T = B^T @ A^T: views, without a copy."""
    return b.t(), a.t(), None if out is None else out.t(), extras.transpose()


def copy_operands(plan: Plan, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """A and B as the kernel reads them; what is copied is copied in one launch."""
    by_rows = plan.problem.b_layout == "kn"
    if plan.split:
        a, b = split_operands(a, b, plan.problem.b_layout, plan.problem.math)
        check_range(plan.implementation.stage.id, a, b, plan.raise_on_range)
        return a, b
    assert isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    operands, pairs = [], []
    for x, copy in ((resolve_views(a), plan.copy_a), (resolve_views(b if by_rows else b.t()), plan.copy_b)):
        if copy in COPIES:
            pairs.append((x, COPIES[copy](x)))
            x = pairs[-1][1]
        operands.append(x)
    copy_all(*pairs)
    return operands[0], operands[1] if by_rows else operands[1].t()


def align_extras(extras: Extras) -> Extras:
    """The extras with bias, as (1, N), and c as kernels read them."""
    bias, c = extras.bias, extras.c if extras.beta else None
    rows = [None if x is None else align_pairs(as_operand(x)) for x in (bias if bias is None else bias[None], c)]
    return extras._replace(bias=rows[0], c=rows[1])
