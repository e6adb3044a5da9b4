"""Every exercise: its start file misses the goals that it should and no other, its solution reaches all of them."""

from __future__ import annotations

import re

import pytest

from experiments.learn import course, grading

FORMS = [(each, dialect) for each in course.ids() for dialect in course.dialects_of(each)]
each_form = pytest.mark.parametrize(("name", "dialect"), FORMS)


@pytest.fixture(autouse=True)
def grades_nowhere(monkeypatch, tmp_path):
    """Grades are not kept beside those of the user's own files."""
    monkeypatch.setattr(grading, "CACHE", tmp_path)


def grade(exercise, text, tmp_path):
    path = tmp_path / exercise.file_name
    path.write_text(text, encoding="utf-8")
    return grading.grade(exercise, path)


@each_form
def test_a_start_file_misses_the_goals_that_it_should_and_no_other(tmp_path, name, dialect):
    exercise = course.find(name, dialect)
    found = grade(exercise, exercise.start, tmp_path)
    assert not found.refusal
    assert {result.goal for result in found.results if result.passed is False} == set(exercise.fails)
    failing = found.first_failing
    if failing.line:
        assert failing.quote and failing.quote in exercise.start.split("\n")[failing.line - 1]


@each_form
def test_a_solution_reaches_every_goal_even_at_the_slow_end_of_the_interval(tmp_path, name, dialect):
    exercise = course.find(name, dialect)
    found = grade(exercise, exercise.solution, tmp_path)
    assert found.passed, (found.refusal, found.results)
    if exercise.speed:
        lowest = re.search(r"% of cuBLAS \((\S+) to", found.results[-1].text)
        assert lowest and float(lowest[1]) >= 100 * exercise.speed


@each_form
def test_hints_name_lines_of_the_start_file_and_the_text_is_short(name, dialect):
    exercise = course.find(name, dialect)
    assert len(exercise.hints) == 3 and any(hint.line for hint in exercise.hints)
    assert all(exercise.start.count(hint.line) == 1 for hint in exercise.hints if hint.line), exercise.hints
    assert len(exercise.text.split("\n")) < 25 and exercise.title
    assert exercise.start != exercise.solution and exercise.solution_diff
