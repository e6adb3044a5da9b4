"""The documents: links and anchors resolve, every published picture is shown, pages open with their summary."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

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
