"""What all pages have in common: the theme, compressed data, and sources in colour."""

import base64
import zlib
from pathlib import Path


def theme() -> str:
    """The style sheet that each page begins with."""
    return (Path(__file__).resolve().parent / "theme.css").read_text(encoding="utf-8")


def deflated(data: bytes) -> str:
    """Raw deflate in base64, which the browser's DecompressionStream reads."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(stream.compress(data) + stream.flush()).decode()
