"""What all pages have in common: the theme, and sources in colour."""

from pathlib import Path


def theme() -> str:
    """The style sheet that each page begins with."""
    return (Path(__file__).resolve().parent / "theme.css").read_text(encoding="utf-8")
