"""Who imports whom: the rooms of the house, and the arrows between them, read from the text of every file.

`python -m tests.imports` prints the rooms, how many files and lines each has, and what each imports. Imports inside
functions and under `if TYPE_CHECKING` count like any other: a circle that only a type checker sees is one too.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gemm_ref", "cuda_kernels", "triton_kernels", "experiments", "tests")

# What a room stands on: it may import from those, from what they stand on, and from itself. A room is a folder, without
# the folders in it that are rooms of their own; a file is named where it stands apart from its folder.
STANDS_ON: Mapping[str, tuple[str, ...]] = {
    "gemm_ref.launch": (),
    "gemm_ref.build": (),
    "gemm_ref.toolchain": ("gemm_ref.build",),
    "gemm_ref.sass": ("gemm_ref.launch", "gemm_ref.toolchain"),
    "gemm_ref.ptx.text": (),
    "gemm_ref.ptx.core": ("gemm_ref.ptx.text", "gemm_ref.launch"),
    "gemm_ref.ptx.units": ("gemm_ref.ptx.core",),
    "gemm_ref.ptx.isa": ("gemm_ref.ptx.units",),
    "gemm_ref.ptx.detect": ("gemm_ref.ptx.core",),
    "gemm_ref.ptx.count": ("gemm_ref.ptx.core", "gemm_ref.sass"),
    "gemm_ref.ptx.program": ("gemm_ref.ptx.isa",),
    "gemm_ref.ptx": ("gemm_ref.ptx.program", "gemm_ref.ptx.detect", "gemm_ref.ptx.count"),
    "gemm_ref": ("gemm_ref.ptx",),
    "gemm_ref.baselines": ("gemm_ref",),
    "cuda_kernels": ("gemm_ref",),
    "triton_kernels": ("gemm_ref",),
    "experiments.grouping": (),
    "experiments.progress": (),
    "experiments.processes": (),
    "experiments.records": ("gemm_ref.baselines", "cuda_kernels", "triton_kernels", "experiments.grouping"),
    "experiments.bench": ("experiments.records", "experiments.progress", "experiments.processes"),
    "experiments.publish.numbers": ("experiments.records",),
    "experiments.publish.wording": ("experiments.records",),
    "experiments.publish.templates": ("experiments.publish.numbers", "experiments.publish.wording"),
    "experiments.publish.pages": ("experiments.publish.templates",),
    "experiments.explore.traces": ("experiments.bench", "experiments.publish.pages"),
    "experiments.publish.drawing": ("experiments.publish.numbers",),
    "experiments.publish": ("experiments.publish.drawing", "experiments.publish.pages", "experiments.processes"),
    "experiments.studies": ("experiments.bench", "experiments.publish"),
    "experiments.cards": ("experiments.bench", "experiments.publish"),
    "experiments.publish.report.sources": ("experiments.publish",),
    "experiments.publish.report": ("experiments.publish.report.sources", "experiments.progress"),
    "experiments.explore": ("experiments.explore.traces", "experiments.publish.report"),
    "experiments.check": ("experiments.bench", "experiments.publish"),
    "experiments.learn": ("experiments.check",),
    "experiments": (
        "experiments.studies",
        "experiments.learn",
        "experiments.explore",
        "experiments.cards",
    ),
    "tests": ("experiments",),
}


@dataclass(frozen=True)
class File:
    """One Python file: its module, its room, its lines, and the modules of the house that it imports."""

    module: str
    path: Path
    room: str
    lines: int
    imports: tuple[str, ...]


@functools.cache
def house(root: Path = ROOT) -> dict[str, File]:
    """Every Python file of the five packages, by its module."""
    paths = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {module: _read(module, path, paths.keys()) for module, path in paths.items()}


def room_of(module: str) -> str:
    """The room that a module is in: the longest name of STANDS_ON that it begins with."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(name for name in names if name in STANDS_ON)


def beneath(room: str) -> set[str]:
    """The rooms that `room` may import from, itself with them."""
    return {room}.union(*(beneath(lower) for lower in STANDS_ON[room]))


def circles(files: Iterable[File]) -> list[list[str]]:
    """The groups of files that import each other, directly or by way of others."""
    graph = {file.module: [name for name in file.imports if name != file.module] for file in files}
    reached = {module: _reach(graph, module) for module in graph}
    found = {
        tuple(sorted({module, *(other for other in reached[module] if module in reached[other])}))
        for module in graph
        if module in reached[module]
    }
    return [list(group) for group in sorted(found)]


def upward(files: Iterable[File]) -> list[tuple[str, str]]:
    """(module, what it imports) where the import does not go down: the rooms' one-way order is broken there."""
    return [(file.module, name) for file in files for name in file.imports if room_of(name) not in beneath(file.room)]


def _reach(graph: Mapping[str, list[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen


def _read(module: str, path: Path, modules: Iterable[str]) -> File:
    text = path.read_text(encoding="utf-8")
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {_longest(alias.name, modules) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, path, node)
            found |= {_longest(f"{origin}.{alias.name}", modules) for alias in node.names}
    return File(module, path, room_of(module), text.count("\n"), tuple(sorted(found - {""})))


def _origin(module: str, path: Path, node: ast.ImportFrom) -> str:
    """The package that a `from` names, also a relative one."""
    if not node.level:
        return node.module or ""
    here = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    return ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])])


def _longest(name: str, modules: Iterable[str]) -> str:
    """The module of the house in which a dotted name is; empty for one of another package."""
    parts = name.split(".")
    return next((".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in modules), "")


def describe() -> str:
    """The rooms from the ground up, with their files, lines and arrows."""
    files = house()
    lines = [f"{'room':<24} {'files':>5} {'lines':>6}  imports"]
    for room in STANDS_ON:
        own = [file for file in files.values() if file.room == room]
        arrows = sorted({room_of(name) for file in own for name in file.imports} - {room})
        count = sum(file.path.name != "__init__.py" for file in own)
        lines.append(f"{room:<24} {count:>5} {sum(file.lines for file in own):>6}  {', '.join(arrows)}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    print(describe())
