"""What tests of CUDA files share."""

from __future__ import annotations

import pytest

from experiments.check import cost
from tests.experiments.check.helpers import SIZE, check_file


@pytest.fixture
def uncounted(monkeypatch):
    """The cost of a kernel is not counted; other tests look at that."""
    monkeypatch.setattr(cost, "count", lambda subject, problem, quote: ([], [], ""))


@pytest.fixture
def run_text(tmp_path, uncounted):
    """`run_text(text, sizes, kernel="multiply")`: the report on this text, in a project with other `files`."""

    def run(text: str, sizes=SIZE, files=(), **options):
        for name, content in {**dict(files), "src/kernel.cu": text}.items():
            path = tmp_path / "project" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return check_file(path, sizes, **options)

    return run
