"""What all commands write to, and the exit code of one that found a fault."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

FAILED = 1

out = Console()
err = Console(stderr=True)


def tell(text: str, console: Console, style: str = "") -> None:
    """Print as it is: no markup, no colours for paths and numbers, and lines as long as they are."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def format_choices(names: Iterable[str]) -> str:
    """Returns the names that an option takes as an enumeration: `cuda, triton or gluon`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
