"""The learner's files in the working folder, which are the only state of the course."""

from __future__ import annotations

from pathlib import Path

from experiments.learn import grading
from experiments.learn.course import Exercise
from gemm_ref.build import write_whole

FOLDER = Path("learn")


def path_of(exercise: Exercise) -> Path:
    return FOLDER / exercise.file_name


def prepare(exercise: Exercise) -> Path:
    """Writes the start file, unless there is a file already; returns its path."""
    path = path_of(exercise)
    if not path.is_file():
        write_whole(path, exercise.start)
    return path


def restart(exercise: Exercise) -> Path | None:
    """Writes the start file again; returns where the edited one went, if there was one."""
    path, old = path_of(exercise), None
    if path.is_file() and path.read_bytes() != exercise.start.encode():
        taken = sum(1 for _ in FOLDER.glob(f"{path.name}.old*"))
        old = path.replace(path.with_name(f"{path.name}.old{taken + 1}"))
    write_whole(path, exercise.start)
    return old


def state(exercise: Exercise) -> str:
    """Returns how far a learner is, in words."""
    path = path_of(exercise)
    if not path.is_file():
        return "not started"
    if last := grading.last_grade(exercise, path):
        return last.state
    return "started" if path.read_bytes() == exercise.start.encode() else "edited, not graded yet"
