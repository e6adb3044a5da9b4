"""`squares`: which sizes are timed."""

from __future__ import annotations

from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.request import DEFAULT, FULL, Request
from experiments.studies.squares import study as squares
from tests.experiments.fixtures import select_contenders


def test_the_default_preset_has_few_sizes_on_tensor_cores(seen):
    for preset in (DEFAULT, FULL):
        list(squares.measure(Request("cuda", preset=preset), select_contenders(squares), Bars(None)))
    edges = [problem.m for problem, *_ in seen if problem.math == "bf16"]
    assert tuple(edges) == workloads.FEW_SQUARES + workloads.SQUARES[FULL]
    assert set(workloads.FEW_SQUARES) <= set(workloads.SQUARES[FULL])
