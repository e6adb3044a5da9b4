"""Every exercise: its start file misses the goals that it should and no other, its solution reaches all of them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from experiments.learn import course
from experiments.records import store
from experiments.records.rows import COLD
from gemm_ref import get_stage

FORMS = [(each, dialect) for each in course.ids() for dialect in course.dialects_of(each)]
# Time is predicted here once for a derived launch, and for those of exercises' own; other rungs are in predicted.csv.
PREDICTED = ("02_coalescing", "09_double_buffer", "13_mma_sync", "14_tma_box")
each_form = pytest.mark.parametrize(("name", "dialect"), FORMS)


@each_form
def test_a_start_file_misses_the_goals_that_it_should_and_no_other(grade, name, dialect):
    exercise = course.find(name, dialect)
    found = grade(exercise, exercise.start)
    assert not found.refusal
    assert {result.goal for result in found.results if result.passed is False} == set(exercise.fails)
    failing = found.first_failing
    if failing.line:
        assert failing.quote and failing.quote in exercise.start.split("\n")[failing.line - 1]


@each_form
def test_a_solution_reaches_every_goal_even_at_the_slow_end_of_the_interval(grade, name, dialect):
    exercise = course.find(name, dialect)
    exercise = exercise if name in PREDICTED else replace(exercise, speed=0.0)
    found = grade(exercise, exercise.solution)
    assert found.passed, (found.refusal, found.results)
    if exercise.speed:
        lowest = re.search(r"% of cuBLAS \((\S+) to", found.results[-1].text)
        assert lowest and float(lowest[1]) >= 100 * exercise.speed


@pytest.mark.parametrize(
    ("name", "dialect"), [form for form in FORMS if form[0] not in PREDICTED and course.find(*form).speed]
)
def test_the_rung_of_other_solutions_is_predicted_and_measured_to_be_as_fast(name, dialect):
    exercise = course.find(name, dialect)
    stage, _, variant = exercise.rung.partition(":")
    variant = get_stage(stage).find_variant(variant or "default", dialect)
    folder = store.PUBLISHED.parent / "nvidia-h200"
    rows, squares = store.read(folder, "predicted"), store.read(folder, "squares")
    row = _only(rows[rows["card"] == folder.name], stage=stage, variant=variant, dialect=dialect, math=exercise.math)
    cublas = _only(squares, backend="cublas", math=exercise.math, mode=COLD)
    for time_us in (row["high_us"], row["measured_us"]):
        assert row["tflops"] * row["predicted_us"] / time_us >= exercise.speed * cublas["tflops"]


def _only(frame, **values):
    """The one row with these values at M = N = K = 4096."""
    for column, value in {**values, "m": 4096, "n": 4096, "k": 4096}.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1, values
    return frame.iloc[0]


@each_form
def test_hints_name_lines_of_the_start_file_and_the_text_is_short(name, dialect):
    exercise = course.find(name, dialect)
    assert len(exercise.hints) == 3 and any(hint.line for hint in exercise.hints)
    assert all(exercise.start.count(hint.line) == 1 for hint in exercise.hints if hint.line), exercise.hints
    assert len(exercise.text.split("\n")) < 25 and exercise.title
    assert exercise.start != exercise.solution and exercise.solution_diff
