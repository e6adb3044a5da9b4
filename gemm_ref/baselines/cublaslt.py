"""The fastest algorithm of cuBLASLt for a problem, found by trying: what cuBLAS' heuristic may have missed.

It comes through nvmath-python, an extra: `pip install 'nvmath-python[cu13]'`.
"""

from __future__ import annotations

from typing import Any

import torch

from gemm_ref.baselines import CANDIDATES
from gemm_ref.problem import Problem

_ITERATIONS = 3

_planned: dict[tuple, Any] = {}  # one plan, nvmath's: that of the last problem


def best_algorithm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, problem: Problem) -> None:
    """C = A @ B by the fastest of cuBLASLt's first CANDIDATES algorithms; they are tried when a problem is new.

    a (M, K), c (M, N) are row-major on the GPU, and b (K, N) is row-major or column-major. Raises ImportError where
    nvmath-python is missing.
    """
    if problem.flops == 0:
        c.zero_()  # cuBLASLt takes no empty operands
        return
    key = (problem, a.device)
    if key not in _planned:
        for plan in _planned.values():
            plan.free()
        _planned.clear()
        _planned[key] = _plan(a, b, c, problem.math)
    plan = _planned[key]
    plan.reset_operands_unchecked(a=a, b=b, c=c)
    plan.execute()


def _plan(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, math: str) -> Any:
    from nvmath.linalg import advanced

    compute = advanced.MatmulComputeType
    kinds = {"fp32": compute.COMPUTE_32F, "tf32": compute.COMPUTE_32F_FAST_TF32}
    options = {"compute_type": kinds.get(math, compute.COMPUTE_32F), "inplace": True}
    plan = advanced.Matmul(a, b, c, alpha=1.0, beta=0.0, options=options)
    plan.plan(preferences=advanced.MatmulPlanPreferences(limit=CANDIDATES))
    plan.autotune(iterations=_ITERATIONS)
    return plan
