"""The kernels' files as the page shows them: coloured, and the five fields of a .cu's header apart."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers.c_like import CudaLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Token, _TokenType

from gemm_ref import DIALECTS, Stage
from gemm_ref.dialect import BY_HAND

_ROOT = Path(__file__).resolve().parents[2]
_FIELD = re.compile(r"// (Idea|Changed|Tile/threads|Cost|Requires): +(.*)")
_INDENT = re.compile(r"^\s*((//|#)\s*)?")
_DEEPEST = 20  # characters; further in, too little of a narrow column would be left
_TEXT_COLUMN = 17  # where the text of a field begins; what is further in is a list

# A kind of token -> the class that the style sheet colours; the nearest ancestor counts.
_CLASSES = {
    Token.Comment: "c",
    Token.Comment.Preproc: "d",
    Token.Comment.PreprocFile: "s",
    Token.Keyword: "k",
    Token.Keyword.Type: "t",
    Token.Name.Builtin: "t",
    Token.Name.Decorator: "d",
    Token.Name.Function: "f",
    Token.Name.Class: "f",
    Token.Number: "n",
    Token.String: "s",
    Token.String.Doc: "c",
}


@dataclass(frozen=True)
class Source:
    """One file of a rung; `html` has a <span class=l> a line."""

    dialect: str
    label: str
    path: str  # within the repo
    html: Markup


def sources(stage: Stage) -> list[Source]:
    """The files of a rung, in the order of its dialects."""
    found = []
    for dialect in (DIALECTS[name] for name in stage.dialects):
        path = _ROOT / dialect.file_of(stage.id)
        html = _coloured(path.read_text(encoding="utf-8"), path.suffix)
        found.append(Source(dialect.name, dialect.title, dialect.file_of(stage.id), html))
    return found


@functools.cache
def _coloured(text: str, suffix: str) -> Markup:
    return colour(text, CudaLexer(stripnl=False) if suffix == ".cu" else PythonLexer(stripnl=False))


def header(stage: Stage) -> dict[str, str]:
    """The five fields that open a rung's file by hand: Idea, Changed, Tile/threads, Cost, Requires."""
    fields: dict[str, str] = {}
    name = ""
    for line in (_ROOT / DIALECTS[BY_HAND].file_of(stage.id)).read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        if match := _FIELD.match(line):
            name, fields[match[1]] = match[1], match[2]
        elif name:
            text = line.removeprefix("//").strip()
            is_item = line.index(text) > _TEXT_COLUMN
            fields[name] += ("\n" if is_item else " ") + text
    return fields


def colour(text: str, lexer: Lexer) -> Markup:
    """The text as HTML, a span a line and within it one a coloured token. No token reaches over a line's end.

    A line's `--i` is how far in its text begins, behind a comment's mark too: where it goes on if it has to be broken.
    """
    indents = [min(len(line) - len(_INDENT.sub("", line)), _DEEPEST) for line in text.splitlines()]
    lines: list[str] = []
    line: list[str] = []
    for kind, value in lexer.get_tokens(text):
        name = _class_of(kind)
        for part in re.split(r"(\n)", value):
            if part == "\n":
                lines.append("".join(line))
                line = []
            elif part:
                line.append(f"<span class={name}>{escape(part)}</span>" if name else str(escape(part)))
    spans = (f"<span class=l style=--i:{i}>{line}\n</span>" for i, line in zip(indents, lines, strict=True))
    return Markup("".join(spans))


def _class_of(kind: _TokenType) -> str:
    return next((_CLASSES[ancestor] for ancestor in _lineage(kind) if ancestor in _CLASSES), "")


def _lineage(kind: _TokenType | None) -> Iterator[_TokenType]:
    while kind is not None:
        yield kind
        kind = kind.parent
