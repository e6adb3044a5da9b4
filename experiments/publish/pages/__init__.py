"""What the report, the explorer and the page of a checked kernel share: layout, style sheet and packed data."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from experiments.publish.templates import make_templates

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).resolve().parent


def make_page_templates(*folders: Path) -> jinja2.Environment:
    """The templates of one page, which extend base.html.j2 here; `embed("NAME")` puts a style sheet or a script in.

    folders: the page's own, and then those of pages from which it takes parts.
    """
    made = make_templates(*folders, FOLDER, is_html=True)

    def embed(name: str) -> Markup:
        path = next(path for path in (*(folder / name for folder in folders), FOLDER / name) if path.exists())
        return Markup(path.read_text(encoding="utf-8"))

    made.globals["embed"] = embed
    return made


def deflate(data: bytes) -> str:
    """Raw deflate in base64, which the browser's DecompressionStream reads."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(stream.compress(data) + stream.flush()).decode()
