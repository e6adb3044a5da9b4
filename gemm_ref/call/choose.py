"""The second step of a call: what its tensors' sizes, strides and alignment decide is written into the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gemm_ref import choice
from gemm_ref.call import Plan
from gemm_ref.call.layout import DENSE, LINES, PADDED, RESOLVE, transpose_call
from gemm_ref.call.validate import span
from gemm_ref.choice.costs import find_device
from gemm_ref.choice.emulated import predict_kernel_ns, predict_split_ns
from gemm_ref.choice.work import unshared_blocks
from gemm_ref.compute import MATHS
from gemm_ref.dialect import DIALECTS
from gemm_ref.epilogue import Extras
from gemm_ref.operands import (
    has_phases,
    has_stored_rows,
    has_tma_rows,
    has_vector_rows,
    layout_of,
    resolve_views,
)
from gemm_ref.registry import Implementation, stages_in
from gemm_ref.rung import DEFAULT_VARIANT

MARGIN = 0.05  # by which an emulated product must be faster than one in fp32 by the model, whose error this is


def choose(
    plan: Plan, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, extras: Extras,
    split_layouts: tuple[str, str] = ("", ""),
) -> Plan:  # fmt: skip
    """The plan of a valid call, with all of its fields decided.

    split_layouts: of an A and a B that are in parts already, else empty. Where the call leaves it open whether fp32
    arithmetic computes an emulated compute type, the way is chosen that `gemm_ref.choice` predicts to take less time,
    copies and splits included.
    """
    emulated = _choose_fields(plan, a, b, out, extras, split_layouts[1])
    if not (plan.may_use_sgemm and plan.problem.flops):
        return emulated
    dialect, math = plan.implementation.dialect, plan.problem.math
    rung = [stage for stage in stages_in("fp32") if dialect in stage.dialects][-1]
    item, problem = Implementation(rung, DEFAULT_VARIANT, dialect, "fp32"), replace(plan.problem, math="fp32")
    sgemm = replace(plan, implementation=item, problem=problem, in_place_of=math)
    sgemm = _choose_fields(sgemm, a, b, out, extras)
    operands = (a.shape, True), (b.t().shape, True) if emulated.problem.b_layout == "nk" else (b.shape, False)
    split = [x for x, layout in zip(operands, split_layouts, strict=True) if not layout]
    # The model counts what LINES copies.
    copied = [x for x, copy in ((a, sgemm.copy_a), (b, sgemm.copy_b)) if copy in (DENSE, PADDED)]
    is_slower = (1 + MARGIN) * _predict_ns(emulated, split=split) > _predict_ns(sgemm, copied=copied)
    return sgemm if is_slower else emulated


def _predict_ns(
    plan: Plan, copied: Sequence[torch.Tensor] = (), split: Sequence[tuple[torch.Size, bool]] = ()
) -> float:
    """Predicted nanoseconds of a call: of its kernel and, before it, of the operands that it copies or splits.

    split: their shapes, and whether their rows are scaled, or their columns.
    """
    item, problem, device = plan.implementation, plan.problem, find_device(plan.gpu)
    candidate = choice.Candidate(item.variant, plan.blocks or unshared_blocks(item.config, problem))
    predict = predict_kernel_ns if plan.split else choice.predict_ns
    kernel_ns = predict(item.stage, item.dialect, candidate, problem, plan.sms, device)
    copies_ns = device.copy_ns * bool(copied) + sum(2 * x.nbytes for x in copied) / device.bytes_per_ns
    return kernel_ns + copies_ns + sum(predict_split_ns(*each, problem.math, plan.sms, device) for each in split)


def _choose_fields(
    plan: Plan, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, extras: Extras, split_layout: str = ""
) -> Plan:
    rung, problem, mode = plan.implementation.stage, plan.problem, MATHS[plan.problem.math]
    ends = [(0, 0) if x is None else span(x) for x in (out, a, b, extras.bias, extras.c)]
    has_tma, split = rung.tma is not None, mode.parts > 1
    transpose = has_tma and problem.n == 1 and problem.m > 1 and not split  # parts of one column are rows each
    if transpose:
        a, b, out, extras = transpose_call(a, b, out, extras)
        problem = replace(problem, m=1, n=problem.m)
    b_layout = split_layout or layout_of(b, rung.reads_b(problem.math, plan.implementation.dialect))
    epilogue = extras.epilogue(mode.out_dtype, by_rows=transpose)
    direct = out is not None and not out.is_neg() and (out.is_contiguous() or (has_tma and has_stored_rows(out)))
    plan = replace(
        plan,
        implementation=replace(plan.implementation, b_layout=b_layout, epilogue=epilogue),
        problem=replace(problem, b_layout=b_layout),
        transpose=transpose,
        out_is_c=direct,
        split=split,
        align_extras=extras.has_epilogue,
        multiply=not (has_tma and problem.k == 0),  # the unit has no empty matrices
        c_shape=(problem.m, problem.n),
        c_dtype=mode.out_dtype,
        spans=tuple(end - first for first, end in ends),
    )
    if not (problem.m and problem.n and plan.multiply):
        return plan
    plan = _choose_copies(plan, a, b)
    c = out if out is not None and direct else a.new_empty(plan.c_shape, dtype=plan.c_dtype)
    return _choose_stores(plan, c) if rung.tma else plan


def select_tile(plan: Plan, a: torch.Tensor, b: torch.Tensor) -> Plan:
    """The plan with the tile and the blocks that its shape selects (`gemm_ref.choice`); itself for other rungs.

    a, b: the operands as the kernel will read them. A tile that was named by the caller stays.
    """
    item = plan.implementation
    if item.dialect not in item.stage.tiles:
        return plan
    tile = "" if item.variant == DEFAULT_VARIANT else item.variant
    vectors = item.stage.tma is not None or has_vectors(item.dialect, a, b)
    about = item.stage, item.dialect, plan.problem, plan.sms, vectors, plan.gpu, tile
    selected = choice.choose(*about, adds_c=item.epilogue.adds_c, batch_invariant=plan.batch_invariant)
    return replace(plan, implementation=replace(item, variant=selected.tile)).with_blocks(selected.blocks)


def has_vectors(dialect: str, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether rows are made of complete 16-byte vectors in all operands that a dialect's tiles copy as such."""
    operands = {"A": a, "B": b}
    return all(has_vector_rows(operands[name]) for name in DIALECTS[dialect].vectors)


def _choose_copies(plan: Plan, a: torch.Tensor, b: torch.Tensor) -> Plan:
    """The plan with the tile, and with how operands are copied where the kernel cannot read them as they are stored.

    It reads A by rows and B in the plan's layout: one row after another or, for a rung of the TMA unit, where that can
    address them. The tile may want B aligned, and a copy has vectors where an operand has none.
    """
    item = plan.implementation
    if plan.split:
        return replace(select_tile(plan, a, b), early=item.stage.waits_for_copies)
    tma = item.stage.tma
    has_tma = tma is not None
    rung_reads_rows = tma and item.dialect in tma.sync_tf32 and plan.problem.math == "tf32"
    # The first slice of a phase begins in front of its rows, and M decides between phases and a copy.
    if (
        has_tma
        and has_phases(a)
        and not plan.batch_invariant
        and not item.epilogue.adds_c
        and not item.epilogue.bias_by_rows
    ):
        problem = choice.select_phases(item.stage, item.dialect, plan.problem, plan.sms, plan.gpu)
        plan = replace(plan, problem=problem, implementation=replace(item, a_phases=problem.a_phases))
    if rung_reads_rows and has_tma_rows(b):
        by_rows = replace(plan.problem, b_layout="kn")
        selected = select_tile(replace(plan, problem=by_rows), a, b).implementation
        if not selected.config.copies_b(by_rows.math, "kn"):
            plan = replace(plan, problem=by_rows, implementation=replace(plan.implementation, b_layout="kn"))
    copies, readable = [], []
    for x, in_phases in ((a, plan.problem.a_phases > 1), (b if plan.problem.b_layout == "kn" else b.t(), False)):
        rows = resolve_views(x)
        is_readable = in_phases or (has_tma_rows(rows) if has_tma else rows.is_contiguous())
        copies.append("" if rows is x and is_readable else RESOLVE if is_readable else PADDED if has_tma else DENSE)
        readable.append(rows if is_readable else torch.empty(x.shape, dtype=x.dtype, device="meta"))
    plan = select_tile(plan, readable[0], readable[1])
    if plan.implementation.config.ALIGN_B:
        copies[1] = LINES
    early = item.stage.waits_for_copies and any(copies)
    return replace(plan, copy_a=copies[0], copy_b=copies[1], early=early)


def _choose_stores(plan: Plan, c: torch.Tensor) -> Plan:
    """The plan with who stores C: the TMA unit or, where that cannot store to its rows, threads; else C is padded."""
    if has_stored_rows(c):
        return plan
    tma = plan.implementation.stage.tma
    if tma and plan.implementation.dialect in tma.c_by_threads:
        return replace(plan, implementation=replace(plan.implementation, c_by_threads=True))
    return replace(plan, pad_c=True)
