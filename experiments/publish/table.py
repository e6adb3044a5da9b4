"""The one table: cells as texts, rendered as Markdown for README and docs, as HTML or packed JSON for pages."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from markupsafe import Markup

from experiments.publish.pages import deflate

TEXT, PROSE, NUMBER, SIZE = "text", "prose", "number", "size"  # kinds of columns; prose may be broken into lines
_CELL_CLASSES = {TEXT: "t", PROSE: "p"}  # of the style sheet, which sets the others to the right


@dataclass(frozen=True)
class Column:
    """The head of a column; `kind` says how it is set and sorted. A size is `4096`, or `128×128×65536`."""

    name: str  # in the CSV, where it comes from one
    label: str
    kind: str = NUMBER


@dataclass(frozen=True)
class Select:
    """A choice among the values of one column."""

    label: str
    column: int
    options: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of texts below a head. Cells may hold Markdown's code and bold type."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    selects: tuple[Select, ...] = ()

    @classmethod
    def of(cls, head: Sequence[str], rows: Iterable[Sequence[str]], texts: int | Collection[int] = 1) -> Table:
        """A table whose first `texts` columns, or those at these places, hold words, and the others numbers."""
        places = range(texts) if isinstance(texts, int) else texts
        columns = tuple(Column("", label, TEXT if place in places else NUMBER) for place, label in enumerate(head))
        return cls(columns, tuple(tuple(row) for row in rows))

    def to_markdown(self, is_compact: bool = False) -> str:
        """Numbers are set to the right. An empty cell is two blanks, or one in a compact table."""
        rule = ("---" if column.kind == TEXT else "---:" for column in self.columns)
        lines = [f"| {' | '.join(line)} |" for line in ([column.label for column in self.columns], rule, *self.rows)]
        return "\n".join(" ".join(line.split()) if is_compact else line for line in lines)

    def to_html(self, style: str = "rows") -> Markup:
        """A whole `<table>` without sorting, of the classes `style`; the first column heads its row."""
        head = Markup().join(
            Markup('<th scope="col" class="{}">{}</th>').format(column.kind, column.label) for column in self.columns
        )
        top = Markup("<thead><tr>{}</tr></thead>").format(head) if any(column.label for column in self.columns) else ""
        classes = [_CELL_CLASSES.get(column.kind, "n") for column in self.columns[1:]]
        rows = []
        for first, *others in self.rows:
            cells = map(Markup("<td class={}>{}</td>").format, classes, others)
            rows.append(Markup('<tr><th scope="row">{}</th>{}</tr>\n').format(first, Markup().join(cells)))
        return Markup('<table class="{}">{}<tbody>{}</tbody></table>').format(style, top, Markup().join(rows))

    @property
    def packed(self) -> str:
        """Columns, choices and rows as JSON, in base64 of raw deflate: the page's script unpacks what is opened.

        A tenth of the rows' size as HTML, and the page opens without 100,000 cells.
        """
        content = {
            "columns": [asdict(column) for column in self.columns],
            "selects": [asdict(select) for select in self.selects],
            "rows": self.rows,
        }
        return deflate(json.dumps(content, separators=(",", ":")).encode())
