"""The documents: links and anchors resolve, every published picture is shown, pages open with their summary."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch

from experiments.cli import app
from experiments.records.store import PUBLISHED
from tests.imports import ROOT

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, *sorted(ROOT.glob("*.md"))]
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def text_of(page: Path) -> str:
    """A page without its fenced code."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures that are in this repo."""
    text = re.sub(r"`[^`\n]*`", "", text_of(page))
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<img src="([^"]+)"', text)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may end in, as GitHub forms it."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        found.add(next(name for number in range(99) if (name := slug + f"-{number}" * bool(number)) not in found))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    for target in links(page):
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists() and file.is_relative_to(ROOT), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}: {file.name} has no such heading"


def test_every_published_picture_is_shown_or_linked():
    pictures = {path.relative_to(ROOT).as_posix() for path in PUBLISHED.glob("*.png")}
    assert pictures
    shown = {(page.parent / target).resolve().relative_to(ROOT).as_posix() for page in DOCS for target in links(page)}
    assert not pictures - shown, "no page of docs/ shows or links them"


def test_every_command_is_in_the_list():
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    listed = re.findall(r"^\| `([a-z]+)[ `]", text_of(ROOT / "docs" / "commands.md"), re.MULTILINE)
    assert set(listed) - {"make", "pip"} == commands


@pytest.mark.parametrize("lost", [0, 8])
def test_the_program_that_shows_a_lost_tail(monkeypatch, capsys, lost):
    """On the CPU, at small sizes, with a product that loses the end of K, or does not."""
    page = (ROOT / "docs/found.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^ *```python\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    program = textwrap.dedent(program).replace('"cuda"', '"cpu"')
    program = program.replace("11528, range(8, 129, 8)", "24, range(8, 17, 8)")
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: torch.mm(a[:, : 24 - lost], b[: 24 - lost]))
    exec(program, {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(f": {4 if lost else 0} wrong of 4" in line for line in lines)
