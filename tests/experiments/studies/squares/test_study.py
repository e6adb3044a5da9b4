"""Squares: which sizes are timed, and what the pictures show."""

from __future__ import annotations

import dataclasses

from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.request import DEFAULT, FULL, Request
from experiments.studies.squares import study as squares
from tests.experiments.fixtures import ladder_rows, renamed, select_contenders, sweep_rows


def test_pictures_of_tensor_cores_name_the_best_rung(draw_pictures):
    found = draw_pictures("squares", sweep_rows("squares", [(256,) * 3, (1025,) * 3]))
    assert found.keys() == {"squares_tensor_cores"}
    svg = found["squares_tensor_cores"]
    emulated = "fp16x3 and bf16x6: shares of cuBLAS SGEMM"
    for text in ("bf16 Gluon", "fp8 CUDA", "1025", "s18", "90", "fp8: B by columns", emulated):
        assert text in svg, text
    assert "s17" not in svg and "s19" not in svg


def test_squares_show_every_size_and_leave_the_control_out(draw_pictures):
    rows = renamed("squares", ladder_rows((1021, 1024, 2048)))
    control = [dataclasses.replace(row, stage="control", backend="control") for row in rows if row.backend == "cublas"]
    found = draw_pictures("squares", rows + control)
    assert found.keys() == {"squares_tflops", "squares_vs_cublas"}
    for text in ("1021", "2048", "s13 split k Triton"):
        assert text in found["squares_vs_cublas"], text
    assert "control" not in found["squares_vs_cublas"]


def test_the_default_preset_has_few_sizes_on_tensor_cores(seen):
    for preset in (DEFAULT, FULL):
        list(squares.measure(Request("cuda", preset=preset), select_contenders(squares), Bars(None)))
    edges = [problem.m for problem, *_ in seen if problem.math == "bf16"]
    assert tuple(edges) == workloads.FEW_SQUARES + workloads.SQUARES[FULL]
    assert set(workloads.FEW_SQUARES) <= set(workloads.SQUARES[FULL])
