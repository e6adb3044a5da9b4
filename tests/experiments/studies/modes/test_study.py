"""Modes: a panel for each math mode, and shares of the cold time."""

from __future__ import annotations

import dataclasses

import gemm_ref
from experiments.publish.drawing import style
from experiments.records.frames import TENSOR_CORE_MATHS
from experiments.records.rows import COLD, GRAPH, WARM
from tests.experiments.fixtures import ladder_rows, sweep_rows


def test_modes_are_shares_of_the_cold_time(draw_pictures, tmp_path):
    rows = [
        dataclasses.replace(row, experiment="modes", mode=mode, median_us=row.median_us * share)
        for row in ladder_rows((256, 1024))
        for mode, share in (("cold", 1.0), ("warm", 0.8), ("graph", 0.6))
        if row.dialect or row.backend == "cublas"
    ]
    assert draw_pictures("modes", rows).keys() == {"modes"}
    assert draw_pictures("modes", [row for row in rows if row.mode == "warm"], tmp_path / "warm") == {}


def test_modes_have_a_panel_for_each_math(draw_pictures):
    cold = sweep_rows("modes", [(256,) * 3, (4096,) * 3])
    timed = [
        dataclasses.replace(each, mode=mode, median_us=each.median_us * share)
        for each in cold
        for mode, share in ((COLD, 1.0), (WARM, 0.8), (GRAPH, 0.6))
    ]
    found = draw_pictures("modes", timed)
    assert found.keys() == {"modes_tensor_cores"}
    assert all(
        f"{style.label_of(gemm_ref.stages_in(math)[-1].id)} {math}" in found["modes_tensor_cores"]
        for math in TENSOR_CORE_MATHS
    )
