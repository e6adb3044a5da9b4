"""Inputs that tell arithmetics of fp32 apart: by their signs, by sums that cancel, and by how far exponents spread."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

import gemm_ref
from experiments.bench.verify import Inputs

_SEED = 0
_LEFT_OVER = 1e-3  # of a product, after the next one has cancelled it


def make_inputs(problem: gemm_ref.Problem, kind: str) -> Inputs:
    """The problem with seeded inputs of one of KINDS, or of gemm_ref's own kinds."""
    if kind not in KINDS:
        return Inputs.make(problem, kind)
    dice = np.random.default_rng(_SEED)
    a, b = (torch.from_numpy(x.astype(np.float32)) for x in KINDS[kind](dice, problem.a_shape, problem.b_shape))
    return Inputs(problem, kind, a, b, gemm_ref.Oracle(a, b))


_Shape = tuple[int, ...]
_Pair = tuple[np.ndarray, np.ndarray]


def _positive(dice: np.random.Generator, a: _Shape, b: _Shape) -> _Pair:
    """Uniform on [0, 1): no sum cancels."""
    return dice.random(a), dice.random(b)


def _cancelling(dice: np.random.Generator, a: _Shape, b: _Shape) -> _Pair:
    """Of each two products one after the other, all but about a thousandth of the larger one is gone at once."""
    x, y = dice.standard_normal(a), dice.standard_normal(b)
    pairs = a[1] // 2 * 2
    x[:, 1:pairs:2] = x[:, 0:pairs:2]
    y[1:pairs:2] = -y[0:pairs:2] * (1 + _LEFT_OVER * dice.standard_normal((pairs // 2, b[1])))
    return x, y


def _spread(phi: float) -> Callable[[np.random.Generator, _Shape, _Shape], _Pair]:
    """(u - 1/2) exp(phi z), u uniform on [0, 1) and z normal: what GEMMul8 is judged by (arXiv 2504.08009)."""

    def make(dice: np.random.Generator, a: _Shape, b: _Shape) -> _Pair:
        x, y = ((dice.random(shape) - 0.5) * np.exp(phi * dice.standard_normal(shape)) for shape in (a, b))
        return x, y

    return make


KINDS: Mapping[str, Callable[[np.random.Generator, _Shape, _Shape], _Pair]] = {
    "positive": _positive,
    "cancelling": _cancelling,
    **{f"phi = {phi}": _spread(phi) for phi in range(5)},
}
