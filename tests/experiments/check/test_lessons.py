"""The lessons of docs/start.md: each edit is made in a copy of the rung, and `check` shows what the page says."""

import re
import shlex
import shutil

import pytest

from cuda_kernels import source
from tests.imports import ROOT

PAGE = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
EDIT = re.compile(r"line (\d+) of\s+`([^`]+)`:\s+(?:write\s+`([^`]+)`\s+for|delete)\s+`([^`]+)`")
COMMAND = re.compile(r"^python -m experiments (check cuda_kernels/.*)$", re.MULTILINE)
SEEN = {
    "s04": ("right in every run, but", "race", "line 43"),
    "s05": ("49  a_smem", "store of a_smem        1920 requests of 32 wavefronts"),
    "s06": ("of 32 sectors, ideal 4", "of 16 wavefronts"),
    "s07": ("requests of 2 wavefronts, ideal 1", "requests of 8 wavefronts, ideal 4"),
}
LESSONS = {part[:3]: part for part in PAGE.split("\n### ") if EDIT.search(part)}


def test_every_lesson_is_tried():
    assert LESSONS.keys() == SEEN.keys()


@pytest.mark.parametrize("rung", SEEN)
def test_a_lesson_shows_what_it_says(invoke, tmp_path, monkeypatch, rung):
    line, file, new, old = EDIT.search(LESSONS[rung]).groups()
    shutil.copytree(source.FOLDER, tmp_path / "cuda_kernels", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    path = tmp_path / file
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    old, edited = " ".join(old.split()), lines[int(line) - 1]
    assert old in edited, f"{file}:{line} lacks {old}"
    lines[int(line) - 1] = edited.replace(old, " ".join((new or "").split()))
    path.write_text("".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = shlex.split(COMMAND.search(LESSONS[rung])[1])
    result = invoke(*command, "--gpu", "")  # a prediction takes half of the time, and no lesson is about it
    assert all(text in result.output for text in SEEN[rung]), result.output
