"""Squares: which sizes are timed, and what the pictures show."""

from __future__ import annotations

import dataclasses

from experiments.progress import Bars
from experiments.records import workloads
from experiments.records.request import DEFAULT, FULL, Request
from experiments.studies.squares import study as squares
from tests.experiments.fixtures import ladder_rows, renamed, select_contenders, sweep_rows


def test_pictures_have_every_size_and_name_the_best_rung(draw_pictures):
    rows = renamed("squares", ladder_rows((1021, 2048)))
    control = [dataclasses.replace(row, stage="control", backend="control") for row in rows if row.backend == "cublas"]
    found = draw_pictures("squares", [*rows, *control, *sweep_rows("squares", [(256,) * 3, (1025,) * 3])])
    assert found.keys() == {"squares_tflops", "squares_vs_cublas", "squares_tensor_cores"}
    in_fp32, on_tensor_cores = found["squares_vs_cublas"], found["squares_tensor_cores"]
    assert all(text in in_fp32 for text in ("1021", "2048", "s13 split k Triton")) and "control" not in in_fp32
    emulated = "fp16x3 and bf16x6: shares of cuBLAS SGEMM"
    for text in ("bf16 Gluon", "fp8 CUDA", "1025", "s18", "90", "fp8: B by columns", emulated):
        assert text in on_tensor_cores, text
    assert "s17" not in on_tensor_cores and "s19" not in on_tensor_cores


def test_the_default_preset_has_few_sizes_on_tensor_cores(seen):
    for preset in (DEFAULT, FULL):
        list(squares.measure(Request("cuda", preset=preset), select_contenders(squares), Bars(None)))
    edges = [problem.m for problem, *_ in seen if problem.math == "bf16"]
    assert tuple(edges) == workloads.FEW_SQUARES + workloads.SQUARES[FULL]
    assert set(workloads.FEW_SQUARES) <= set(workloads.SQUARES[FULL])
