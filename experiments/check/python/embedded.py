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
    strings = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = ""
    for node in sorted(strings, key=lambda each: each.lineno):
        if "__global__" in node.value:
            found += "\n" * (node.lineno - 1 - found.count("\n")) + str(node.value)
    target = CACHE / "in_python" / digest(found) / f"{path.stem}.cu"
    write_whole(target, found + "\n")
    return target if found else None
