"""`epilogues`: who takes part, and what rows and sentences say of each form; times are made up."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from experiments.bench import rounds
from experiments.records.controls import CONTROL
from experiments.records.request import Request
from experiments.records.rows import FAIL, PASS
from experiments.studies.epilogues import study as question
from gemm_ref import Problem, get_stage
from gemm_ref.dialect import BY_HAND
from gemm_ref.epilogue import Extras, apply
from tests.experiments.fixtures import NoBars, select_contenders

SLOWER = {"plain": 1.0, "bias": 1.01, "c": 1.1}  # than the plain product; others 1.05, and in turn as much again


def test_the_last_rung_with_epilogues_takes_part_and_cublas():
    ours = {(get_stage("s19").id, dialect) for dialect in get_stage("s19").epilogues}
    assert {(each.stage, each.dialect) for each in select_contenders(question)} == {("cublas", ""), *ours}


def fused(a, b, out, **extras):
    """The product with its epilogue in fp32, rounded once."""
    return out.copy_(apply(a.float() @ b.float(), Extras(**extras)))


@pytest.fixture
def rows(monkeypatch, fake_gpu):
    """The rows of a kernel and of cuBLAS, for which torch on the CPU stands.

    One of cuBLAS' forms is wrong, and one is memoised.
    """
    monkeypatch.setattr(question, "DEVICE", "cpu")
    monkeypatch.setattr(question, "_build_ahead", lambda _: None)

    def interleave(entries, *_):
        for entry in entries:
            entry.work()
        shares = [SLOWER.get(entry.form.name, 1.05) * (1 + (entry.form.how == question.IN_TURN)) for entry in entries]
        return {entry: np.full(8, 100.0 * share) for entry, share in zip(entries, shares, strict=True)}, None

    monkeypatch.setattr(rounds, "interleave", interleave)
    correct, results = question.by_torch, {}

    def by_torch(form, product):
        if form == question.Form("bias, relu", question.FUSED):
            return lambda a, b, out, **_: torch.mm(a, b, out=out)
        if form == question.Form("bias", question.FUSED):
            return lambda a, b, out, bias: out.copy_(results.setdefault("c", torch.addmm(bias, a, b)))
        return correct(form, product)

    monkeypatch.setattr(question, "by_torch", by_torch)
    cublas, kernel = (
        next(each for each in select_contenders(question) if each.math == "bf16" and each.dialect == dialect)
        for dialect in ("", BY_HAND)
    )
    chosen = [dataclasses.replace(kernel, load=lambda: fused), cublas]
    return list(question.measure(Request("cuda", problems=(Problem(40, 48, 64),)), chosen, NoBars()))


def test_every_form_is_checked_and_compared_with_the_plain_product(rows):
    wrong, memoised = (row for row in rows if row.status == FAIL)
    assert (wrong.form, wrong.how, wrong.dialect) == ("bias, relu", question.FUSED, "") and "off by" in wrong.detail
    assert memoised.form == "bias" and "with -A in the place of A" in memoised.detail
    assert memoised.median_us is memoised.over_plain is memoised.tflops is None
    of = {(row.dialect, row.form, row.how): row for row in rows if row.status == PASS and row.stage != CONTROL}
    assert {form for dialect, form, _ in of if dialect} == set(question.FORMS)
    assert of["", "bias, gelu", question.IN_TURN].over_plain == pytest.approx(2.1)
    assert ("", "bias, gelu", question.FUSED) not in of  # cuBLASLt has none
    assert of[BY_HAND, "c", question.FUSED].over_plain == pytest.approx(1.1)
    assert of[BY_HAND, "plain", question.FUSED].over_plain == 1.0
    (control,) = (row for row in rows if row.stage == CONTROL)
    assert (control.form, control.vs_cublas, control.verdict) == ("plain", 1.0, "SAME")
