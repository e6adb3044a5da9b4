"""The predicted times that pages show: what is read, what is predicted, and what is marked in a source."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from experiments import processes
from experiments.bench import predictions
from experiments.explore.times import gather_times
from experiments.explore.traces.collection import first_modes
from experiments.progress import Bars
from experiments.publish.report.sources import read_sources
from gemm_ref import Problem, clock
from gemm_ref.sass.occupancy import Occupancy

PLACES = (
    clock.Line("s09_conflict_free.cu", 80, 0.5, {"waiting for results": 0.3}),
    clock.Line("vector.cuh", 9, 0.25, {}, ("s09_conflict_free.cu:54",)),
    clock.Line("s09_conflict_free.cu", 12, 0.001, {}),
)
LAUNCH = clock.LaunchTime("mine", 1998.0, Occupancy(1, 1.0, ""), 1.0, {"issue": 0.9}, {}, PLACES, 0.0)
PARTS = "30% waiting for results, 20% issue slots"
PREDICTED = clock.Prediction("nvidia-h200", Problem(4096, 4096, 4096), (LAUNCH,), (1000.0,), 2.0)


@pytest.fixture
def items() -> dict[str, object]:
    found = {str(item): item for item in first_modes() if item.stage.id in ("s09_conflict_free", "s12_async_copy")}
    return {f"{item.stage.id[:3]} {item.variant}": item for item in found.values() if item.dialect == "cuda"}


def test_what_was_kept_is_read_and_what_the_tour_shows_is_predicted(items, monkeypatch):
    monkeypatch.setattr(processes, "pool", lambda: contextlib.nullcontext(SimpleNamespace(map=map)))
    monkeypatch.setattr(predictions, "read", lambda item, *_: PREDICTED if item is items["s09 two_blocks"] else None)

    def gather(predict) -> set:
        monkeypatch.setattr(predictions, "predict", predict)
        return {f"{item.stage.id[:3]} {item.variant}" for item in gather_times(list(items.values()), Bars(None))}

    assert gather(lambda item, *_: PREDICTED) == {"s09 two_blocks", "s12 wide"}
    assert gather(lambda item, *_: 1 / 0) == {"s09 two_blocks"}


def test_a_source_has_the_shares_of_its_lines(items, monkeypatch):
    monkeypatch.setattr(predictions, "read", lambda *_: PREDICTED)
    item = items["s09 two_blocks"]
    (time,) = gather_times([item], Bars(None)).values()
    assert time.says.startswith("Predicted on an NVIDIA H200 at 4096: 45.8 TFLOP/s (")
    assert "held back by issue slots (busy 90% of the time)" in time.says
    assert time.lines == {80: ("50%", f"50% of the time: {PARTS}"), 54: ("25%", "25% of the time: 25% issue slots")}
    by_hand, triton, *_ = read_sources(item.stage, {(item.stage.id, "cuda"): time})
    lines = by_hand.html.split("\n</span>")
    assert [number for number, line in enumerate(lines, 1) if "data-time" in line] == [54, 80]
    assert (
        'data-time=50% title="50% of the time: 30% waiting for results, 20% issue slots" style=--t:50%;--i:'
        in lines[79]
    )
    assert (by_hand.says, triton.says) == (time.says, "") and "data-time" not in triton.html + triton.kernel.html
    time = replace(time, lines={5: ("25%", "25% of the time")})
    _, triton, *_ = read_sources(item.stage, {(item.stage.id, "triton"): time})
    assert (triton.says, triton.kernel.says) == ("", time.says) and "data-time" in triton.kernel.html
