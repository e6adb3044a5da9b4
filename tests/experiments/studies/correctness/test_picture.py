"""The picture of `correctness`: how many checks passed, and which did not."""

from __future__ import annotations

from experiments.publish.drawing import style
from experiments.records.contenders import contenders
from experiments.records.rows import FAIL, PASS
from experiments.studies.correctness.row import CorrectnessRow
from gemm_ref import Problem


def test_correctness_says_how_many_passed_and_names_what_did_not(draw_pictures):
    rows = [
        CorrectnessRow.about(
            "correctness",
            contender,
            Problem(33, 31, 33),
            inputs="normal",
            status=FAIL if (contender.stage, contender.dialect) == ("s02_coalesced", "gluon") else PASS,
            bound_share=0.03,
        )
        for contender in contenders()
        if not contender.is_baseline
    ]
    (svg,) = draw_pictures("correctness", rows).values()
    checks = len([contender for contender in contenders() if not contender.is_baseline])
    for text in (
        f"{checks - 1} of {checks} checks passed",
        "the largest error is 3.0% of what is allowed",
        "s02 coalesced, Gluon: 1 of 1 failed, such as fp32 at 33 × 31 × 33",
        "fp8",
    ):
        assert f"<!-- {text}" in svg, text
    assert svg.count(f"fill: {style.FAILED}") == 1
