"""Which kernel a call takes: real predictions at a small size, the nearest row of a small CSV, and refusals."""

from __future__ import annotations

import json

import pytest

import gemm_ref
from experiments import which
from experiments.records import store
from experiments.records.contenders import contenders
from experiments.records.rows import COLD, FAIL, WARM, LayoutRow
from gemm_ref import DIALECTS, Problem, choice, clock
from tests.experiments.fixtures import ENVIRONMENT, needs_study, raising

CARD = "nvidia-h100-80gb-hbm3"
PROBLEM = Problem(64, 256, 512, "bf16")


@pytest.fixture
def published(tmp_path, monkeypatch):
    """`published((dialect, sizes, microseconds), ...)`: the rows of s19, or of cuBLAS where the dialect is empty."""
    monkeypatch.setattr(store, "PUBLISHED", tmp_path / "nvidia-h200")
    found = (each for each in contenders() if each.math == "bf16" and each.stage in ("s19_any_shape", "cublas"))
    pool = {each.dialect: each for each in found}

    def save(*times, date="2020-02-02T02:02:02Z", **values):
        values = {
            "b_layout": "kn",
            "mode": COLD,
            "vs_cublas": 0.5,
            "vs_cublas_low": 0.4,
            "vs_cublas_high": 0.6,
            **values,
        }
        rows = [LayoutRow.about("shapes", pool[of], Problem(*sizes), median_us=us, **values) for of, sizes, us in times]
        store.save(tmp_path / CARD, "shapes", rows, ENVIRONMENT | {"date": date})

    return save


@needs_study("shapes")
def test_a_small_product(invoke, published):
    published(("cuda", (64, 256, 1024), 7.5), ("cuda", (64, 64, 64), 3.0), ("", (1, 1, 1), 2.0))
    result = invoke("which", PROBLEM, "--math", "bf16", "--gpu", "h100")
    assert result.exit_code == 0 and "64x256x512 in bf16 on an NVIDIA H100 80GB HBM3" in result.said
    assert "64x256x1024: 7.500 µs" in result.said and "1x1x1: 2.000 µs" in result.said
    found = which.answer(PROBLEM, clock.read(CARD))
    times = [each.time for each in found.candidates]
    assert {each.dialect for each in found.candidates} == set(DIALECTS) and None not in times
    assert times == sorted(times, key=lambda time: time.microseconds)
    for each in found.candidates:
        chosen = choice.choose(gemm_ref.get_stage("s19"), each.dialect, PROBLEM, 132, True, "NVIDIA H100 80GB HBM3")
        assert (each.stage, each.tile, each.blocks) == ("s19_any_shape", chosen.tile, chosen.blocks)
        assert each.time.interval_us[0] < each.time.microseconds < each.time.interval_us[1] and each.time.limit
        assert (each.nearest is not None) == (each.dialect == "cuda") and each.time.copies == ""
        config = gemm_ref.get_stage("s19").config(chosen.tile, each.dialect)
        assert each.tile_sizes == (config.BLOCK_M, config.BLOCK_N) and each.time.kernels == 1


@needs_study("shapes")
def test_the_nearest_row(published):
    published(("cuda", (64, 256, 1024), 1.0), ("cuda", (128, 512, 512), 2.0), ("triton", (64, 256, 512), 3.0))
    published(("cuda", (64, 256, 512), 4.0), mode=WARM)
    published(("cuda", (64, 256, 513), 5.0), status=FAIL)
    published(("cuda", (64, 128, 512), 6.0), date="2021-02-02T02:02:02Z")  # as near as the first, and newer
    rows = which.read_measured(CARD, "bf16")
    assert which.read_measured(CARD, "fp16").empty and which.find_nearest(rows[:0], PROBLEM) is None
    own = rows[rows["dialect"] == "cuda"]
    assert which.find_nearest(own, PROBLEM) == which.Measured("64x128x512", 6.0, 0.5)
    assert which.find_nearest(own, Problem(100, 400, 700)) == which.Measured("128x512x512", 2.0, 0.5)


def test_what_cannot_be_predicted_has_a_row_with_the_reason(invoke, monkeypatch):
    monkeypatch.setattr(clock, "predict", raising(clock.NotModelled("_Z3s20v: FROB has no cost\nand more")))
    result = invoke("which", "33x35x37", "--math", "fp16x3", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and found["problem"] == "33x35x37" and found["gpu"] == "NVIDIA H200"
    for each in found["candidates"]:  # so small a product is one of fp32
        assert (each["stage"], each["time"], each["refusal"]) == ("s14_register_banks", None, "FROB has no cost")
        assert each["nearest"]
    assert "not predicted: FROB has no cost" in invoke("which", "33x35x37", "--math", "fp16x3").said


def test_copies_in_front_of_the_kernel_are_in_the_time(invoke):
    gpu = clock.read("h200")
    found = which.answer(Problem(33, 35, 37, "tf32"), gpu)
    moved = 2 * 4 * (33 * 40 + 35 * 40)  # bytes, read and written in one launch; rows of 37 floats are padded
    for each in found.candidates:
        assert each.time.copies == "copying A and B"
        assert each.time.copies_us == pytest.approx(moved / gpu.roof["dram_copy"] / 1e6, rel=0.1)
        assert each.time.interval_us[0] > each.time.copies_us
    said = invoke("which", "33x35x37", "--math", "tf32").said
    assert "of it are for copying A and B" in said and "(64x32)" in said
