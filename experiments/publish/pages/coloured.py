"""Sources as HTML in colour, with what each line takes of a predicted time; base.css has the colours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape
from pygments.lexers.c_like import CudaLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Token, _TokenType

_INDENT = re.compile(r"^\s*((//|#)\s*)?")
_DEEPEST = 20  # characters; further in, too little of a narrow column would be left

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
class TimedFile:
    """The predicted time of a kernel, for readers of the file that it is defined in."""

    says: str
    lines: Mapping[int, tuple[str, str]]  # by line: its share of the time, and what that consists of


def colour_source(text: str, suffix: str) -> list[Markup]:
    """Each line of a source in a span, and in it one for each coloured token. No token reaches over a line's end.

    suffix: of the file's name: `.py`, or else CUDA. A line's `--i` is how far in its text begins, behind a comment's
    mark too: where it goes on if it has to be broken.
    """
    lexer = PythonLexer(stripnl=False) if suffix == ".py" else CudaLexer(stripnl=False)
    indents = [min(len(line) - len(_INDENT.sub("", line)), _DEEPEST) for line in text.removesuffix("\n").split("\n")]
    lines: list[str] = []
    line: list[str] = []
    for kind, value in lexer.get_tokens(text):
        name = next((_CLASSES[each] for each in _lineage(kind) if each in _CLASSES), "")
        for part in re.split(r"(\n)", value):
            if part == "\n":
                lines.append("".join(line))
                line = []
            elif part:
                line.append(f"<span class={name}>{escape(part)}</span>" if name else str(escape(part)))
    return [Markup(f"<span class=l style=--i:{i}>{line}\n</span>") for i, line in zip(indents, lines, strict=True)]


def _lineage(kind: _TokenType | None) -> Iterator[_TokenType]:
    while kind is not None:
        yield kind
        kind = kind.parent


def mark_lines(lines: Iterable[Markup], time: TimedFile | None) -> Markup:
    """The lines of `colour_source` in one text, with their shares of the time."""
    shares = time.lines if time else {}
    marked = (_mark(line, *shares[number]) if number in shares else line for number, line in enumerate(lines, 1))
    return Markup("").join(marked)


def _mark(line: Markup, share: str, what: str) -> Markup:
    start = f'<span class=l data-time={share} title="{escape(what)}" style=--t:{share};--i:'
    return Markup(str(line).replace("<span class=l style=--i:", start, 1))
