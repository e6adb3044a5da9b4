"""Predicted times: what is refused, what stands beside them, and the errors that the documents name."""

from __future__ import annotations

import itertools
import re

import pandas as pd
import pytest

import gemm_ref
from experiments.progress import Bars
from experiments.records import studies
from experiments.records.contenders import contenders
from experiments.records.request import FULL, Request
from experiments.records.rows import PASS, SKIPPED
from experiments.records.store import PUBLISHED
from gemm_ref import clock
from tests.imports import ROOT

study = studies.load("predicted", "study")
KERNEL = ["stage", "variant", "dialect", "math", "m", "n", "k"]


def test_a_kernel_is_predicted_or_refused_by_the_instruction_that_has_no_cost(monkeypatch):
    own = [each for each in contenders() if (each.stage, each.dialect) == ("s04_shared_tile", "cuda")]
    request = Request("cpu", problems=(gemm_ref.Problem(256, 256, 256),))
    (row,) = study.measure(request, own, Bars(None))
    assert (row.status, row.card) == (PASS, "nvidia-h200")
    assert 0 < row.low_us < row.predicted_us < row.high_us and row.limit and row.blocks_held == 2
    assert row.ratio == pytest.approx(row.predicted_us / row.measured_us)
    assert row.tflops == pytest.approx(2 * 256**3 / row.predicted_us / 1e6)

    def refuse(*_):
        raise clock.NotModelled("mine: DFMA has no cost in this model yet")

    monkeypatch.setattr(clock, "predict", refuse)
    (row,) = study.measure(request, own, Bars(None))
    assert (row.status, row.detail, row.predicted_us) == (SKIPPED, "mine: DFMA has no cost in this model yet", None)
    assert row.measured_us and row.ratio is None


def test_the_default_preset_has_one_variant_of_a_rung_with_its_own_kernel_and_the_full_one_all():
    def chosen(**filters):
        return [each for each in contenders() if not study.unsuited(each, Request("cpu", **filters))]

    pool = [(each.stage, each.dialect) for each in chosen()]
    assert len(set(pool)) == len(pool)
    assert {stage for stage, dialect in pool if dialect == "cuda"} == {*gemm_ref.STAGES} - {"s20_emulated"}
    assert ("s04_shared_tile", "triton") in pool and ("s09_conflict_free", "triton") not in pool
    assert {dialect for _, dialect in pool} == {"cuda", "triton"}
    assert len(chosen(preset=FULL)) == len(chosen(backends=("gluon",))) == len(list(gemm_ref.implementations()))


def published(study_name: str) -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / f"{study_name}.csv", keep_default_na=False, na_values=[""])


def test_published_rows_have_the_newest_measured_times():
    timed = pd.concat(published(name) for name in ("ladder", "squares", "shapes", "tensor_cores"))
    timed = timed[(timed["mode"] == "cold") & timed["median_us"].notna() & (timed["math"] == "fp32")]
    newest = timed.sort_values("run", kind="stable").groupby(KERNEL).last()["median_us"]
    rows = published("predicted")
    assert set(rows["status"]) <= {PASS, SKIPPED}
    rows = rows[(rows["math"] == "fp32") & rows["ratio"].notna() & (rows["card"] == PUBLISHED.name)].set_index(KERNEL)
    assert len(rows) >= 60
    assert rows["measured_us"].to_numpy() == pytest.approx(newest[rows.index].to_numpy(), rel=1e-5)
    assert rows["ratio"].to_numpy() == pytest.approx((rows["predicted_us"] / rows["measured_us"]).to_numpy(), rel=1e-4)


def test_the_documents_name_the_errors_of_the_published_rows():
    rows = published("predicted").dropna(subset="ratio")
    off, pairs, ordered = (rows["ratio"] - 1).abs(), 0, 0
    for _, own in rows.groupby(["card", *KERNEL[3:]]):
        for one, other in itertools.combinations(own.itertuples(), 2):
            faster, slower = sorted((one, other), key=lambda row: row.measured_us)
            if slower.measured_us > 1.1 * faster.measured_us:
                pairs += 1
                ordered += faster.predicted_us < slower.predicted_us
    median, ninetieth, order = (f"{100 * share:.1f}%" for share in (off.median(), off.quantile(0.9), ordered / pairs))
    line = f"| all | {len(rows)} | {median} | {ninetieth} | {pairs} | {order} |"
    assert line in (ROOT / "docs" / "clock.md").read_text(encoding="utf-8")
    for readme in ("README.md", "README.zh-CN.md"):
        text = (ROOT / readme).read_text(encoding="utf-8")
        block = re.search(r"<!-- predicted\.\w+:begin -->(.*?)<!-- predicted", text, re.DOTALL)
        assert block and {median, ninetieth, order, str(len(rows))} <= set(re.findall(r"\d[\d.]*%?", block[1]))
