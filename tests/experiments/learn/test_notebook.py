"""docs/learn.ipynb: every cell runs, and the grades are what the text around them says."""

from __future__ import annotations

import ast
import importlib.util
import json
import re

from tests.imports import ROOT

NOTEBOOK = ROOT / "docs" / "learn.ipynb"
STATES = ["0 of 2 goals", "passed", "2 of 6 goals", "passed", "1 of 4 goals", "1 of 4 goals", "passed"]


def executed(folder) -> list[str]:
    """The HTML that the cells show: as nbclient executes them, or where it is not installed, by `exec`."""
    if not importlib.util.find_spec("nbclient"):
        return list(_in_this_process())
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": folder}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]


def _in_this_process():
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
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    shown = executed(tmp_path)
    states = [found[1] for html in shown if (found := re.search(r'<p class="state[^>]*><b>(.*?)</b>', html))]
    assert states == STATES and len(shown) == len(STATES) + 3  # three exercises
    assert sorted(path.name for path in (tmp_path / "learn").iterdir()) == [
        "01_guard.cu", "02_coalescing.cu", "03_two_barriers.cu",
    ]  # fmt: skip
