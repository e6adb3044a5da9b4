"""What tests of the course share."""

from __future__ import annotations

import pytest

from experiments.learn import grading
from gemm_ref.build import CACHE, digest, write_whole


@pytest.fixture
def grade(monkeypatch, tmp_path):
    """`grade(exercise, text)`: the grade of a file with this text, which is not kept beside the user's own.

    A Python file is where it was in earlier runs, as its sizes are, since what Triton has compiled is cached by both.
    """
    monkeypatch.setattr(grading, "CACHE", tmp_path)

    def graded(exercise, text):
        folder = tmp_path if exercise.dialect == "cuda" else CACHE / "checked-by-tests" / digest(text)
        write_whole(folder / exercise.file_name, text)
        return grading.grade(exercise, folder / exercise.file_name, seed=0)

    return graded
