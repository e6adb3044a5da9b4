"""Markdown of tables, for the blocks of the experiments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, docs_page, join_words, kernel_name, name_defaults

__all__ = ["NOT_MEASURED", "defaults", "listed", "named", "page", "table"]
named, defaults, listed, page = kernel_name, name_defaults, join_words, docs_page


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """The Markdown of a table whose first columns hold `words`, and the others numbers."""
    return Table.of(head, rows, words).to_markdown()
