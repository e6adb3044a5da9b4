"""What `experiments learn` does: the learner's files, their grades, hints and the solution, on a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from experiments.learn import course, files, grading
from experiments.learn.course import Exercise
from experiments.learn.grading import Grade
from experiments.records.request import CONTROL, UsageError
from gemm_ref.build import write_whole

MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("–", "dim")}
STYLES = {"+": "green", "-": "red", "@": "cyan"}  # of the lines of a diff
_LOOK_S = 0.2  # between two looks at a file that is watched


@dataclass(frozen=True)
class Machine:
    """Where kernels are timed."""

    gpu: str  # for which the time is predicted
    on_gpu: bool = False  # whether they are timed on this machine's GPU as well
    trust: bool = False  # whether the files' code may run without a cage


def show_course(out: Console) -> None:
    """Prints a row per exercise, with the state of the learner's files."""
    table = Table(
        title="python -m experiments learn NUMBER starts an exercise, and grades it",
        title_justify="left",
        title_style="bold",
    )
    for column in ("", "exercise", *course.SUFFIXES):
        table.add_column(column)
    for each in course.ids():
        found = {dialect: course.find(each, dialect) for dialect in course.dialects_of(each)}
        states = [files.state(found[dialect]) if dialect in found else "" for dialect in course.SUFFIXES]
        cells = (Text(text, "green" if text == "passed" else "") for text in states)
        table.add_row(str(int(each[:2])), next(iter(found.values())).title, *cells)
    out.print(table)


def show_text(exercise: Exercise, out: Console) -> None:
    """Prints the task."""
    out.print(Markdown(f"# {exercise.number}. {exercise.title}\n\n{exercise.text}"))
    out.print()


def answer(exercise: Exercise, hints: int, solution: bool, reset: bool, out: Console) -> None:
    """Prints so many hints and the solution, and starts again, as is wanted. Raises UsageError for a fourth hint."""
    if hints > len(exercise.hints):
        raise UsageError(f"there are {len(exercise.hints)} hints: --solution shows the rest")
    if hints:
        show_text(exercise, out)
    for number, hint in enumerate(exercise.hints[:hints], 1):
        _say(out, f"Hint {number}: {hint.text}")
        if hint.line:
            _say(out, (f"    {exercise.line_with(hint.line)}", "cyan"))
    for line in exercise.solution_diff.split("\n") if solution else ():
        _say(out, (line, STYLES.get(line[:1], "")))
    if reset:
        old = files.restart(exercise)
        _say(out, f"{files.path_of(exercise)} is the start file again" + (f"; yours is {old}" if old else ""))


def grade_file(
    exercise: Exercise, machine: Machine, watch: bool, out: Console, busy: Callable[[], AbstractContextManager]
) -> bool:
    """Grades the learner's file, which is made if need be, and prints the grade; returns whether it has passed.

    watch: at each save, until KeyboardInterrupt. busy: a context that shows that something takes long.
    """
    path, passed = files.prepare(exercise), False
    if path.read_bytes() == exercise.start.encode():  # it is new to the learner
        show_text(exercise, out)
    if watch:
        _say(out, (f"{path} is graded at each save, until Ctrl-C", "dim"))
    for _ in _saves(path) if watch else (None,):
        with busy():
            grade = grading.grade(exercise, path, machine.gpu, machine.on_gpu, machine.trust)
        show_grade(grade, path, out)
        passed = grade.passed
        later = [each for each in course.ids()[exercise.number :] if exercise.dialect in course.dialects_of(each)]
        if not passed:
            again = course.command_of(exercise.id, exercise.dialect)
            _say(out, (f"{again} --hint shows the task again, with a hint", "dim"))
        elif later:
            _say(out, (f"{course.command_of(later[0], exercise.dialect)} is the next", "dim"))
    return passed


def _saves(path: Path) -> Iterator[None]:
    """Yields at once, and then whenever the file was saved."""
    seen = None
    while True:
        with contextlib.suppress(FileNotFoundError):  # for a moment, where an editor replaces it
            now = path.stat().st_mtime_ns
            if now != seen:
                seen = now
                yield
        time.sleep(_LOOK_S)


def show_grade(grade: Grade, path: Path, out: Console) -> None:
    """Prints a line per goal, and explains the first failing one with the learner's own line."""
    _say(out, (grade.state, "bold green" if grade.passed else "bold red"), f"  {path}, at {grade.sizes}")
    if grade.refusal:
        _say(out, grade.refusal)
    for result in grade.results:
        _say(out, "  ", MARKS[result.passed], f" {result.text}")
    if failing := grade.first_failing:
        if failing.line:
            _say(out, f"\n{path}:{failing.line}  ", (failing.quote, "cyan"))
        _say(out, failing.why)
    if grade.timed:
        _say(out, grade.timed)


def _say(out: Console, *parts: str | tuple[str, str]) -> None:
    text = Text.assemble(*parts)
    text.plain = text.plain.translate(CONTROL)
    out.print(text, soft_wrap=True)


def write_page(target: Path, exercise: Exercise | None) -> None:
    """Writes the page of the course, open at an exercise. Raises CannotWrite."""
    from experiments.learn import page  # it loads pygments, which nothing else here needs

    write_whole(target, page.render(exercise.id if exercise else ""))
