"""`ladder`: which sizes are timed."""

from __future__ import annotations

from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.request import Request
from experiments.studies.ladder import study as ladder
from tests.experiments.fixtures import select_contenders


def test_each_size_of_the_device_is_timed(seen):
    for device in ("cpu", "cuda"):
        list(ladder.measure(Request(device), select_contenders(ladder, device), Bars(None)))
    assert [(problem.m, problem.n, problem.k) for problem, *_ in seen] == [
        *workloads.LADDER["cpu"],
        *workloads.LADDER["cuda"],
    ]
