"""`decode`: what is timed, in which modes, and what the picture and README say of it; times are made up."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from experiments.bench import measure, rounds, timers
from experiments.bench.verify import Inputs
from experiments.publish.answer import Answer
from experiments.records import store, studies, workloads
from experiments.records.controls import CONTROL
from experiments.records.request import FULL, Request
from experiments.records.rows import COLD, LAYERS, WARM
from experiments.studies.decode import study as decode
from gemm_ref import Problem
from tests.experiments.fixtures import ENVIRONMENT, NoBars, right, select_contenders

PROBLEM = Problem(2, 2400, 1600)
MEDIAN_US = {COLD: 20.0, WARM: 10.0, LAYERS: 8.0}


def test_weights_are_read_from_memory_in_a_graph_of_20_layers():
    sizes = workloads.decode(FULL)
    assert len(sizes) == len(set(sizes)) == 70 and {m for m, *_ in sizes} == {1, 2, 4, 8, 16, 32, 64}
    assert min(20 * n * k for _, n, k in sizes) > 2 * 60e6  # bytes in fp8, and twice the L2 cache of an H200


@pytest.fixture
def rows(monkeypatch, fake_gpu):
    """Each contender takes what MEDIAN_US says, CUDA half of it."""

    def interleave(entries, *_):
        for entry in entries:
            entry.work()
        took = {each: MEDIAN_US[each.mode] / (1 + (each.contender.dialect == "cuda")) for each in entries}
        return {entry: np.full(8, us) for entry, us in took.items()}, None

    monkeypatch.setattr(rounds, "interleave", interleave)
    monkeypatch.setattr(timers, "make_timer", lambda mode: lambda work: 1.0)
    monkeypatch.setattr(measure, "kernel_names", lambda work: "")
    monkeypatch.setattr(Inputs, "on", lambda inputs, device: inputs)
    monkeypatch.setattr(measure.Bench, "__enter__", lambda bench: bench)
    chosen = [dataclasses.replace(each, load=lambda: right) for each in select_contenders(decode, math="bf16")]
    return list(decode.measure(Request("cuda", problems=(PROBLEM,)), chosen, NoBars()))


def test_each_product_is_timed_in_three_modes(rows):
    ours = [row for row in rows if row.stage == "s19_any_shape"]
    assert {(row.dialect, row.mode) for row in ours} == {(d, m) for d in ("cuda", "triton", "gluon") for m in MEDIAN_US}
    assert {row.b_layout for row in rows} == {"nk"} and {row.stage for row in rows} == {
        "s19_any_shape",
        "cublas",
        CONTROL,
    }
    assert all(row.median_us == MEDIAN_US[row.mode] / (1 + (row.dialect == "cuda")) for row in rows)


def test_readme_and_picture_have_the_shares_of_cublas_and_of_the_read_roof(rows, tmp_path, draw_pictures):
    store.save(tmp_path, "decode", rows, ENVIRONMENT)
    assert Answer(tmp_path).decode == {} and not draw_pictures("decode")
    peaks = {"fma": 60.0, "dram_read": 4.0}
    kind = studies.row_type("roofs")
    store.save(
        tmp_path,
        "roofs",
        [kind(experiment="roofs", stage=x, backend="cuda", value=peaks[x]) for x in peaks],
        ENVIRONMENT,
    )
    answer = Answer(tmp_path)
    share = 100 * 2 * (2 * 1600 + 1600 * 2400 + 2 * 2400) / 4e6 / MEDIAN_US[LAYERS]
    assert answer.decode == {"bf16": ("200 / 100 / 100%", f"{2 * share:.0f} / {share:.0f} / {share:.0f}%")}
    for language, words in (("en", "Decoding (1 to 64 rows"), ("zh", "解码（十种层")):
        assert any(
            words in each and "bf16" in each and "200 / 100 / 100%" in each for each in answer.sentences(language)
        )
    assert "bf16, 20 layers in a CUDA graph" in draw_pictures("decode")["decode"]
