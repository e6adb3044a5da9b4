"""What pages say of a kernel's predicted time: a sentence, and the share of each line of its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True)
class TimedFile:
    """The predicted time of a kernel, for readers of the file that it is defined in."""

    says: str
    lines: Mapping[int, tuple[str, str]]  # by line: its share of the time, and what that consists of


def mark_lines(lines: Iterable[Markup], time: TimedFile | None) -> Markup:
    """The lines of `coloured.colour_source` in one text, with their shares of the time."""
    shares = time.lines if time else {}
    marked = (_mark(line, *shares[number]) if number in shares else line for number, line in enumerate(lines, 1))
    return Markup("").join(marked)


def _mark(line: Markup, share: str, what: str) -> Markup:
    start = f'<span class=l data-time={share} title="{escape(what)}" style=--t:{share};--i:'
    return Markup(str(line).replace("<span class=l style=--i:", start, 1))
