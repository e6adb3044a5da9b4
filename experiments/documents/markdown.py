"""Tables of the documents."""

from __future__ import annotations

from collections.abc import Sequence


def table(lines: Sequence[Sequence[str]]) -> str:
    """Markdown of a table: its head, a line of `---` or `---:` for each column, and its rows."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
