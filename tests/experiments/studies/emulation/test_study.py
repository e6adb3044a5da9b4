"""`emulation`: who takes part, what is predicted, and that SGEMM, TF32 and emulated modes are told apart."""

from __future__ import annotations

import pytest
import torch

import gemm_ref
from experiments.progress import Bars
from experiments.records.contenders import contenders
from experiments.records.request import Request
from experiments.studies.emulation import study as emulation
from experiments.studies.emulation.row import EmulationRow
from gemm_ref import Problem

REQUEST = Request("cpu", problems=(Problem(16, 24, 200),))
CHOSEN = [each for each in contenders() if not emulation.unsuited(each, REQUEST)]


@pytest.fixture(scope="module")
def rows() -> list[EmulationRow]:
    return list(emulation.measure(REQUEST, CHOSEN, Bars(None)))


def test_every_kind_is_told_apart(rows):
    libraries = {("cublas", "fp32"), ("cublas", "tf32")}
    assert {(each.stage, each.math) for each in CHOSEN} == libraries | {
        ("s20_emulated", math) for math in gemm_ref.EMULATED
    }
    assert len(rows) == len(CHOSEN) * len(emulation.KINDS) and {row.status for row in rows} == {"pass"}
    lost = {(row.inputs, row.math): row for row in rows if row.dialect in ("", "cuda")}
    for kind in emulation.KINDS:
        least = max(lost[kind, math].max_error for math in ("fp32", *gemm_ref.EMULATED))
        assert lost[kind, "tf32"].max_error > 30 * least
    assert lost["cancelling", "fp16x3"].rel_error > 20 * lost["normal", "fp16x3"].rel_error
    assert lost["phi = 4", "fp16x3"].widened >= 0.5 and lost["phi = 4", "bf16x6"].widened == 0
    assert lost["normal", "fp16x3"].widened == 0 and lost["normal", "fp32"].widened is None
    assert lost["phi = 4", "fp16x3"].max_error <= lost["phi = 4", "fp32"].max_error  # as SGEMM, or better


@pytest.mark.parametrize("kind", emulation.SPREADS)
def test_inputs_are_seeded(kind):
    first, again = (emulation.make_inputs(Problem(5, 7, 9), kind) for _ in range(2))
    assert torch.equal(first.a, again.a) and torch.equal(first.b, again.b) and first.a.dtype == torch.float32


def test_the_picture_says_that_errors_were_computed_without_a_gpu(rows, draw_pictures):
    (svg,) = draw_pictures("emulation", rows).values()
    for words in ("cancelling", "SGEMM", "TF32", "bf16x6", "computed without a GPU"):
        assert words in svg, words
