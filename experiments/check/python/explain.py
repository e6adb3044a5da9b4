"""What stops a user's function before its kernel runs, with the line of the user's file at which it does."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Iterator

from triton.compiler.errors import CompilationError

from experiments.check import source_text
from experiments.check.python.module import Module
from experiments.records.request import UsageError
from gemm_ref import ptx


class Stopped(UsageError):
    """The function raised an error, at a line of the file."""

    line = math.inf  # infinite where it came past its host code


@contextlib.contextmanager
def errors(module: Module, function: str) -> Iterator[None]:
    """Errors of the user's own code and of Triton's compiler as UsageError; faults of the kernel pass."""
    try:
        yield
    except (ptx.PtxError, UsageError, KeyboardInterrupt):
        raise
    except CompilationError as error:
        line, said = _compiling(module, error)
        quote = source_text.read(module.path).split("\n")[line - 1].strip() if line else ""
        place = f"{module.path.name}:{line}: `{quote}`" if line else function
        raise Stopped(f"{place} does not compile: {said}") from error
    except Exception as error:
        own = str(module.path.resolve())
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
        line = frames[-1].lineno or 0 if frames else 0
        place = f"{module.path.name}:{line}: `{frames[-1].line}` " if frames else ""
        missing = module.why_missing(error.name or "") if isinstance(error, NameError) else module.why_bare
        left = f" ({missing})" if missing else ""
        stopped = Stopped(f"{place}stops {function}: {type(error).__name__}: {short(error)}{left}")
        stopped.line = frames[0].lineno or 0 if frames else 0
        raise stopped from error


def _compiling(module: Module, error: BaseException | None) -> tuple[int, str]:
    """The line of the file at which Triton's compiler stopped, and why: of functions that call each other the last."""
    text, line, said = source_text.read(module.path), 0, ""
    while isinstance(error, CompilationError):
        said = error.error_message or said
        if error.src and error.src in text:
            line = text[: text.index(error.src)].count("\n") + getattr(error.node, "lineno", 1)
        error = error.__cause__
    return line, short(said or error or "Triton does not say why")


def short(error: object) -> str:
    """The first line of a message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
