"""A call from its operands to C: the skeleton that every backend's `gemm` shares.

Most of what a call costs its host is the same for two calls that differ in their numbers alone: whether it is right,
how its operands must be laid out, which kernel is launched with what. On a GPU that is worked out once and kept, as a
`Plan`. For the reference GPU it is worked out at each call: seconds of work follow, and what it runs may be exchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from gemm_ref import choice
from gemm_ref.call import Call, check_overlap, settle, span, validate
from gemm_ref.call.extras import settled
from gemm_ref.compute import B_LAYOUTS, MATHS
from gemm_ref.epilogue import Extras, apply
from gemm_ref.operands import (
    TMA_BYTES,
    Lay,
    as_operand,
    has_phases,
    has_stored_rows,
    laying,
    layout_of,
    padded,
    with_pairs,
)
from gemm_ref.operands.split import Operand, Split, in_place_of, splitting, watch
from gemm_ref.wait import warn_if_long

# (a, b, c, extras): fills c (M, N) from operands, tensors or `Split`s, and from extras, laid out as it reads them.
Launcher = Callable[[Any, Any, torch.Tensor, Extras], object]
# The launcher for a call, and for those after it whose matrices agree with these a, b and c in all that `_facts` says:
# it may keep that of them, and nothing else. Of what torch allocates, every address is a multiple of TMA_BYTES.
Prepare = Callable[[Call, Any, Any, torch.Tensor], Launcher]

MOST_PLANS = 1024  # that are kept; the one that was not used for longest goes first
_PLAIN = (torch.Tensor, torch.nn.Parameter)  # of another subclass, the facts may not be all there is


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
) -> torch.Tensor:
    """Validate (`call.validate`, which says what is raised), lay the operands out, allocate C, launch, hand C back.

    prepare: the backend's. Operands are copied first where they are stored otherwise than the rung reads them: A that
    is not row-major, B in none of the rung's layouts, and, for a rung that uses the TMA unit, lines that are no
    multiple of 16 bytes. An `out` that the rung cannot write to is filled from another C: any that is not contiguous,
    but for columns of a wider matrix to whose rows that unit can store. on_range: in emulated modes, where operands are
    split; an operand may be in parts already (`operands.split.split_operand`).
    """
    extras, given = settled(extras), (a, b)
    a, b = in_place_of(a, "a", math), in_place_of(b, "b", math)
    read = (a, b, extras.bias, extras.c)
    turned_b = isinstance(given[1], Split) and given[1].by_rows
    forms = (extras.activation, extras.alpha != 1.0, extras.beta != 0.0, on_range, turned_b)
    place = _place((*read, out, *extras[:2]), (prepare, stage, dialect, variant, math, *forms))
    if place is None or place.plan is None:
        names: dict[str, Any] = {"dialect": dialect, "variant": variant, "math": math, "on_range": on_range}
        call = validate(a, b, out, stage=stage, **names, **extras._asdict())
        if not _on_gpu(a):
            warn_if_long(call.problem)
        plan = _plan(call, prepare, *given, out, extras, on_range or "widen")
        if place is not None:
            place.plan = plan
    else:
        plan = place.plan
        if out is not None and plan.may_overlap(out, read):
            check_overlap(out, a, b, extras)
    return plan.carry_out(*given, out, extras)


def stream_of(device: int) -> int:
    """The handle of torch's current stream on a GPU; `torch.cuda.current_stream` takes ten times as long."""
    return torch._C._cuda_getCurrentRawStream(device)


class _Place:
    """Where a plan is kept, once a call of its key has turned out right."""

    plan: Plan | None = None


@functools.lru_cache(maxsize=MOST_PLANS)
def _place_of(*key: object) -> _Place:
    return _Place()


def _place(tensors: tuple[torch.Tensor | None, ...], names: tuple[object, ...]) -> _Place | None:
    """Where the plan for a call is kept, by all that the plan depends on; None for a call that is planned anew."""
    if not _on_gpu(tensors[0]):
        return None
    facts: list[tuple | None] = []
    for x in tensors:
        if x is None:
            facts.append(None)
        elif type(x) in _PLAIN and x.layout is torch.strided:
            facts.append(_facts(x))
        else:
            return None
    try:
        return _place_of(*names, torch.is_grad_enabled(), *facts)
    except TypeError:  # a name that cannot be hashed: `validate` says what would be right
        return None


def _on_gpu(a: object) -> bool:
    return isinstance(a, torch.Tensor) and a.is_cuda


def _facts(x: torch.Tensor) -> tuple:
    """Everything about a dense tensor but its numbers and where they begin."""
    alignment = x.data_ptr() % TMA_BYTES
    return x.shape, x.stride(), x.dtype, x.get_device(), alignment, x.is_neg(), x.requires_grad


@dataclass(frozen=True)
class Plan:
    """What one call does after another, whose tensors agree in all that `_facts` says."""

    shape: tuple[int, int]  # of C
    dtype: torch.dtype
    direct: bool  # whether there is an `out` that the rung can write to
    spans: tuple[int, ...]  # bytes from the first element of out and of what is read to the end of its last; or 0
    lay: Lay | None = None  # None where the operands are stored as the rung reads them
    lay_extras: Callable[[Extras], Extras] | None = None
    launch: Launcher | None = None  # None where C has no elements
    turned: bool = False  # whether it is of the product turned round, C^T = B^T @ A^T
    watch: Callable[[Split, Split], None] | None = None  # what looks at operands in parts before they are multiplied

    def may_overlap(self, out: torch.Tensor, read: tuple[torch.Tensor | None, ...]) -> bool:
        """Whether `out` may share memory with what is read, which depends on addresses; `check_overlap` is sure."""
        first, (of_out, *of_read) = out.data_ptr(), self.spans
        for x, of_x in zip(read, of_read, strict=True):
            if x is not None and x is not out:  # c may be out
                first_x = x.data_ptr()
                if first < first_x + of_x and first_x < first + of_out:
                    return True
        return False

    def carry_out(self, a: Any, b: Any, out: torch.Tensor | None, extras: Extras) -> torch.Tensor:
        """C, which is `out` where there is one."""
        if self.turned:
            c = self._compute(b.t(), a.t(), None if out is None else out.t(), extras.of_transpose()).t()
            return c if out is None else out
        return self._compute(a, b, out, extras)

    def _compute(self, a: Operand, b: Operand, out: torch.Tensor | None, extras: Extras) -> torch.Tensor:
        """What the plan's kernel makes of its own operands, which are B^T and A^T where it is turned."""
        whole = a.whole if isinstance(a, Split) else a
        c = out if self.direct else whole.new_empty(self.shape, dtype=self.dtype)
        if self.launch is not None:
            extras = extras if self.lay_extras is None else self.lay_extras(extras)
            a, b = (a, b) if self.lay is None else self.lay(a, b)  # last: the kernel may start before it has ended
            if self.watch is not None:
                self.watch(a, b)
            self.launch(a, b, c, extras)
        return c if out is None or self.direct else out.copy_(c)


def _plan(
    call: Call, prepare: Prepare, a: Operand, b: Operand, out: torch.Tensor | None, extras: Extras, on_range: str,
    turned: bool = False,
) -> Plan:  # fmt: skip
    stage, problem = call.implementation.stage, call.problem
    has_tma = stage.tma is not None
    direct = out is not None and not out.is_neg() and (out.is_contiguous() or (has_tma and has_stored_rows(out)))
    shape, dtype = (problem.m, problem.n), MATHS[problem.math].out_dtype
    in_parts, given = MATHS[problem.math].parts > 1, (a, b)
    a, b = (in_place_of(x, side, problem.math) for x, side in ((a, "a"), (b, "b")))
    ends = [(0, 0) if x is None else span(x) for x in (out, a, b, extras.bias, extras.c)]
    plan = functools.partial(Plan, shape, dtype, direct, tuple(end - first for first, end in ends))
    if not (problem.m and problem.n):
        return plan()
    # One column is no row for the unit, but C^T has one row; and one of operands in parts is a row for each part.
    if stage.tma and problem.n == 1 and problem.m > 1 and not in_parts:
        call = replace(call, problem=replace(problem, m=1, n=problem.m))
        of_transpose = None if out is None else out.t()
        found = _plan(call, prepare, b.t(), a.t(), of_transpose, extras.of_transpose(), on_range, turned=True)
        return replace(found, spans=plan().spans, turned=True)
    layouts = stage.reads_b(problem.math, call.implementation.dialect)
    b_layout = B_LAYOUTS[given[1].by_rows] if isinstance(given[1], Split) else layout_of(b, layouts)
    laid_out = replace(call.implementation, b_layout=b_layout, epilogue=extras.epilogue(dtype, by_rows=turned))
    call = replace(call, implementation=laid_out, problem=replace(problem, b_layout=b_layout))
    if stage.tma and problem.k == 0:  # the unit has no empty matrices
        return plan(launch=functools.partial(_of_no_product, by_rows=turned))

    lay: Lay | None
    if in_parts:
        lay = splitting(b_layout, problem.math)
        laid_a, laid_b = lay(*given)
        plan = functools.partial(plan, watch=functools.partial(watch, on_range=on_range))
    else:
        call = _in_phases(call, a)
        lay, laid_a, laid_b = _lay_out(a, b, b_layout, bool(stage.tma), in_phases=call.problem.a_phases > 1)
    call = settle(call, laid_a, laid_b)
    if copied_b := bool(call.implementation.config.ALIGN_B):
        lay, laid_a, laid_b = _lay_out(a, b, b_layout, False, copied_b)
    call = replace(call, early=stage.waits_for_copies and lay is not None)
    c = out if direct else a.new_empty(shape, dtype=dtype)
    by_unit = not stage.tma or has_stored_rows(c)
    if by_unit or (stage.tma and call.implementation.dialect in stage.tma.c_by_threads):
        by_whom = replace(call.implementation, c_by_threads=not by_unit)
        launch = prepare(replace(call, implementation=by_whom), laid_a, laid_b, c)
    else:
        launch = _beside(prepare(call, laid_a, laid_b, padded(c)))
    return plan(lay, _lay_extras if extras.finish else None, launch)


def _in_phases(call: Call, a: torch.Tensor) -> Call:
    """The call with A read in its phases, where that takes less time than to copy it, and nothing is added by rows."""
    item = call.implementation
    if not has_phases(a) or item.epilogue.adds_c or item.epilogue.bias_by_rows:
        return call
    problem = choice.select_phases(item.stage, item.dialect, call.problem, call.sms, call.gpu)
    return replace(call, problem=problem, implementation=replace(item, a_phases=problem.a_phases))


def _lay_out(
    a: torch.Tensor, b: torch.Tensor, b_layout: str, tma: bool, copied_b: bool = False, in_phases: bool = False
) -> tuple[Lay | None, torch.Tensor, torch.Tensor]:
    lay = laying(a, b, b_layout, tma, copied_b, in_phases)
    return (None, a, b) if lay is None else (lay, *lay(a, b))


def _lay_extras(extras: Extras) -> Extras:
    """With bias, as (1, N), and c as kernels read them."""
    bias, c = extras.bias, extras.c if extras.beta else None
    rows = [None if x is None else with_pairs(as_operand(x)) for x in (bias if bias is None else bias[None], c)]
    return extras._replace(bias=rows[0], c=rows[1])


def _of_no_product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras, by_rows: bool) -> None:
    c.copy_(apply(torch.zeros(c.shape, dtype=torch.float32, device=c.device), extras, by_rows))


def _beside(launch: Launcher) -> Launcher:
    """`launch` for a C whose rows the TMA unit could not find: beside it, and then copied."""

    def launch_beside(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras) -> None:
        beside = padded(c)
        launch(a, b, beside, extras)
        c.copy_(beside)

    return launch_beside
