"""What all commands write to, and the exit code of one that found a fault."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.records.request import CONTROL

FAILED = 1

out = Console()
err = Console(stderr=True)


def tell(text: str, console: Console, style: str = "") -> None:
    """Print as it is: no markup, no colours for paths and numbers, long lines, and no commands to the terminal."""
    console.print(text.translate(CONTROL), style=style, markup=False, highlight=False, soft_wrap=True)


def format_choices(names: Iterable[str]) -> str:
    """Returns the names that an option takes as an enumeration: `cuda, triton or gluon`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str | Text, ...]]) -> None:
    """Prints a table to `out`; the cells of the first column are not broken into lines."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, no_wrap=index == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))  # no markup in paths
    out.print(table)


def mute_stderr() -> None:
    """Discards what native code still prints as the process ends: forty lines of Triton 3.9 about leaks of its own."""
    sys.stderr.flush()
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
