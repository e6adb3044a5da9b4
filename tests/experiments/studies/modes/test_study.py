"""Modes: a panel for each math mode, of times as shares of the cold one."""

from __future__ import annotations

import dataclasses

import gemm_ref
from experiments.publish.drawing import style
from experiments.records.frames import TENSOR_CORE_MATHS
from experiments.records.rows import COLD, GRAPH, WARM
from tests.experiments.fixtures import ladder_rows, sweep_rows


def test_modes_are_shares_of_the_cold_time_with_a_panel_for_each_math(draw_pictures, tmp_path):
    in_fp32 = [row for row in ladder_rows((256,)) if row.dialect or row.backend == "cublas"]
    rows = [
        dataclasses.replace(row, experiment="modes", mode=mode, median_us=row.median_us * share)
        for row in [*in_fp32, *sweep_rows("modes", [(256,) * 3])]
        for mode, share in ((COLD, 1.0), (WARM, 0.8), (GRAPH, 0.6))
    ]
    found = draw_pictures("modes", rows)
    assert found.keys() == {"modes", "modes_tensor_cores"}
    for math in TENSOR_CORE_MATHS:
        assert f"{style.label_of(gemm_ref.stages_in(math)[-1].id)} {math}" in found["modes_tensor_cores"]
    assert draw_pictures("modes", [row for row in rows if row.mode == WARM], tmp_path / "warm") == {}
