"""CUDA in a string of a Python file, which torch's `load_inline` compiles."""

from __future__ import annotations

import ast
from pathlib import Path

from experiments.check.subject import read_source
from gemm_ref.build import CACHE, digest, write_whole


def extract_cuda(path: Path) -> Path | None:
    """Writes the CUDA of a Python file to a .cu, each string at its own lines; None if it has none, or Triton too."""
    text = read_source(path)
    if "__global__" not in text or "triton" in text:
        return None
    try:
        nodes = list(ast.walk(ast.parse(text, str(path))))
    except SyntaxError:
        return None  # whoever reads it as Python says where
    constants = ((each.lineno, each.value) for each in nodes if isinstance(each, ast.Constant))
    found = ""
    for line, value in sorted((line, value) for line, value in constants if isinstance(value, str)):
        if "__global__" in value:
            found += "\n" * (line - 1 - found.count("\n")) + value
    target = CACHE / "in_python" / digest(found) / f"{path.stem}.cu"
    write_whole(target, found + "\n")
    return target if found else None
