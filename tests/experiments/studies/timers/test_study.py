"""`timers`: which ways of taking a time are tried."""

from __future__ import annotations

from experiments.progress import Bars
from experiments.records.request import Request
from experiments.records.rows import DO_BENCH, SKIPPED, WAYS
from experiments.studies.timers import study as timers
from tests.experiments.fixtures import select_contenders


def test_every_way_of_taking_a_time_is_tried_and_the_one_that_is_missing_is_skipped(seen, monkeypatch):
    monkeypatch.setattr(timers, "missing_for", lambda way: "do_bench: no Triton" if way == DO_BENCH else "")
    own = select_contenders(timers)
    assert {each.math for each in own} == {"fp32", "bf16"}
    assert {each.math for each in select_contenders(timers, math="fp8")} == {"fp8"}
    skipped = list(timers.measure(Request("cuda"), own, Bars(None)))
    assert {mode for _, mode, _ in seen} == {*WAYS} - {DO_BENCH}
    assert {(each.status, each.detail) for each in skipped} == {(SKIPPED, "do_bench: no Triton")}
