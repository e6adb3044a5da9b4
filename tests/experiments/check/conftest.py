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
    """`run_text(text, sizes, kernel="multiply")`: the report on a file of this text, in a project of its own."""

    def run(text: str, sizes=SIZE, **options):
        path = tmp_path / "project" / "src" / "kernel.cu"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return check_file(path, sizes, **options)

    return run
