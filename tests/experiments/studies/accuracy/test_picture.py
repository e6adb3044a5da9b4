"""The picture of `accuracy`: a line for all kernels that have the same errors."""

from __future__ import annotations

import pytest

from experiments.records.contenders import contenders
from experiments.records.rows import CheckedRow
from gemm_ref import Problem, stages_in


@pytest.mark.parametrize("on_gpu", [True, False])
def test_accuracy_names_each_line_once(draw_pictures, on_gpu):
    rows = [
        CheckedRow.about("accuracy", contender, Problem(256, 256, k), inputs="normal", rel_error=1e-7 * k**0.5)
        for contender in contenders()
        for k in (16, 256)
        if contender.is_default and (on_gpu or ("cpu" in contender.devices and contender.is_baseline))
    ]
    (svg,) = draw_pictures("accuracy", rows).values()
    own = f"<!-- s01 to {stages_in('fp32')[-1].id[:3]}; " if on_gpu else "<!-- CPU loop; NumPy BLAS; torch BLAS -->"
    assert svg.count("<!-- s01") == on_gpu and own in svg
    assert svg.count("<!-- fp16 ") == on_gpu  # one line, since all have the same errors


def test_accuracy_parts_kernels_whose_errors_differ(draw_pictures):
    rows = [
        CheckedRow.about("accuracy", contender, Problem(256, 256, k), inputs="normal", rel_error=error * k)
        for contender in contenders()
        for k in (16, 256)
        if contender.is_default and contender.math == "tf32" and contender.dialect
        for error in [2e-7 if contender.dialect == "cuda" and contender.stage > "s16" else 1e-7]
    ]
    (svg,) = draw_pictures("accuracy", rows).values()
    assert "<!-- tf32 s16 to s19 CUDA -->" in svg
    assert "<!-- tf32 s15; s16 to s19 Triton, Gluon -->" in svg
