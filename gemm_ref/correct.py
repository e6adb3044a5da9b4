"""What 'correct' means: an elementwise bound against the float64 oracle, poisoned outputs, guard bands.

Every kernel of the repo passes through `checked_run`; `check` is the comparison alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import frexp

import torch

from gemm_ref.call.validate import check_shapes
from gemm_ref.compute import ELEMENTS, MATHS
from gemm_ref.config import Config
from gemm_ref.epilogue import EXACT, Extras, activate, apply, terms
from gemm_ref.reference import LikelySums, Oracle, sums_exactly

GUARD = 4096  # elements before and after C that no kernel may touch
# A NaN with this payload marks an element that was never written: arithmetic returns the canonical NaN instead.
_INTEGER_VIEW = {element.dtype: element.integer_dtype for element in ELEMENTS.values()}
_NO_EXTRAS = Extras()
POISON_BITS = {torch.int32: 0x7FC0DEAD, torch.int16: 0x7FDE}


class WrongResult(AssertionError):
    """A result is not the product: the message says how many elements are wrong, where, and by how much."""


@dataclass(frozen=True)
class Accuracy:
    """The distance of a correct result from the oracle."""

    rel_error: float  # ||C - oracle||_F / ||oracle||_F
    bound_share: float  # the largest |error| / allowed error of any element; at most 1


def check(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    math: str = "fp32",
    exact: bool = False,
    config: Config | None = None,
    oracle: Oracle | None = None,
    extras: Extras = _NO_EXTRAS,
    parts: Sequence[slice] = (),
) -> Accuracy:
    """Raises WrongResult unless c (M, N) is a (M, K) @ b (K, N) with the epilogue `extras`; returns its accuracy.

    The error of an element is bounded by `gemm_ref.compute.ComputeType`, in fp32 by K * eps * (|A| @ |B|): twice the
    worst case of IEEE arithmetic in any order of summation (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
    ed., section 3.5), so no sound kernel is rejected. That bound grows with K and then admits lower precision and a few
    lost products. Three others do not. Without a c and a bias, integers whose sums need no rounding may differ by the
    rounding to C's type alone, and sums of products of either sign by `reference.LikelySums`, at about sqrt(K) in
    place of K. `exact=True`, for inputs with `ComputeType.is_exact`, requires the oracle's bits. NaN and Inf fail where
    the oracle has none. `config` adds the tile to the message; `oracle` reuses one that was computed before.
    `parts` are slices of K whose sums, and sums of some of them, are rounded to C's type before they are added.
    Raises ValueError for a c that is no tensor, for operands that are no matrices, for an unknown compute type, and for
    `exact` with an activation that rounds.
    """
    if math not in MATHS:
        raise ValueError(f"unknown math mode {math!r}: there are {', '.join(MATHS)}")
    if not isinstance(c, torch.Tensor):
        raise ValueError(f"c must be a torch.Tensor, the product to check, not {type(c).__name__}")
    oracle = oracle or Oracle(a, b)
    if c.dtype != MATHS[math].out_dtype:
        raise WrongResult(f"C is {c.dtype}; in {math} it is {MATHS[math].out_dtype}")
    if tuple(c.shape) != oracle.shape:
        raise WrongResult(f"C has shape {tuple(c.shape)}; {oracle.shape} is the product's")
    mode, want = MATHS[math], oracle.on(c.device, "product")
    if exact:
        if extras.activation not in EXACT:
            raise ValueError(f"{extras.activation} rounds, so no result is exact")
        want = apply(want, extras)
        allowed = torch.zeros_like(want)
        want = want.to(c.dtype).double()
    else:
        product, scale, rounded = want, oracle.on(c.device, "scale"), underflow(oracle.k, c.dtype)
        if mode.result_eps and parts:
            sums = [Oracle(a[:, part], b[part]).on(c.device, "product").abs() for part in parts]
            rounded = rounded + (len(parts) - 1) * mode.result_eps * sum(sums, torch.zeros_like(want))
        is_product = extras.c is None and extras.bias is None
        has_exact_sums = is_product and frexp(_factor(extras))[0] == 0.5 and sums_exactly(a, b, mode, scale)

        def finish(lost: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            """C and its allowed error from what the sums may lose. Exact ones are rounded to a neighbour of theirs."""
            want, allowed = _finished(product, lost, extras)
            result = _below_ulp(want, mode.result_eps) if has_exact_sums else mode.result_eps * want.abs()
            return want, allowed + (result + rounded)

        want, allowed = finish(scale * (0.0 if has_exact_sums else 2 * mode.operand_eps + oracle.k * mode.sum_eps))
    got = c.double()
    error = (got - want).abs_()
    overflow = want.to(c.dtype).isinf()  # the true product is past the dtype's range: the same infinity is right
    same = (got == want) | (got.isnan() & want.isnan()) | (overflow & (got == want.to(c.dtype).double()))
    right = same | (error <= allowed)
    if not bool(right.all()):
        raise WrongResult(_describe(c, want, error, allowed, ~right, config))
    if not exact and is_product and not has_exact_sums:
        likely = LikelySums(oracle, mode, c.device)
        if likely.applies:
            allowed_likely = finish(likely.allowed())[1]
            unlikely = ~same & (error > allowed_likely)
            if bool(unlikely.any()) and likely.holds_at(a, b, error.div(allowed_likely).mul(unlikely)):
                text = _describe(c, want, error, allowed_likely, unlikely, config)
                raise WrongResult(f"{text}; rounding alone loses this much in no sum of products of either sign")
    norm = want.norm()
    error.masked_fill_(same, 0.0)
    share = (error / allowed).nan_to_num_(nan=0.0).max().item() if error.numel() else 0.0
    return Accuracy(rel_error=(error.norm() / norm).item() if norm > 0 else 0.0, bound_share=share)


def checked_run(
    fn: Callable[..., torch.Tensor],
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    math: str = "fp32",
    exact: bool = False,
    config: Config | None = None,
    oracle: Oracle | None = None,
    extras: Extras = _NO_EXTRAS,
) -> Accuracy:
    """Runs `fn(a, b, out=c)` on a C (M, N) full of NaN between guard bands, checks it and returns its accuracy.

    `fn` receives the extras that are set as keyword arguments, and must return `out`.

    Raises WrongResult if C is wrong (`check`), if an element was never written, if memory around C changed, or if an
    input changed, and ValueError for operands that are no matrices of a type that kernels take.
    """
    check_shapes(a, b)
    m, n = a.shape[0], b.shape[1]
    if math not in MATHS:
        raise ValueError(f"unknown math mode {math!r}: there are {', '.join(MATHS)}")
    for name, x in (("a", a), ("b", b)):
        if x.dtype not in _INTEGER_VIEW:
            raise ValueError(f"{name} is {x.dtype}, which no kernel takes: in {math} it is {MATHS[math].dtype}")
    dtype = MATHS[math].out_dtype
    ints = _INTEGER_VIEW[dtype]
    poison = POISON_BITS[ints]
    arena = torch.full((m * n + 2 * GUARD,), poison, dtype=ints, device=a.device)
    c = arena[GUARD : GUARD + m * n].view(dtype).view(m, n)
    inputs = {"a": a, "b": b, "bias": extras.bias, "c": extras.c}
    inputs = {name: x for name, x in inputs.items() if x is not None}
    before = [x.clone() for x in inputs.values()]
    returned = fn(a, b, out=c, **extras.specified)
    if returned is not c:
        raise WrongResult("the kernel did not hand back the `out` it was given")
    for (name, now), then in zip(inputs.items(), before, strict=True):
        bits = _INTEGER_VIEW[now.dtype]
        if not torch.equal(now.view(bits), then.view(bits)):
            raise WrongResult(f"the kernel changed its input {name}")
    for name, band, first in (("before", arena[:GUARD], -GUARD), ("after", arena[GUARD + m * n :], m * n)):
        touched = (band != poison).nonzero()
        if len(touched):
            offset = first + int(touched[0])
            raise WrongResult(f"{len(touched)} elements {name} C were written, the first at C's element {offset}")
    return check(c, a, b, math=math, exact=exact, config=config, oracle=oracle, extras=extras)


# The error of an activation in fp32 relative to its argument, and the maximum of its derivative.
_ACTIVATION_EPS, _STEEPEST = {"gelu": 2.0**-18, "gelu_tanh": 2.0**-18, "silu": 2.0**-18}, 1.13


def _finished(product: torch.Tensor, allowed: torch.Tensor, extras: Extras) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the product and its allowed error after the epilogue, whose terms are added in fp32 in any order."""
    if not extras.specified:
        return product, allowed
    added = terms(product, extras)
    before = sum(added, torch.zeros_like(product))
    allowed = allowed * _factor(extras) + 4 * torch.finfo(torch.float32).eps * sum(x.abs() for x in added)
    if extras.activation is not None:
        allowed = _STEEPEST * allowed + _ACTIVATION_EPS.get(extras.activation, 0.0) * before.abs()
    return activate(before, extras.activation), allowed


def _below_ulp(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Returns a little less than the distance of x's neighbours in the type of this eps."""
    return torch.ldexp(torch.full_like(x, 0.49 * eps), torch.frexp(x).exponent)


def _factor(extras: Extras) -> float:
    """Returns by how much, in magnitude, the product is multiplied."""
    return abs(float(terms(torch.ones((), dtype=torch.float64), Extras(*extras[:2], alpha=extras.alpha))[0]))


def underflow(k: int, out_dtype: torch.dtype) -> float:
    """Returns what an element of C may lose to underflow, in each of its K products and when C is rounded."""
    return k * _subnormal(torch.float32) + _subnormal(out_dtype)


def _subnormal(dtype: torch.dtype) -> float:
    """Returns the distance between neighbouring numbers near zero."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def _describe(
    c: torch.Tensor,
    want: torch.Tensor,
    error: torch.Tensor,
    allowed: torch.Tensor,
    wrong: torch.Tensor,
    config: Config | None,
) -> str:
    """Returns the message of a failure: the number of wrong elements, the worst, its tile, and their rectangle."""
    places = wrong.nonzero()
    score = torch.where(error.isfinite(), error / allowed.clamp_min(1e-300), torch.inf).masked_fill_(~wrong, -1.0)
    row, col = divmod(int(score.argmax()), c.shape[1])
    ints = _INTEGER_VIEW[c.dtype]
    poison = c.contiguous().view(ints) == POISON_BITS[ints]
    lines = [
        f"{len(places)} of {c.numel()} elements of C are wrong",
        f"worst at C[{row}, {col}]: got {c[row, col].item():.9g}, want {want[row, col].item():.9g}, "
        f"error {error[row, col].item():.3g}, allowed {allowed[row, col].item():.3g}",
    ]
    if config is not None:
        tile = f"tile ({row // config.BLOCK_M}, {col // config.BLOCK_N}) of {config.BLOCK_M} x {config.BLOCK_N}"
        lines.append(f"in {tile}, at ({row % config.BLOCK_M}, {col % config.BLOCK_N}) of it")
    (top, left), (bottom, right) = places.amin(0).tolist(), places.amax(0).tolist()
    lines.append(f"all are in rows {top}..{bottom} and columns {left}..{right} of {c.shape[0]} x {c.shape[1]}")
    unwritten = int((poison & wrong).sum())
    if unwritten:
        lines.append(f"{unwritten} of them were never written")
    return "; ".join(lines)
