"""Words that no name begins with, each with the field's terms; `python -m tests.words` lists the names that do.

The names of modules, classes, functions and fields are checked, because readers meet them far from their definition; in
CUDA all identifiers are.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gemm_ref", "cuda_kernels", "triton_kernels", "experiments", "tests")

# A bare participle or function word -> the terms to choose from.
BANNED = {
    "admit": "allow, accept",
    "apart": "separate, per",
    "asked": "requested",
    "beside": "next_to, adjacent; or name the relation: ratio, control",
    "chosen": "selected",
    "deal": "schedule",
    "dealt": "scheduled",
    "drawn": "figures, sample",
    "dropped": "evicted, omitted",
    "each": "per, or the plural",
    "found": "the thing that was found",
    "given": "the argument's own name",
    "heeded": "is_respected",
    "judged": "verdict",
    "kept": "cached, retained",
    "lacks": "missing",
    "lay": "copy_layout",
    "laying": "copy_layout",
    "mended": "patched",
    "met": "visited, matched",
    "own": "local, per",
    "regridded": "with_grid",
    "said": "message, format",
    "settled": "resolved, selected",
    "spoken": "described",
    "told": "specified",
    "took": "duration, cost",
    "turned": "transposed",
    "untold": "unspecified",
    "whole": "complete, unsplit, full",
}


# Columns of published CSVs and of files in that form, and a kernel that they name, which keep their names.
COLUMNS = {"own_lines", "own_tokens", "chosen", "dealt", "lay_out"}


def banned(name: str) -> str:
    """Returns the banned word that a name begins with; empty if it begins with none."""
    if name in COLUMNS:
        return ""
    first = re.split(r"_|(?<=[a-z])(?=[A-Z])", name.strip("_"))[0].lower()
    return first if first in BANNED else ""


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (line, name) of a file's module, classes, functions and fields, but not of tests, which are sentences."""
    yield 1, path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("test_"):
            yield node.lineno, node.name
        if isinstance(node, ast.ClassDef):
            fields = (each for each in node.body if isinstance(each, ast.AnnAssign))
            yield from ((each.lineno, each.target.id) for each in fields if isinstance(each.target, ast.Name))


def cuda_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (line, identifier) of a CUDA file, without comments and strings."""
    for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code = re.sub(r'"(\\.|[^"\\])*"', "", text).partition("//")[0]
        yield from ((line, name) for name in re.findall(r"[A-Za-z_]\w*", code))


def violations() -> list[str]:
    """Returns each name that begins with a banned word, with its place and the terms to choose from."""
    python = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    cuda = [path for package in ("gemm_ref", "cuda_kernels") for path in sorted((ROOT / package).rglob("*.cu*"))]
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}: for '{word}' say {BANNED[word]}"
        for path in (*python, *cuda)
        for line, name in (names if path.suffix == ".py" else cuda_names)(path)
        if (word := banned(name))
    ]


if __name__ == "__main__":
    found = violations()
    print("\n".join([*found, f"{len(found)} names begin with a banned word"]))
    sys.exit(bool(found))
