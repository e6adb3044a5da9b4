"""Removes from preprocessed C++ what a program does not use: nvcc takes longer to parse its headers than for a kernel.

A declaration has no effect where nothing that is kept contains its name. Names are compared as words, without scopes
and types, so more is kept than is used: all overloads of a function, for example, and all operators of a type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""^[ \t]*\#[^\n]*\n  # a pragma, or the file and line that the next line comes from
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | [A-Za-z_]\w* | \d[\w.']* | :: | \n | [^\s\w]""",
    re.M | re.X,
)
_MARKER = re.compile(r'\s*#\s*(\d+)\s+("[^"]*")([ \d]*)')
_CLASS_KEYS = {"struct", "class", "union", "enum"}
_ATTRIBUTES = {"__attribute__", "alignas", "decltype", "noexcept", "throw", "asm", "__asm__", "__typeof__"}
_KEYWORDS = _ATTRIBUTES | _CLASS_KEYS
_KEYWORDS |= set(
    "alignof auto bool char char16_t char32_t const constexpr default delete do double else explicit".split()
)
_KEYWORDS |= set(
    "extern false final float for friend if inline int long mutable namespace new operator override".split()
)
_KEYWORDS |= set("private protected public return short signed sizeof static static_assert static_cast std".split())
_KEYWORDS |= set("template this true typedef typename unsigned using virtual void volatile wchar_t while".split())
_KEYWORDS |= set("__const __extension__ __inline __inline__ __restrict __restrict__ __volatile__".split())


class _Declaration(NamedTuple):
    """A declaration at namespace scope; `tokens` is empty where it is always kept."""

    line: int
    file: str
    start: int
    end: int
    tokens: list[str]


def trim(text: str, used: Iterable[str]) -> tuple[str, set[str]]:
    """Removes the declarations that neither the words `used` nor what is kept names.

    Returns the rest of the preprocessed `text`, and the names that it no longer declares.
    """
    declarations = list(_declarations(text))
    by_name: dict[str, list[int]] = {}
    kept = {number for number, declaration in enumerate(declarations) if not declaration.tokens}
    for number, declaration in enumerate(declarations):
        for name in _names(declaration.tokens):
            by_name.setdefault(name, []).append(number)
    waiting = set(used)
    while waiting:
        for number in by_name.pop(waiting.pop(), ()):
            if number not in kept:
                kept.add(number)
                waiting |= by_name.keys() & declarations[number].tokens
    parts = (declarations[number] for number in sorted(kept))
    rest = "".join(f"# {part.line} {part.file}\n{text[part.start : part.end].rstrip()}\n" for part in parts)
    return rest, set(by_name)


def words(text: str) -> set[str]:
    """Returns what may be a name in preprocessed C++."""
    return {token for token in _TOKEN.findall(text) if _is_name(token)}


def _is_name(token: str) -> bool:
    return (token[0].isalpha() or token[0] == "_") and token not in _KEYWORDS


def _declarations(text: str) -> Iterator[_Declaration]:
    line, file, depth = 1, '""', 0
    start, first_line, first_file, tokens = 0, 1, file, list[str]()
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif marker := _MARKER.match(token):
            line, file = int(marker[1]), " ".join((marker[2], *(flag for flag in marker[3].split() if flag in "34")))
        elif token.lstrip().startswith("#") or (not tokens and token in ";}"):
            if not tokens:
                yield _Declaration(line, file, match.start(), match.end(), [])
            line += token.count("\n")
        else:
            if not tokens:
                start, first_line, first_file, depth = match.start(), line, file, 0
            tokens.append(token)
            depth += (token in "([{") - (token in ")]}")
            opens_scope = token == "{" and depth == 1 and _opens_scope(tokens)
            if opens_scope or (depth == 0 and (token == ";" or (token == "}" and _is_function(tokens)))):
                always = opens_scope or tokens[:2] == ["using", "namespace"]
                yield _Declaration(first_line, first_file, start, match.end(), [] if always else tokens)
                tokens = []


def _opens_scope(tokens: list[str]) -> bool:
    return "namespace" in tokens[:2] or (tokens[0] == "extern" and len(tokens) == 3)


def _is_function(tokens: list[str]) -> bool:
    """Whether the body at the end of `tokens` ends a declaration: a class goes on up to a semicolon."""
    outline = [token for token, _ in _outline(tokens)]
    of_class = any(token in _CLASS_KEYS and after in "{:<" for token, after in zip(outline, outline[2:], strict=False))
    return "(" in outline and not of_class and "typedef" not in outline


def _names(tokens: list[str]) -> set[str]:
    """Returns the names that a declaration may declare; for an operator, those of its operands' types."""
    outline = _outline(tokens)
    outside = [token for token, _ in outline]
    pairs = list(zip(outside, outside[1:], strict=False))
    found = {after for token, after in pairs if token in _CLASS_KEYS}
    found |= {token for token, after in pairs if after in ("(=;{" if found else "(=;{[")}
    if ">" in found and not _CLASS_KEYS & set(outside):  # a specialization of a function or of a variable
        found |= {token for token, after in pairs if after == "<"}
    for bracket, content in outline:
        if (bracket == "{" and "enum" in outside) or (bracket == "(" and {"operator", "typedef"} & set(outside)):
            found.update(content)
    return {token for token in found if _is_name(token)}


def _outline(tokens: list[str]) -> list[tuple[str, list[str]]]:
    """Returns the tokens up to an initial value, without attributes and template parameters; brackets with content."""
    found: list[tuple[str, list[str]]] = []
    depth, angles, first = 0, 0, 0
    for number, token in enumerate(tokens):
        if token in ")]}":
            depth -= 1
            if depth == 0 and not angles and tokens[first - 1] not in _ATTRIBUTES:
                found.append((tokens[first], tokens[first + 1 : number]))
        elif token in "([{":
            first = number if depth == 0 else first
            depth += 1
        elif depth == 0 and token == "<" and (angles or tokens[number - 1] == "template"):
            angles += 1
        elif depth == 0 and token == ">" and angles:
            angles -= 1
        elif depth == 0 and not angles and token not in _ATTRIBUTES:
            found.append((token, []))
            if token == "=" and "operator" not in tokens[:number]:
                break
    return found
