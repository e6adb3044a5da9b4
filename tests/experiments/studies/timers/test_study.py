"""Every way of taking a time stands beside the cold one."""

from __future__ import annotations

import dataclasses

import pandas as pd

from experiments.progress import Bars
from experiments.publish.outcomes import outcome
from experiments.records.request import Request
from experiments.records.rows import DO_BENCH, EVENTS, HOST, SKIPPED, WARM, WAYS
from experiments.studies.timers import study as timers
from gemm_ref import Problem
from tests.experiments.fixtures import select_contenders, sweep_row


def test_every_way_of_taking_a_time_is_set_beside_the_cold_one(seen, draw_pictures, monkeypatch):
    monkeypatch.setattr(timers, "missing_for", lambda way: "do_bench: no Triton" if way == DO_BENCH else "")
    own = select_contenders(timers)
    assert {each.math for each in own} == {"fp32", "bf16"}
    assert {each.math for each in select_contenders(timers, math="fp8")} == {"fp8"}
    skipped = list(timers.measure(Request("cuda"), own, Bars(None)))
    assert {mode for _, mode, _ in seen} == {*WAYS} - {DO_BENCH}
    assert {(each.status, each.detail) for each in skipped} == {(SKIPPED, "do_bench: no Triton")}
    slow = {HOST: 4.0, EVENTS: 2.0, WARM: 0.5}
    timed = [
        dataclasses.replace(sweep_row("timers", each, Problem(256, 256, 256, each.math), share), mode=way, median_us=us)
        for each in own
        for way in WAYS
        for share in [0.5 if way == HOST and each.dialect else 0.9 if each.dialect else 1.0]
        for us in [slow.get(way, 1.0) * 10 / share]
    ]
    found = draw_pictures("timers", [*timed, *skipped])["timers"]
    assert all(text in found for text in ("host clock", "do_bench", "M = N = K = 256", "90%", "50%"))
    said = outcome("timers", pd.DataFrame([dataclasses.asdict(each) for each in timed]))
    assert "50% (warm)" in said and "400% (host clock)" in said and "50% of its speed by one timer (host clock)" in said
