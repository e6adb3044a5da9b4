"""What CONTRIBUTING.md says of a new rung: s04 under a new id, in a copy of the repo."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OLD, NEW = "s04_shared_tile", "s99_copied_tile"
READMES, IDEA = ("README.md", "README.zh-CN.md"), "把 s04 再做一遍"
ENTRY = f"""\
    Rung(
        id="{NEW}",
        title="Copied tile",
        idea="what s04 does, once more",
        variants=_only(_SQUARE),
    ),
"""


def test_a_copied_rung_is_picked_up_or_what_is_missing_is_named(tmp_path):
    pytest.importorskip("triton")
    tree = tmp_path / "repo"
    skipped = shutil.ignore_patterns("build", ".*", "results", "*.egg-info")
    shutil.copytree(ROOT, tree, ignore=skipped)
    (tree / "experiments" / "results").symlink_to(ROOT / "experiments" / "results")
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", "from tests.test_add_a_rung import add; add()"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def add() -> None:
    """The steps, in a copy of the repo and in a process of its own; each asserts what is said before and after it."""
    registry = Path("gemm_ref/registry.py")
    text = registry.read_text(encoding="utf-8")
    end = re.search(r"^_LADDER = \(\n.*?^\)\n", text, re.MULTILINE | re.DOTALL).end() - len(")\n")
    registry.write_text(text[:end] + ENTRY + text[end:], encoding="utf-8")
    from experiments.publish.answer import words_of
    from gemm_ref import DIALECTS, STAGES

    assert list(STAGES)[-1] == NEW
    for dialect, about in DIALECTS.items():
        with missing(f"{dialect} has no file of {{'{NEW}'}}"):
            repo().test_a_file_for_every_entry_and_no_other(dialect)
        source = Path(about.file_of(OLD)).read_text(encoding="utf-8")
        Path(about.file_of(NEW)).write_text(source.replace(OLD, NEW), encoding="utf-8")
        repo().test_a_file_for_every_entry_and_no_other(dialect)
    repo().test_cuda_files_open_with_the_five_fields(Path(DIALECTS["cuda"].file_of(NEW)))

    where = ("--size", "33x35x34", "--device", "cpu", "--results", "out", "--fresh")
    run("run", "correctness", "--stage", NEW[:3], *where)
    rows = Path("out/correctness.csv").read_text(encoding="utf-8").splitlines()
    for dialect in DIALECTS:
        assert any(f"{NEW},default," in row and f",{dialect},fp32," in row and ",pass," in row for row in rows), dialect

    with missing(f"docs/ladder.md has no section of {NEW}: it begins '## {NEW}'"):
        repo().test_every_rung_has_its_section(STAGES[NEW])
    for readme in READMES:
        with missing(f"{readme} has no row of {{'{NEW}'}}"):
            repo().test_readme_has_a_row_for_every_rung_and_no_other(readme)
    assert f"readme.toml lacks the idea of {NEW} in [zh.ideas]" in run("readme", code=2)
    with Path("experiments/publish/readme.toml").open("a", encoding="utf-8") as words:
        words.write(f'{NEW} = "{IDEA}"\n')
    words_of.cache_clear()
    with Path("docs/ladder.md").open("a", encoding="utf-8") as page:
        page.write(f"\n## {NEW}\n\n<!-- {NEW}:begin -->\n<!-- {NEW}:end -->\n")
    run("readme")
    for readme, idea, none in zip(READMES, ("what s04 does, once more", IDEA), ("not measured", "未测"), strict=True):
        row = f"| [`{NEW}`](docs/ladder.md#{NEW})<br>{idea} | fp32 | {none}<br>"
        assert row in Path(readme).read_text(encoding="utf-8")


def repo():
    """tests/test_repo.py as the copy has it, read anew."""
    spec = importlib.util.spec_from_file_location("test_repo_of_the_copy", Path("tests/test_repo.py").resolve())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def missing(what: str) -> Iterator[None]:
    """Inside, a check must fail; what it compares or says names `what`."""
    try:
        yield
    except AssertionError as error:
        assert what in str(error), f"{error!s} does not name {what}"
        return
    raise AssertionError(f"nothing says that {what} is missing")


def run(*arguments: str, code: int = 0) -> str:
    """What the command line prints."""
    from typer.testing import CliRunner

    from experiments.cli import app

    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    assert done.exit_code == code, f"{arguments}: {done.exit_code}\n{done.output}\n{done.exception}"
    return done.output
