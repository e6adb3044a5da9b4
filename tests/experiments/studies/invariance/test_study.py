"""`invariance`: who takes part, what is asked of them, and what is drawn and written of rows; times are made up."""

from __future__ import annotations

import re

import pytest

import gemm_ref
from experiments.publish import pictures
from experiments.publish.drawing import style
from experiments.publish.outcomes import outcome
from experiments.records import store, workloads
from experiments.records.contenders import BATCH_INVARIANT, batch_invariant
from experiments.records.request import DEFAULT, Request
from experiments.records.rows import TimedRow
from experiments.studies.invariance import study, text
from gemm_ref import DIALECTS, Problem
from tests.experiments.fixtures import ENVIRONMENT, NoBars, select_contenders

LAYER = (4096, 14336)


@pytest.mark.parametrize(("math", "rungs"), [("bf16", {"s18", "s19"}), ("fp32", {"s12", "s14"}), ("fp16x3", {"s20"})])
def test_the_last_rung_on_request_and_the_last_with_one_tile(math, rungs):
    ours = [each for each in select_contenders(study, math=math) if not each.is_baseline]
    assert {each.stage[:3] for each in ours} == rungs and {each.dialect for each in ours} == set(DIALECTS)


def test_each_that_can_is_timed_with_equal_bits_and_without(seen):
    list(study.measure(Request("cuda"), select_contenders(study), NoBars()))
    assert [problem for problem, *_ in seen] == [Problem(*x, "bf16") for x in workloads.invariance(DEFAULT)]
    for _, _, who in seen:
        variants = {(each.stage[:3], each.variant == BATCH_INVARIANT) for each in who if each.dialect}
        assert variants == {("s18", False), ("s19", False), ("s19", True)}


def test_it_is_asked_for_in_the_call():
    (rung,) = (each for each in select_contenders(study) if each.stage[:3] == "s19" and each.dialect == "cuda")
    assert batch_invariant(rung).load().keywords == {**rung.load().keywords, "batch_invariant": True}


@pytest.fixture
def rows():
    """As measured where few rows cost a quarter in one dialect, and nothing else does."""
    found, everyone = [], select_contenders(study)
    asked = [batch_invariant(each) for each in everyone if each.stage[:3] == "s19"]
    for m in workloads.INVARIANCE_ROWS[DEFAULT]:
        for each in [*everyone, *asked]:
            share = 0.75 if each in asked and each.dialect == "gluon" and m < 128 else 1.0
            share = 0.4 if each.stage[:3] == "s18" and m < 128 else share
            values = {"vs_cublas": share, "vs_cublas_low": share, "vs_cublas_high": share, "median_us": 10 / share}
            found.append(TimedRow.about(study.NAME, each, Problem(m, *LAYER, "bf16"), mode="cold", **values))
    return found


def test_what_is_said_drawn_and_written_of_rows(rows, tmp_path):
    store.save(tmp_path, study.NAME, rows, ENVIRONMENT)
    (picture,) = pictures.render(study.NAME, tmp_path, style.PAGE).values()
    assert f"N = {LAYER[0]}, K = {LAYER[1]}".encode() in picture and b"any shape with batch_invariant=True" in picture
    said = outcome(study.NAME, store.read(tmp_path, study.NAME))
    assert "75.0 to 75.0% in Gluon" in said and "from 128 rows on" in said and "costs 0.0% of the default" in said
    page = text.block("invariance", tmp_path)
    assert "| 16 × 4096 × 14336 | 10.0 µs | 100% | 100% | 75.0% |" in page
    assert re.search(r"`s13_split_k` .* never \| never \| – \|", page) and ENVIRONMENT["device"] in page
    for rung in gemm_ref.STAGES.values():
        assert f"| `{rung.id}` | {', '.join(rung.maths)} | {rung.batch_invariance('cuda')} |" in page
