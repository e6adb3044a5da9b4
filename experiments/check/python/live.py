"""The source of a function that a running program has: its file, or the cells of the notebook that defined it."""

from __future__ import annotations

import ast
import contextlib
import contextvars
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.check.python.untuned import plain
from experiments.records.request import UsageError
from gemm_ref.build import CACHE, digest, write_whole

_is_read = contextvars.ContextVar("is_read", default=False)  # a source is, in which `check` may be called again


@contextlib.contextmanager
def find_source(function: Callable[..., Any]) -> Iterator[tuple[Path, str]]:
    """Yields the file that defines a function, and its name in it; of a notebook a file with the text of its cells.

    Raises UsageError where there is no such file, and inside of itself: whoever reads the file calls nothing twice.
    """
    if _is_read.get():
        raise UsageError("it calls check, while its source is read")
    function = inspect.unwrap(plain(function))
    name, code = getattr(function, "__name__", ""), getattr(function, "__code__", None)
    cells = vars(sys.modules["__main__"]).get("In") if getattr(function, "__module__", "") == "__main__" else None
    if cells:  # IPython keeps the text of each there
        path = _write_cells(cells)
    elif code is not None and Path(code.co_filename).is_file():
        path = Path(code.co_filename)
    else:
        raise UsageError(f"the source of {name or function} is in no file: save it in one, and import it from there")
    token = _is_read.set(True)
    try:
        yield path, name
    finally:
        _is_read.reset(token)


def _write_cells(cells: Sequence[str]) -> Path:
    """Returns a file of the cells that are Python, in the order in which they were executed, without `%` and `!`."""
    texts = []
    for cell in cells:
        text = "\n".join(line for line in cell.splitlines() if not line.lstrip().startswith(("%", "!")))
        with contextlib.suppress(SyntaxError):  # such a cell was not executed either
            ast.parse(text)
            texts.append(text)
    path = CACHE / "cells" / digest(*texts) / "notebook.py"
    write_whole(path, "\n".join(texts))
    return path
