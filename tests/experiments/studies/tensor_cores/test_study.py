"""`tensor_cores`: which contenders take part at which problems."""

from __future__ import annotations

import gemm_ref
from experiments.progress import Bars
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
