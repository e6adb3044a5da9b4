"""The answer's sentences follow the data: a verdict that changes changes them; what was not measured is not said."""

import dataclasses

import pytest

from experiments.publish.answer import LANGUAGES, Answer, Best, Shapes
from experiments.publish.numbers import format_number
from experiments.records import store
from experiments.records.source_lines import lines_of
from experiments.records.stats import FASTER, SAME, SLOWER, UNSURE, Ratio
from gemm_ref import DIALECTS
from tests.experiments.fixtures import ENVIRONMENT, ladder_rows


def save(folder, shares):
    """fp32 at 4096 where each dialect has that share of cuBLAS (median, low, high) in every rung, and no other row."""
    rows = [
        dataclasses.replace(row, median_us=1000 / share[0], **Ratio(*share).columns("vs_cublas"))
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
        ((0.9, 0.899, 0.901), SLOWER, ("45.0%", "10% slower"), "CUDA"),
        ((1.0, 0.999, 1.001), SAME, ("50.0%", "level"), "lightest"),
        ((1.1, 1.099, 1.101), FASTER, ("55.0%", "10% faster"), "lightest"),
        ((1.0, 0.8, 1.2), UNSURE, ("50.0%", "not told apart"), "CUDA"),
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
    assert answer.modes[0].best["triton"].verdict == verdict
    first, table, _ = answer.paragraphs()
    lightest = "CUDA" if take == "CUDA" or lines == (9, 20) else "Triton"
    assert first.startswith(f"**At M = N = K = 4096 take {lightest} in fp32.**")
    share, beside = said
    by_hand, triton = ("**50.0%**", share) if lightest == "CUDA" else ("50.0%", f"**{share}**")
    cells = f"{by_hand} `s01`, {lines[0]} lines | {triton} `s01`, {lines[1]} lines, {beside}"
    cells += " | not measured" * (len(DIALECTS) - len(of))
    assert table.splitlines()[2] == f"| fp32 at 4096 | {format_number(answer.modes[0].cublas_tflops)} | {cells} | | |"


def test_without_cuda_nothing_is_compared_or_recommended(tmp_path):
    save(tmp_path, {"triton": HAND})
    table, about = Answer(tmp_path).paragraphs()
    lines = lines_of("s01_naive", "triton").lines
    assert f"| not measured | 50.0% `s01`, {lines} lines | not measured |" in table and "Other shapes:" not in about


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_said_of_an_empty_folder(tmp_path, language):
    assert Answer(tmp_path).paragraphs(language) == []


@pytest.mark.parametrize(("slower", "take"), [(60, "cuda"), (50, None), (0, None)])
def test_cuda_is_to_take_where_the_others_are_slower_at_most_shapes(slower, take):
    counts = {"cuda": 0, "triton": 90, "gluon": slower}
    assert Shapes(100, dict.fromkeys(counts, 0.8), {}, dict.fromkeys(counts, 1), counts, {}).take == take
