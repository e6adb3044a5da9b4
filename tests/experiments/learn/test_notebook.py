"""docs/learn.ipynb: every cell runs, and the grades are what the text around them says."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from experiments.learn import grading
from tests.imports import ROOT

NOTEBOOK = ROOT / "docs" / "learn.ipynb"
STATES = ["0 of 2 goals", "passed", "2 of 6 goals", "passed", "1 of 4 goals", "1 of 4 goals", "passed"]


def executed() -> Iterator[str]:
    """The HTML that the cells show, executed in this process: a kernel of Jupyter would import everything again."""
    names: dict = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            *statements, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(statements, []), "cell", "exec"), names)
            if not isinstance(last, ast.Expr):
                exec(compile(ast.Module([last], []), "cell", "exec"), names)
            elif shown := eval(compile(ast.Expression(last.value), "cell", "eval"), names):
                yield shown._repr_html_()


def test_the_notebook_runs_and_says_what_it_promises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(grading, "CACHE", tmp_path / "cache")
    shown = list(executed())
    states = [found[1] for html in shown if (found := re.search(r'<p class="state[^>]*><b>(.*?)</b>', html))]
    assert states == STATES and len(shown) == len(STATES) + 3  # three exercises
    assert sorted(path.name for path in (tmp_path / "learn").iterdir()) == [
        "01_guard.cu", "02_coalescing.cu", "03_two_barriers.cu",
    ]  # fmt: skip
