"""Sweeps over math modes: who takes part in each, at which sizes, and with which layout of B."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

import gemm_ref
from experiments import runner
from experiments.progress import Bars
from experiments.publish.answer import Answer
from experiments.publish.docs import sweeps
from experiments.publish.drawing import style
from experiments.publish.outcomes import outcome
from experiments.records import store, workloads
from experiments.records.contenders import contenders
from experiments.records.controls import CONTROL
from experiments.records.frames import LAYOUT
from experiments.records.request import DEFAULT, FULL, Request
from experiments.records.rows import COLD, DO_BENCH, EVENTS, GRAPH, HOST, MODES, SKIPPED, WARM, WAYS, TimedRow
from experiments.studies.energy import study as energy
from experiments.studies.modes import study as modes
from experiments.studies.shapes import study as shapes
from experiments.studies.squares import study as squares
from experiments.studies.timers import study as timers
from gemm_ref import Problem
from tests.experiments.fixtures import ENVIRONMENT

SWEEPS = (squares, shapes, modes, energy)
TENSOR_MODES = [math for math in gemm_ref.MATHS if math != "fp32"]
POOL = contenders()


def chosen(module, device="cuda", **filters):
    return runner.choose(module, Request(device, **filters), POOL)


@pytest.mark.parametrize("module", SWEEPS)
def test_every_mode_of_a_rung_that_takes_part(module):
    by_default = chosen(module)
    assert {each.math for each in by_default} == set(gemm_ref.MATHS)
    for math in gemm_ref.MATHS:
        rungs = [each for each in chosen(module, math=math) if not each.is_baseline]
        assert rungs and {each.math for each in rungs} == {math}
        assert {str(each) for each in rungs} <= {str(each) for each in by_default}
        assert gemm_ref.stages_in(math)[-1].id in {each.stage for each in rungs}


def test_without_a_gpu_fp32_alone_is_timed():
    assert {each.math for each in chosen(squares, "cpu")} == {"fp32"}
    assert not any(chosen(module, "cpu") for module in SWEEPS[1:])


@pytest.mark.parametrize("module", SWEEPS[:3])
@pytest.mark.parametrize("preset", [DEFAULT, FULL])
def test_a_mode_is_timed_by_itself(module, preset, seen):
    """Each problem beside contenders of its own math alone; B by columns where cuBLAS has only that."""
    list(module.measure(Request("cuda", preset=preset), chosen(module), Bars(None)))
    assert {problem.math for problem, *_ in seen} == set(gemm_ref.MATHS)
    for problem, _, who in seen:
        assert {each.math for each in who} == {problem.math} and problem.b_layout == LAYOUT[problem.math]
    assert len({(problem, mode) for problem, mode, _ in seen}) == len(seen)
    assert {mode for _, mode, _ in seen} == (set(MODES) if module is modes else {COLD})


def test_the_default_preset_has_few_sizes_on_tensor_cores(seen):
    for preset in (DEFAULT, FULL):
        list(squares.measure(Request("cuda", preset=preset), chosen(squares), Bars(None)))
    edges = [problem.m for problem, *_ in seen if problem.math == "bf16"]
    assert tuple(edges) == workloads.FEW_SQUARES + workloads.SQUARES[FULL]
    assert set(workloads.FEW_SQUARES) <= set(workloads.SQUARES[FULL])


def test_shapes_of_the_default_preset_are_of_every_group():
    groups = {shape.sizes: shape.group for shape in workloads.named_shapes()}
    few, all_ = workloads.shapes(DEFAULT, "bf16"), workloads.shapes(FULL, "bf16")
    assert {groups[sizes] for sizes in few} == set(groups.values()) and all_ == list(groups)
    assert set(workloads.shapes(FULL, "fp32")) == {*groups, *workloads.map_sizes(FULL)}


def test_the_last_rung_of_each_mode_is_held():
    rungs = [each for each in chosen(energy) if not each.is_baseline]
    assert {each.dialect for each in rungs if each.math == "fp32"} == set(gemm_ref.DIALECTS)
    assert {(each.math, each.dialect) for each in rungs if each.math != "fp32"} == {(m, "cuda") for m in TENSOR_MODES}
    assert "in CUDA" in energy.unsuited(next(each for each in POOL if each.math == "fp8"), Request("cuda"))


def row(experiment, contender, problem, share, **more):
    us = problem.flops / share / 1e9
    values = {"median_us": us, "p20_us": us, "p80_us": us, "tflops": 1000 * share, "mode": COLD, "verdict": "SAME"}
    values |= {"vs_cublas": share, "vs_cublas_low": share, "vs_cublas_high": share}
    return TimedRow.about(experiment, contender, problem, **values | more)


def rows(experiment, problems):
    """Of every rung that takes part on tensor cores: s18 has 0.9 of cuBLAS, s20 3.6 of SGEMM, and where M is 1 half."""
    shares = {"s18": 0.9, "s20": 3.6}
    return [
        row(experiment, each, Problem(*sizes, each.math), shares.get(each.stage[:3], 0.5) / (1 + (sizes[0] == 1)))
        for each in chosen({"squares": squares, "shapes": shapes, "modes": modes}[experiment])
        if each.dialect and each.math != "fp32"
        for sizes in problems
    ]


def test_pictures_of_tensor_cores_name_the_best_rung(drawn):
    found = drawn("squares", rows("squares", [(256,) * 3, (1025,) * 3]))
    assert found.keys() == {"squares_tensor_cores"}
    svg = found["squares_tensor_cores"]
    emulated = "fp16x3 and bf16x6: shares of cuBLAS SGEMM"
    for text in ("bf16 Gluon", "fp8 CUDA", "1025", "s18", "90", "fp8: B by columns", emulated):
        assert text in svg, text
    assert "s17" not in svg and "s19" not in svg
    named = [shape.sizes for shape in workloads.named_shapes()]
    found = drawn("shapes", rows("shapes", named))
    assert found.keys() == {"shapes_tensor_cores"}
    assert all(
        text in found["shapes_tensor_cores"] for text in ("Llama 3 qkv (2048", "s18 45", "s18 90", "geometric mean")
    )


def test_a_mode_with_one_rung_names_it_once_and_means_leave_out_failed_controls(drawn, tmp_path):
    problems = [(1, 4096, 4096), (2048, 6144, 4096)]
    only = [each for each in rows("shapes", problems) if each.stage[:3] == "s18" and each.math == "bf16"]
    failed = dataclasses.replace(only[0], stage=CONTROL, backend=CONTROL, dialect="", verdict="UNSURE")
    svg = drawn("shapes", [*only, failed])["shapes_tensor_cores"]
    assert "bf16 s18" in svg and "s18 45" not in svg and "geometric mean, without †" in svg
    assert svg.count("<!-- 90 -->") == 2 * 3 and svg.count("<!-- 45 -->") == 3  # that of batch 1 is in no mean
    assert "geometric mean, " not in drawn("shapes", only, tmp_path / "only")["shapes_tensor_cores"]


def test_modes_have_a_panel_for_each_math(drawn):
    cold = rows("modes", [(256,) * 3, (4096,) * 3])
    timed = [
        dataclasses.replace(each, mode=mode, median_us=each.median_us * share)
        for each in cold
        for mode, share in ((COLD, 1.0), (WARM, 0.8), (GRAPH, 0.6))
    ]
    found = drawn("modes", timed)
    assert found.keys() == {"modes_tensor_cores"}
    assert all(
        f"{style.label_of(gemm_ref.stages_in(math)[-1].id)} {math}" in found["modes_tensor_cores"]
        for math in TENSOR_MODES
    )


def test_what_is_said_of_tensor_cores(tmp_path):
    assert sweeps.block("tensor_sweeps", tmp_path) == "not measured"
    store.save(tmp_path, "squares", rows("squares", [(256,) * 3, (1025,) * 3]), ENVIRONMENT)
    store.save(tmp_path, "shapes", rows("shapes", [(1, 4096, 4096), (2048, 6144, 4096)]), ENVIRONMENT)
    text = sweeps.block("tensor_sweeps", tmp_path)
    assert "| bf16 | CUDA | 90.0% | 256 | 64% | 45.0% | 1 x 4096 x 4096 |" in text and "NVIDIA Fixture" in text
    assert "fp32" not in text and ".png" not in text
    (tmp_path / "squares_tensor_cores.png").touch()
    assert f"{tmp_path.name}/squares_tensor_cores.png" in sweeps.block("tensor_sweeps", tmp_path)
    answer = Answer(tmp_path)
    assert list(answer.shapes) == TENSOR_MODES
    assert [f"{100 * mean:.0f}" for mean in answer.shapes["tf32"].mean.values()] == ["64"] * 3
    assert answer.paragraphs() == []  # which no mode was timed for at the size of the tables
    assert "90.0% in fp8 (at 256)" in outcome("squares", store.read(tmp_path, "squares"))
    assert "360% in fp16x3 (of cuBLAS SGEMM) (at 256)" in outcome("squares", store.read(tmp_path, "squares"))
    assert "at worst 45.0% (tf32, CUDA, 1 x 4096 x 4096)" in outcome("shapes", store.read(tmp_path, "shapes"))


def test_no_row_is_made_up_for_a_mode_that_was_not_timed():
    for name in ("squares", "shapes", "modes"):
        frame = store.read(store.PUBLISHED, name)
        in_fp32 = frame[frame["math"] == "fp32"]
        assert "ensor cores" not in outcome(name, in_fp32) and "fp32" not in outcome(
            name, frame[frame["math"] == "fp16"]
        )


def test_every_way_of_taking_a_time_is_set_beside_the_cold_one(seen, drawn, monkeypatch):
    monkeypatch.setattr(timers, "missing_for", lambda way: "do_bench: no Triton" if way == DO_BENCH else "")
    own = chosen(timers)
    assert {each.math for each in own} == {"fp32", "bf16"} and {each.math for each in chosen(timers, math="fp8")} == {
        "fp8"
    }
    skipped = list(timers.measure(Request("cuda"), own, Bars(None)))
    assert {mode for _, mode, _ in seen} == {*WAYS} - {DO_BENCH}
    assert {(each.status, each.detail) for each in skipped} == {(SKIPPED, "do_bench: no Triton")}
    slow = {HOST: 4.0, EVENTS: 2.0, WARM: 0.5}
    timed = [
        dataclasses.replace(row("timers", each, Problem(256, 256, 256, each.math), share), mode=way, median_us=us)
        for each in own
        for way in WAYS
        for share in [0.5 if way == HOST and each.dialect else 0.9 if each.dialect else 1.0]
        for us in [slow.get(way, 1.0) * 10 / share]
    ]
    found = drawn("timers", [*timed, *skipped])["timers"]
    assert all(text in found for text in ("host clock", "do_bench", "M = N = K = 256", "90%", "50%"))
    text = outcome("timers", pd.DataFrame([dataclasses.asdict(each) for each in timed]))
    assert "50% (warm)" in text and "400% (host clock)" in text and "50% of its speed by one timer (host clock)" in text
