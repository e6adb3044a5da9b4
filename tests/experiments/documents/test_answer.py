"""The answer's sentences follow the data: a verdict that changes changes them; what was not measured is not said."""

import dataclasses

import pytest

from experiments.documents.answer import LANGUAGES, Answer, Best, Shapes
from experiments.records import store
from experiments.records.stats import FASTER, SAME, SLOWER, UNSURE
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows


def save(folder, shares):
    """fp32 at 4096 where each dialect has that share of cuBLAS (median, low, high) in every rung, and no other row."""
    names = ("vs_cublas", "vs_cublas_low", "vs_cublas_high")
    rows = [
        dataclasses.replace(row, median_us=1000 / share[0], **dict(zip(names, share, strict=True)))
        for row in ladder_rows((4096,))
        if (share := shares.get(row.dialect))
    ]
    store.save(folder, "ladder", rows, ENVIRONMENT)


def scaled(*ratio):
    return tuple(0.5 * value for value in ratio)


HAND = scaled(1.0, 0.9998, 1.0002)


@pytest.mark.parametrize(
    ("ratio", "verdict", "said", "take"),
    [
        ((0.9, 0.899, 0.901), SLOWER, "Triton 45.0% (`s01`), slower than CUDA by 10%.", "CUDA"),
        ((1.0, 0.999, 1.001), SAME, "Triton 50.0% (`s01`), level with CUDA.", "lightest"),
        ((1.1, 1.099, 1.101), FASTER, "Triton 55.0% (`s01`), faster than CUDA by 10%.", "lightest"),
        ((1.0, 0.8, 1.2), UNSURE, "Triton 50.0% (`s01`), not told apart from CUDA.", "CUDA"),
    ],
)
@pytest.mark.parametrize("lines", [(20, 9), (9, 20)])
def test_each_verdict_is_said_and_the_fewest_lines_at_that_speed_are_to_take(
    tmp_path, monkeypatch, ratio, verdict, said, take, lines
):
    of = dict(zip(("cuda", "triton"), lines, strict=True))
    monkeypatch.setattr(Best, "lines", property(lambda best: of[best.dialect]))
    save(tmp_path, {"cuda": HAND, "triton": scaled(*ratio)})
    answer = Answer(tmp_path)
    assert answer.modes[0].best["triton"].beside_hand == verdict
    first, fp32 = answer.paragraphs()
    lightest = "CUDA" if take == "CUDA" or lines == (9, 20) else "Triton"
    assert (
        first.startswith(f"**At M = N = K = 4096 take {lightest} in fp32.**")
        and f"{lines[0]} / {lines[1]} lines in fp32" in first
    )
    assert fp32 == f"**fp32 at M = N = K = 4096:** CUDA 50.0% of cuBLAS (`s01`); {said}"


def test_without_cuda_nothing_is_compared_or_recommended(tmp_path):
    save(tmp_path, {"triton": HAND})
    assert Answer(tmp_path).paragraphs() == [
        "**fp32 at M = N = K = 4096:** Triton 50.0% of cuBLAS (`s01`).",
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_published_answer_has_every_mode_share_and_line(language):
    answer = Answer()
    text = " ".join(answer.paragraphs(language))
    assert {mode.math for mode in answer.modes} == {name for group in answer.groups for name in group.names}
    for group in answer.groups:
        assert all(name in text for name in group.names)
        assert " / ".join(str(best.lines) for best in group.first.best.values()) in text
        for name, best in group.first.best.items():
            shares = sorted((mode.best[name] for mode in group.modes), key=lambda best: best.row.vs_cublas)
            assert shares[0].percent in text and shares[-1].percent in text
            assert {mode.best[name].beside_hand for mode in group.modes} == {best.beside_hand}
        if group.first.other:
            assert all(f"{best.percent}%" in text for best in group.first.other.best.values())
    assert answer.modes[1].other, "who reads B by columns as it is stored is level there, and not by rows"
    for name, mean in answer.shapes.mean.items():
        worst = answer.shapes.worst[name]
        assert f"{mean:.0f}%" in text and worst.size in text
        assert worst.percent in text and 100 * worst.row.vs_cublas < mean


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_said_of_an_empty_folder(tmp_path, language):
    assert Answer(tmp_path).paragraphs(language) == []


@pytest.mark.parametrize(("slower", "take"), [(60, "cuda"), (50, None), (0, None)])
def test_cuda_is_to_take_where_the_others_are_slower_at_most_shapes(slower, take):
    counts = {"cuda": 0, "triton": 90, "gluon": slower}
    assert Shapes(100, dict.fromkeys(counts, 80.0), {}, dict.fromkeys(counts, 1), counts, {}).take == take
