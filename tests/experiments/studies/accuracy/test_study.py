"""The picture of `accuracy`: a line for all kernels that have the same errors, and for no others."""

from __future__ import annotations

from experiments.records.contenders import contenders
from experiments.records.rows import CheckedRow
from gemm_ref import Problem, stages_in


def rows(is_drawn, error=lambda each: 1e-7):
    return [
        CheckedRow.about("accuracy", each, Problem(256, 256, k), inputs="normal", rel_error=error(each) * k)
        for each in contenders()
        for k in (16, 256)
        if each.is_default and is_drawn(each)
    ]


def test_a_line_is_of_all_kernels_with_the_same_errors(draw_pictures, tmp_path):
    (svg,) = draw_pictures("accuracy", rows(lambda each: True)).values()
    assert f"<!-- s01 to {stages_in('fp32')[-1].id[:3]}; " in svg
    assert svg.count("<!-- s01") == svg.count("<!-- fp16 -->") == 1
    on_cpu = rows(lambda each: "cpu" in each.devices and each.is_baseline)
    (svg,) = draw_pictures("accuracy", on_cpu, tmp_path / "cpu").values()
    assert "<!-- CPU loop; NumPy BLAS; torch BLAS -->" in svg and "<!-- s01" not in svg
    in_tf32 = rows(
        lambda each: each.math == "tf32" and each.dialect,
        lambda each: 2e-7 if each.dialect == "cuda" and each.stage > "s16" else 1e-7,
    )
    (svg,) = draw_pictures("accuracy", in_tf32, tmp_path / "tf32").values()
    assert "<!-- s16 to s19 CUDA -->" in svg and "<!-- s15; s16 to s19 Triton, Gluon -->" in svg
