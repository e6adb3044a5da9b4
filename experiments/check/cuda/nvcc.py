"""What nvcc makes of a user's file for the reference GPU, and what it says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cuda_kernels import source
from experiments.records.request import UsageError
from gemm_ref.build import BuildError

WARNING = re.compile(r"^(?:.*/)?([^/\n]+)\((\d+)\): warning #(\d+)-D: (.*)$", re.M)  # file, line, number, text
UNUSED = "177"  # declared but never referenced
UNDEFINED = "549"  # used before its value is set


def compile_ptx(text: str, defines: Sequence[str], path: Path) -> tuple[str, str]:
    """(PTX, warnings) of a text that includes the user's file at `path`.

    Raises UsageError with nvcc's errors, and what to do about some.
    """
    try:
        return source.compile_ptx(text, "checked.cu", flags=(*source.FLAGS, *defines))
    except BuildError as error:
        raise UsageError(_explain(str(error), path)) from error


def _explain(message: str, path: Path) -> str:
    """nvcc's errors, and -D for a name that the file expects from elsewhere."""
    undefined = dict.fromkeys(re.findall(r'identifier "(\w+)" is undefined', message))
    hint = ""
    if undefined:
        hint = (
            f"\nis it a constant that the file does not define? Pass {' '.join(f'-D {name}=32' for name in undefined)}"
        )
        hint += ", with the value that is meant"
    return f"{path.name} does not compile: {message}{hint}"
