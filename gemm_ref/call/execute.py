"""The last step of a call, and its entry: every backend's `gemm` is `run`, which validates, chooses and executes."""

from __future__ import annotations

import functools
from typing import Any

import torch

from gemm_ref.call import Launcher, Plan, Prepare
from gemm_ref.call.choose import choose
from gemm_ref.call.layout import align_extras, copy_operands, matrix_of, split_layout, transpose_call
from gemm_ref.call.validate import check_overlap, resolve_scalars, validate
from gemm_ref.epilogue import Extras, apply
from gemm_ref.operands import TMA_BYTES, padded
from gemm_ref.operands.split import note_product
from gemm_ref.wait import warn_if_long

MOST_PLANS = 1024  # that are cached; the least recently used one goes first
_PLAIN = (torch.Tensor, torch.nn.Parameter)  # of another subclass, `_describe` may not see everything


def run(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None,
    prepare: Prepare,
    stage: str | None,
    dialect: str,
    variant: str,
    math: str | None,
    extras: Extras = Extras(),  # noqa: B008 (it is never changed)
    on_range: str | None = None,
    batch_invariant: bool = False,
) -> torch.Tensor:
    """Computes C and returns it: validate (which says what is raised), choose, lay out, launch.

    prepare: the backend's. Operands are copied first where they are stored otherwise than the rung reads them: A that
    is not row-major, B in none of the rung's layouts, and, for a rung that uses the TMA unit, rows that are no multiple
    of 16 bytes. An `out` that the rung cannot write to is filled from another C: any that is not contiguous, but for
    columns of a wider matrix to whose rows that unit can store. on_range: in emulated compute types, where operands
    are split; an operand may be in parts already (`operands.split.split_operand`). batch_invariant: whether a row of C
    must have the same bits whatever M is.
    """
    extras = resolve_scalars(extras)
    left, right = matrix_of(a, "a", math), matrix_of(b, "b", math)
    read = (left, right, extras.bias, extras.c)
    layouts = split_layout(a), split_layout(b)
    forms = (extras.activation, extras.alpha != 1.0, extras.beta != 0.0, on_range, layouts, batch_invariant)
    entry = _find_entry((*read, out, *extras[:2]), (prepare, stage, dialect, variant, math, *forms))
    if entry.plan is None:
        names: dict[str, Any] = {"dialect": dialect, "variant": variant, "math": math, "on_range": on_range}
        names["batch_invariant"] = bool(batch_invariant)
        plan = validate(left, right, out, stage=stage, **names, **extras._asdict())
        if not _is_on_gpu(left):
            warn_if_long(plan.problem)
        entry.plan = choose(plan, left, right, out, extras, layouts)
    elif out is not None and _may_overlap(entry.plan, out, read):
        check_overlap(out, left, right, extras)
    if not entry.plan.split:
        a, b = left, right
    if entry.plan.in_place_of:
        note_product(entry.plan.implementation.stage.id)
    return execute(entry, entry.plan, prepare, a, b, out, left, extras)


class Entry:
    """A plan in the cache, once a call of its key was valid, and its launcher, once its kernel was compiled."""

    plan: Plan | None = None
    launch: Launcher | None = None


def execute(
    entry: Entry, plan: Plan, prepare: Prepare, a: Any, b: Any, out: torch.Tensor | None, like: torch.Tensor,
    extras: Extras,
) -> torch.Tensor:  # fmt: skip
    """Computes C as the plan says; like: a tensor on its device."""
    target = out
    if plan.transpose:
        a, b, target, extras = transpose_call(a, b, out, extras)
    c = target if target is not None and plan.out_is_c else like.new_empty(plan.c_shape, dtype=plan.c_dtype)
    if not plan.multiply:
        zeros = torch.zeros(plan.c_shape, dtype=torch.float32, device=c.device)
        c.copy_(apply(zeros, extras, by_rows=plan.transpose))
    elif c.numel():
        if plan.align_extras:
            extras = align_extras(extras)
        if plan.split or plan.copy_a or plan.copy_b:  # last: the kernel may start before the copies have ended
            a, b = copy_operands(plan, a, b)
        stored = padded(c) if plan.pad_c else c
        if entry.launch is None:
            entry.launch = prepare(plan, a, b, stored)
        entry.launch(a, b, stored, extras)
        if plan.pad_c:
            c.copy_(stored)
    if target is None:
        return c.t() if plan.transpose else c
    if not plan.out_is_c:
        target.copy_(c)
    return out if out is not None else target


@functools.lru_cache(maxsize=MOST_PLANS)
def _entry_of(*key: object) -> Entry:
    return Entry()


def _find_entry(tensors: tuple[torch.Tensor | None, ...], names: tuple[object, ...]) -> Entry:
    """The cache's entry for a call, by all that the plan depends on; an empty one for a call that is not cached."""
    if not _is_on_gpu(tensors[0]):
        return Entry()
    facts: list[tuple | None] = []
    for x in tensors:
        if x is None:
            facts.append(None)
        elif type(x) in _PLAIN and x.layout is torch.strided:
            facts.append(_describe(x))
        else:
            return Entry()
    try:
        return _entry_of(*names, torch.is_grad_enabled(), *facts)
    except TypeError:  # a name that cannot be hashed: `validate` says what would be right
        return Entry()


def _is_on_gpu(a: object) -> bool:
    return isinstance(a, torch.Tensor) and a.is_cuda


def _describe(x: torch.Tensor) -> tuple:
    """Everything about a dense tensor but its numbers and where they begin."""
    alignment = x.data_ptr() % TMA_BYTES
    return x.shape, x.stride(), x.dtype, x.get_device(), alignment, x.is_neg(), x.requires_grad


def _may_overlap(plan: Plan, out: torch.Tensor, read: tuple[torch.Tensor | None, ...]) -> bool:
    """Whether `out` may share memory with what is read, which depends on addresses; `check_overlap` is sure."""
    first, (out_bytes, *read_bytes) = out.data_ptr(), plan.spans
    *others, c = read
    for x, x_bytes in zip((*others, None if c is out else c), read_bytes, strict=True):  # c may be out
        if x is not None:
            x_first = x.data_ptr()
            if first < x_first + x_bytes and x_first < first + out_bytes:
                return True
    return False
