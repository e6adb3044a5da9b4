"""The templates of pages and documents: one setting of jinja2 for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def templates(folder: Path = Path(__file__).parent, *, html: bool = False) -> jinja2.Environment:
    """The templates in a folder, or else those of the documents; `html`: what is put into them is escaped.

    A name that nothing gave is an error.
    """
    import jinja2

    loader = jinja2.FileSystemLoader(folder)
    return jinja2.Environment(
        loader=loader, autoescape=html, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
