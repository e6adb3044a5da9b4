"""The tensor_cores experiment: who takes part, its rows, its plots and its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import gemm_ref
from experiments.progress import Bars
from experiments.records import compare, frames, store
from experiments.records.contenders import contenders
from experiments.records.request import Request
from experiments.studies.tensor_cores import study as tensor_cores
from experiments.studies.tensor_cores import table as tensor_tables
from experiments.studies.tensor_cores.row import TensorCoreRow
from gemm_ref import B_LAYOUTS, STAGES, Problem
from tests.experiments.fixtures import ENVIRONMENT

SIZES = (2048, 4096)
SHARES = {stage: 0.3 + i / 100 for i, stage in enumerate(STAGES)}  # of cuBLAS, made up; the libraries have 0.9


def rows() -> list[TensorCoreRow]:
    found = []
    for contender in contenders():
        if contender.math == "fp32" or contender.devices == ("cpu",):
            continue
        share = 1.0 if contender.backend == "cublas" else SHARES.get(contender.stage, 0.9)
        share *= {"cuda": 1.0, "triton": 0.9, "gluon": 0.8}.get(contender.dialect, 1.0)
        for size in SIZES:
            for layout in B_LAYOUTS:
                problem = Problem(size, size, size, contender.math, layout)
                us = problem.flops / share / 1e9
                about = {"median_us": us, "p20_us": us, "p80_us": us, "tflops": 1000 * share, "b_layout": layout}
                about |= {"vs_cublas": share, "vs_cublas_low": share, "vs_cublas_high": share, "mode": "cold"}
                found.append(TensorCoreRow.about("tensor_cores", contender, problem, **about))
    return found


@pytest.fixture
def data(tmp_path) -> Path:
    store.save(tmp_path, "tensor_cores", rows(), ENVIRONMENT)
    return tmp_path


def test_who_takes_part():
    for contender in contenders():
        reason = tensor_cores.unsuited(contender, Request("cuda"))
        assert ("ladder" in reason) == bool(reason) == (contender.math == "fp32")
        assert tensor_cores.unsuited(contender, Request("cpu"))


def test_each_mode_and_layout_is_a_problem_of_its_own(seen):
    chosen = [each for each in contenders() if not tensor_cores.unsuited(each, Request("cuda"))]
    assert list(tensor_cores.measure(Request("cuda"), chosen, Bars(None))) == []
    assert all({each.math for each in who} == {problem.math} for problem, _, who in seen)
    modes, problems = [math for math in gemm_ref.MATHS if math != "fp32"], [problem for problem, *_ in seen]
    found = [(problem.math, problem.b_layout, problem.m) for problem in problems]
    assert sorted(found) == sorted((math, layout, 4096) for math in modes for layout in B_LAYOUTS)


def test_rows_with_b_either_way_stand_beside_each_other(data):
    frame = store.read(data, "tensor_cores")
    assert len(frame) == len(rows()) and set(frame["b_layout"]) == set(B_LAYOUTS)
    store.save(data, "tensor_cores", rows()[:5], ENVIRONMENT)  # measured again: replaced
    assert len(store.read(data, "tensor_cores")) == len(rows())


def test_a_comparison_tells_them_apart(data):
    (found,) = compare.compare(data, data)
    assert len({(each.name, each.problem) for each in found.changes}) == len(found.changes) > 0


@pytest.mark.usefixtures("data")
def test_plots_name_every_rung_mode_and_size(draw_pictures):
    svg = draw_pictures("tensor_cores")
    assert svg.keys() == {"tensor_cores_vs_cublas", "tensor_cores_layouts"}
    shares, layouts = svg["tensor_cores_vs_cublas"], svg["tensor_cores_layouts"]
    for item in gemm_ref.implementations():
        if item.math == "bf16":
            assert f"<!-- {item.stage.id.replace('_', ' ')} {gemm_ref.DIALECTS[item.dialect].title} -->" in shares
    for text in ("bf16", "4096", "fp8: B by columns", "CUTLASS Hopper", "there is no such kernel", "NVIDIA Fixture"):
        assert text in shares, text
    for text in ("cuBLASLt best", "tf32", "B by rows", "TFLOP/s"):
        assert text in layouts, text


def test_the_overview_has_a_line_a_rung(data):
    lines = tensor_tables.block("tensor_cores", data).splitlines()
    for stage in gemm_ref.stages_in("bf16"):
        (line,) = [line for line in lines if line.startswith(f"| `{stage.id}`")]
        assert stage.idea in line and f"{100 * SHARES[stage.id]:#.3g}" in line
    assert any(line.startswith("| CUTLASS Hopper") and "90.0%" in line for line in lines)
    assert any(line.startswith("| cuBLAS | TFLOP/s |") and "1000" in line for line in lines)
    assert "M = N = K = 4096" in lines[-1] and "NVIDIA Fixture" in lines[-1]


@pytest.mark.parametrize("name", tensor_tables.PAGE)
def test_a_mode_has_every_kernel_size_and_layout(data, name):
    math = name.removeprefix("tensor_")
    text = tensor_tables.block(name, data)
    assert text.splitlines()[0] == ("| kernel | by rows, 2048 | by rows, 4096 | by columns, 2048 | by columns, 4096 |")
    for item in gemm_ref.implementations():
        if item.math == math:
            assert f"| `{item.stage.id}` " in text
    assert "–" not in text.split("TFLOP/s and")[0]


def test_the_ablation_has_what_each_idea_of_s18_is_worth(data):
    text = tensor_tables.block("tensor_ablation", data)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert lines[0] == "| without | kernel | M = N = K | tf32 | fp16 | bf16 | fp8 |"
    variants = set(STAGES["s18_warp_specialized"].variants_in("cuda"))
    assert {line.split("| ")[2].split()[-1] for line in lines[2:]} == variants - {"pairs"} | {"`s17`"}
    assert all(line.count("1.000, SAME") == 4 for line in lines[2:] if "`s18`" in line)
    faster = SHARES["s18_warp_specialized"] / SHARES["s17_wgmma_tma"]
    assert all(line.count(f"{faster:.3f}, FASTER") == 4 for line in lines[2:] if "`s17`" in line)
    assert "B by columns" in text and text.rstrip(".").endswith("2020-02-02")


def test_without_data_nothing_is_claimed(tmp_path):
    assert tensor_tables.block("tensor_ablation", tmp_path) == "not measured"
    assert tensor_tables.block("tensor_cores", tmp_path) == "not measured"
    assert frames.at_tables(tmp_path, "bf16").empty
