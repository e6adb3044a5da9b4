"""A course that grades itself without a GPU: `python -m experiments learn`, or in a notebook.

    from experiments.learn import exercise, grade

    exercise(1)  # shows the text; the start file is learn/01_guard.cu
    grade(1)  # grades that file as it is now

`course` reads the exercises, `files` has the learner's files, `grading` grades one with `experiments.check`; `command`
shows them on a terminal, `page` as HTML.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shown:
    """What a notebook shows as HTML, and a Python prompt as text."""

    text: str
    html: str
    passed: bool = False  # of a grade: whether every goal is reached

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def exercise(name: str | int, dialect: str = "") -> Shown:
    """Returns an exercise's text and hints, and writes its start file to `learn/` unless there is a file.

    name: its number or its id. dialect: cuda or triton; by default CUDA where the exercise has it. Raises UsageError
    for an exercise or a dialect that there is not.
    """
    from experiments.learn import course, files, page

    found = course.find(name, dialect)
    path = files.prepare(found)
    return Shown(f"{found.title}\n\n{found.text}\n\nYour file: {path}", page.render_exercise(found))


def grade(name: str | int, dialect: str = "", gpu: str = "h200") -> Shown:
    """Returns the grade of the file in `learn/` as it is now.

    gpu: the one that the time is predicted for, h200 or h100. Raises UsageError as `exercise`, and for such a GPU.
    """
    from rich.console import Console

    from experiments.learn import command, course, files, grading, page

    found = course.find(name, dialect)
    path = files.prepare(found)
    made = grading.grade(found, path, gpu)
    console = Console(width=120, force_jupyter=False)
    with console.capture() as capture:
        command.show_grade(made, path, console)
    return Shown(capture.get(), page.render_grade(made), made.passed)
