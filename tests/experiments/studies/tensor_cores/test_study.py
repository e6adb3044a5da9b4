"""`tensor_cores`: who takes part at what problems, and what the picture shows."""

from __future__ import annotations

import gemm_ref
from experiments.progress import Bars
from experiments.publish import pictures
from experiments.publish.drawing import style
from experiments.records import store
from experiments.records.contenders import contenders
from experiments.records.request import Request
from experiments.studies.tensor_cores import study as tensor_cores
from gemm_ref import B_LAYOUTS
from tests.experiments.fixtures import select_contenders


def test_each_mode_and_layout_is_a_problem_of_its_own(seen):
    chosen = select_contenders(tensor_cores)
    assert {each for each in contenders() if each.math != "fp32" and "cuda" in each.devices} == set(chosen)
    assert list(tensor_cores.measure(Request("cuda"), chosen, Bars(None))) == []
    assert all({each.math for each in who} == {problem.math} for problem, _, who in seen)
    modes, problems = [math for math in gemm_ref.MATHS if math != "fp32"], [problem for problem, *_ in seen]
    found = [(problem.math, problem.b_layout, problem.m) for problem in problems]
    assert sorted(found) == sorted((math, layout, 4096) for math in modes for layout in B_LAYOUTS)


def test_the_picture_names_every_rung_and_says_what_there_is_not():
    drawn = pictures.render("tensor_cores", store.PUBLISHED, style.PAGE)
    shares = drawn[f"tensor_cores_vs_cublas{style.PAGE}"].decode()
    for item in gemm_ref.implementations():
        if item.math == "bf16":
            assert f">{item.stage.id.replace('_', ' ')} {gemm_ref.DIALECTS[item.dialect].title}<" in shares
    for text in ("bf16", "4096", "fp8: B by columns", "CUTLASS Hopper", "there is no such kernel"):
        assert text in shares, text
