"""The text of a user's file, in whatever encoding an editor left it."""

from __future__ import annotations

import io
from pathlib import Path

from experiments.records.request import UsageError


def read(path: Path) -> str:
    """Returns the text at `path` with newlines as line ends: UTF-8, with a byte order mark or without, else Latin-1.

    CUDA's words are ASCII in both, so what is not is in comments. Raises UsageError for a file that is no text.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if b"\0" in content:
        raise UsageError(f"{path.name} is not text, or is in UTF-16: pass a source file, saved as UTF-8")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return io.StringIO(text, newline=None).read()
