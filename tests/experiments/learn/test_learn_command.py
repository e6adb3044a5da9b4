"""`experiments learn`: the list, a learner's files, hints, the solution, watching; and what docs/start.md lists."""

from __future__ import annotations

import os
import threading
import time

import pytest

from experiments.learn import command, course, files, grading
from experiments.learn.grading import Grade, Result
from tests.imports import ROOT


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(grading, "CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_made_graded_listed_and_never_overwritten(invoke, folder):
    assert "not started" in invoke("learn").said
    first = invoke("learn", "1", "--html", "page.html")
    path = folder / "learn" / "01_guard.cu"
    assert first.exit_code == 1 and "0 of 2 goals" in first.said and path.read_text() == course.find(1).start
    assert "Change the kernel so that" in first.said and "learn 1 --hint shows the task" in first.said
    assert "learn 1 --dialect triton --hint shows the task" in invoke("learn", "1", "--dialect", "triton").said
    assert "acc += A[(size_t)row * K + k]" in first.said and "0 of 2 goals" in (folder / "page.html").read_text()
    path.write_text(course.find(1).solution)
    assert "edited, not graded yet" in invoke("learn").said
    passed = invoke("learn", "01_guard")
    assert (
        passed.exit_code == 0 and "learn 2 is the next" in passed.said and path.read_text() == course.find(1).solution
    )
    assert "passed" in invoke("learn").said
    assert "yours is learn/01_guard.cu.old1" in invoke("learn", "1", "--reset").said
    assert path.read_text() == course.find(1).start and "0 of 2 goals" in invoke("learn").said


def test_a_file_that_is_not_utf8_and_a_folder_in_its_place(invoke):
    path = files.prepare(course.find(1))
    path.write_bytes(course.find(1).solution.encode() + b"// d\xe9j\xe0 vu\n")  # Latin-1
    assert invoke("learn", "1").exit_code == 0 and "passed" in invoke("learn").said
    assert "yours is" in invoke("learn", "1", "--reset").said
    path.unlink()
    path.mkdir()
    assert "not started" in invoke("learn").said
    refused = invoke("learn", "1")
    assert refused.exit_code == 2 and "01_guard.cu cannot be written" in refused.said


def test_hints_and_the_solution(invoke):
    exercise = course.find(2)
    shown = invoke("learn", "2", "--hint", "--hint").said
    assert all((hint.text in shown) == (hint is not exercise.hints[2]) for hint in exercise.hints)
    assert "+ const int row = blockIdx.y * BLOCK_M + threadIdx.y;" in invoke("learn", "2", "--solution").said
    too_many = invoke("learn", "2", *["--hint"] * 4)
    assert too_many.exit_code == 2 and "there are 3 hints" in too_many.said
    assert not files.FOLDER.exists()


def test_a_watched_file_is_graded_at_each_save(monkeypatch):
    exercise, texts = course.find(1), []

    def grade(exercise, path, *_) -> Grade:
        texts.append(path.read_text())
        if len(texts) == 3:
            raise KeyboardInterrupt
        return Grade(exercise.id, "cuda", "", (Result("right", "right", True),))

    def save() -> None:
        for number in range(2):
            while len(texts) <= number:
                time.sleep(0.01)
            temporary = path.with_suffix(".new")
            temporary.write_text(f"// {number}")
            os.utime(temporary, ns=(number, number))
            temporary.replace(path)  # as editors do

    path = files.prepare(exercise)
    monkeypatch.setattr(grading, "grade", grade)
    saves = threading.Thread(target=save)
    saves.start()
    with pytest.raises(KeyboardInterrupt):
        command.grade_file(exercise, command.Machine("h200"), True, command.Console(quiet=True), lambda: open(path))
    saves.join()
    assert texts == [exercise.start, "// 0", "// 1"]


def test_start_md_lists_every_exercise():
    rows = [line for line in (ROOT / "docs" / "start.md").read_text().split("\n") if line.startswith("| ")]
    listed = [line.split(" | ")[:2] for line in rows if line[2].isdigit()]
    assert listed == [[f"| {int(each[:2])}", course.find(each).title] for each in course.ids()]


def test_an_endless_loop_ends(folder, monkeypatch):
    monkeypatch.setattr(grading, "BUDGET_S", 1.0)
    exercise = course.find(1)
    path = files.prepare(exercise)
    path.write_text(exercise.solution.replace("++k)", "k = k * 2)"))
    made = grading.grade(exercise, path)
    assert not made.passed and ("a loop" in made.refusal or "endless loop" in made.results[0].text), made
