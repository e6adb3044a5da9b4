"""What is timed of epilogues, and what rows, tables and pictures say of it: on the reference GPU, times are made up."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

from experiments.publish.outcomes import outcome
from experiments.records import store
from experiments.records.contenders import contenders
from experiments.records.request import Request
from experiments.records.rows import ERROR
from experiments.studies.epilogues import study as question
from experiments.studies.epilogues import table
from gemm_ref import Problem, get_stage
from gemm_ref.dialect import BY_HAND
from tests.experiments.fixtures import ENVIRONMENT, Entered, NoBars

SLOWER = {"plain": 1.0, "bias": 1.01, "c": 1.1}  # than the plain product; others 1.05, and in turn as much again


def _taking_part():
    return [each for each in contenders() if not question.unsuited(each, Request("cuda"))]


def test_the_last_rung_with_epilogues_takes_part_and_cublas():
    assert {(each.stage, each.dialect) for each in _taking_part()} == {
        ("cublas", ""),
        *((get_stage("s19").id, dialect) for dialect in get_stage("s19").epilogues),
    }
    assert all(question.unsuited(each, Request("cpu")) for each in _taking_part())


class _Telemetry(Entered):
    settled = staticmethod(lambda: True)

    def window(self):
        return contextlib.nullcontext([])


@pytest.fixture
def rows(monkeypatch):
    """CUDA's kernel and cuBLAS, for which torch on the CPU stands; its plain product is wrong in one form."""
    monkeypatch.setattr(question, "DEVICE", "cpu")
    for name in ("refusal", "make_timer", "cache_bytes", "_build_ahead"):
        monkeypatch.setattr(question, name, lambda *_: None)
    monkeypatch.setattr(question, "Telemetry", _Telemetry)
    monkeypatch.setattr(question.rounds, "warm_up", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    class Rotation:
        def __init__(self, a, b, cache_bytes, dtype):
            self.take = lambda: (a, b, torch.empty(a.shape[0], b.shape[1], dtype=dtype))

    def interleave(works, *_, **__):
        for work in works.values():
            work()
        took = {turn: SLOWER.get(turn.form, 1.05) * (2 if turn.how == question.IN_TURN else 1) for turn in works}
        return {turn: np.full(8, 100.0 * share) for turn, share in took.items()}

    monkeypatch.setattr(question, "Rotation", Rotation)
    monkeypatch.setattr(question.rounds, "interleave", interleave)
    load = question.load

    def loaded(contender):
        return load(contender) if contender.dialect else (lambda a, b, out: torch.mm(a, b, out=out), None)

    monkeypatch.setattr(question, "load", loaded)
    wrong = question.by_torch

    def by_torch(form, how, product):
        if (form, how) == ("bias, relu", question.FUSED):
            return lambda a, b, out, **_: torch.mm(a, b, out=out)
        return wrong(form, how, product)

    monkeypatch.setattr(question, "by_torch", by_torch)
    chosen = [each for each in _taking_part() if each.math == "bf16" and each.dialect in ("", BY_HAND)]
    return list(question.measure(Request("cuda", problems=(Problem(40, 48, 64),)), chosen, NoBars()))


def test_every_form_is_checked_and_beside_the_plain_product(rows):
    bad = [row for row in rows if row.status == ERROR]
    assert [(row.form, row.how, row.dialect) for row in bad] == [("bias, relu", question.FUSED, "")]
    assert "off by" in bad[0].detail
    of = {(row.dialect, row.form, row.how): row for row in rows if row.status != ERROR}
    assert {form for dialect, form, _ in of if dialect} == set(question.FORMS)
    assert of["", "bias, gelu", question.IN_TURN].over_plain == pytest.approx(2.1)
    assert ("", "bias, gelu", question.FUSED) not in of  # cuBLASLt has none
    assert of[BY_HAND, "c", question.FUSED].over_plain == pytest.approx(1.1)
    assert of[BY_HAND, "plain", question.FUSED].over_plain == 1.0


def test_documents_and_picture_say_it(rows, tmp_path, drawn):
    store.save(tmp_path, "epilogues", rows, ENVIRONMENT)
    text = table.block("tensor_epilogues", tmp_path)
    line = next(line for line in text.splitlines() if "| bias, gelu |" in line)
    assert [cell.strip() for cell in line.split("|")][4:] == ["+5.0%", "–", "–", "–", "+110.0%", ""]
    assert "100 µs" in text
    said = outcome("epilogues", store.read(tmp_path, "epilogues"))
    assert "c at 40 x 48 x 64 in bf16 costs 10.0% in CUDA" in said and "110.0% in kernels of their own" in said
    assert drawn("epilogues").keys() == {"epilogues"}


def test_nothing_measured_is_nothing_said(tmp_path):
    assert table.block("tensor_epilogues", tmp_path) == table.NOT_MEASURED
