"""What tests of CUDA files share."""

from __future__ import annotations

import pytest

from experiments.check import cost
from experiments.check.command import check
from experiments.check.subject import Options
from experiments.selection import make_request
from tests.experiments.check.helpers import SIZE


@pytest.fixture
def run_text(tmp_path, monkeypatch):
    """`run_text(text, sizes, kernel="multiply")`: the report on a file of this text, in a project of its own."""
    monkeypatch.setattr(cost, "count", lambda subject, problem, quote: ([], [], ""))

    def run(text: str, sizes=SIZE, **options):
        path = tmp_path / "project" / "src" / "kernel.cu"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return check(path, Options(**options), make_request((), (), sizes, "", "cpu"))

    return run
