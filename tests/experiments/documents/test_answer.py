"""The answer's sentences follow the data: a verdict that changes changes them; what was not measured is not said."""

import dataclasses

import pytest

from experiments.documents.answer import LANGUAGES, Answer
from experiments.records import store
from experiments.records.stats import FASTER, SAME, SLOWER, UNSURE
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows


@pytest.mark.parametrize(
    ("ratio", "low", "high", "verdict", "said"),
    [
        (0.9, 0.899, 0.901, SLOWER, "Triton is slower than CUDA in fp32"),
        (1.0, 0.999, 1.001, SAME, "Triton is level with CUDA in fp32"),
        (1.1, 1.099, 1.101, FASTER, "Triton is faster than CUDA in fp32"),
        (1.0, 0.8, 1.2, UNSURE, "Triton is not told apart from CUDA in fp32"),
    ],
)
def test_each_verdict_is_said(tmp_path, ratio, low, high, verdict, said):
    shares = {"cuda": (0.5, 0.4999, 0.5001), "triton": tuple(0.5 * value for value in (ratio, low, high))}
    rows = [
        dataclasses.replace(
            row,
            median_us=1000 / shares[row.dialect][0],
            **dict(zip(("vs_cublas", "vs_cublas_low", "vs_cublas_high"), shares[row.dialect], strict=True)),
        )
        for row in ladder_rows((4096,))
        if row.dialect in shares
    ]
    store.save(tmp_path, "ladder", rows, ENVIRONMENT)
    answer = Answer(tmp_path)
    assert answer.modes[0].best["triton"].beside_hand == verdict
    first, fp32 = answer.paragraphs()
    assert first == f"**{said}.**"
    assert "50.0% of cuBLAS in CUDA" in fp32
    assert ("Slower than CUDA: Triton by 10%." in fp32) == (verdict == SLOWER)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_published_answer_has_every_mode_and_share(language):
    answer = Answer()
    text = " ".join(answer.paragraphs(language))
    for mode in answer.modes:
        assert mode.math in text
        for best in mode.best.values():
            assert best.percent in text
    for mean in answer.shapes.mean.values():
        assert f"{mean:.0f}%" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_said_of_an_empty_folder(tmp_path, language):
    assert Answer(tmp_path).paragraphs(language) == []
