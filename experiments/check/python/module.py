"""A user's Python file as a module: what it defines, without what it tests, times or draws when it is run.

A published file is often a script as well. So each statement is executed by itself, with a GPU's stand-in present, on
which nothing is launched. One that launches a kernel, takes a time or fails is left out, and `Module.left_out` says
which and why; the rest is as Python would have it.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import io
import itertools
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import triton
from triton.runtime.autotuner import Autotuner

from experiments.check import source_text
from experiments.check.python.stand_in import NotOnStandIn, StandIn
from experiments.records.request import UsageError

_ROOTS = (".git", "pyproject.toml", "setup.py")  # of what a project's files import each other from
_MOST_FOLDERS = 6  # above the file's that are searched for it


@dataclass(frozen=True)
class LeftOut:
    """A statement that was not executed to its end."""

    line: int
    why: str
    names: frozenset[str]  # that it would have given a value
    needs: str = ""  # the name that had none


@dataclass
class Module:
    """What a file defines, and its text as a tree."""

    path: Path
    tree: ast.Module
    names: dict[str, object]
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def reasons(self) -> list[LeftOut]:
        """What was left out, without what failed because it needs another's names."""
        missing: set[str] = set()
        found = []
        for each in self.left_out:
            if not (each.needs and each.needs in missing):
                found.append(each)
            missing |= each.names
        return found

    def values(self, defines: Sequence[str]) -> dict[str, object]:
        """What `NAME=VALUE` says, VALUE being a number, a name of the file such as `torch.float16`, or else a text."""
        found: dict[str, object] = {}
        for define in defines:
            name, _, text = define.partition("=")
            try:
                found[name] = eval(text, dict(self.names))
            except Exception:
                found[name] = text
        return found

    def why_missing(self, name: str) -> str:
        """Why the file gives a name no value; empty where it never would."""
        found = next((each for each in self.left_out if name in each.names), None)
        while found and found.needs and (cause := next((e for e in self.left_out if found.needs in e.names), None)):
            found = cause
        return f"line {found.line}: {found.why}" if found else ""


def load(path: Path, stand_in: StandIn) -> Module:
    """Raises UsageError for a file that is no Python."""
    try:
        tree = ast.parse(source_text.read(path), str(path))
    except SyntaxError as error:
        raise UsageError(f"{path.name}:{error.lineno}: {error.msg}: is it Python 3?") from error
    made = types.ModuleType(f"checked_{path.stem}")
    made.__file__ = str(path.resolve())
    sys.modules[made.__name__] = made  # so that what it defines can find its own module
    loaded = Module(path, tree, vars(made))
    with _as_script(path), _importable(path, tree, made), stand_in.present(reading=True), _launching_nothing():
        for statement in tree.body:
            _execute(statement, loaded)
    return loaded


def _execute(statement: ast.stmt, module: Module) -> None:
    try:
        if isinstance(statement, ast.If):
            for each in statement.body if _run(statement.test, module) else statement.orelse:
                _execute(each, module)
        else:
            _run(statement, module)
    except (Exception, SystemExit) as error:
        why = str(error) if isinstance(error, NotOnStandIn) else f"{type(error).__name__}: {error}"
        needs = error.name if isinstance(error, NameError) else ""
        module.left_out.append(LeftOut(statement.lineno, why, frozenset(_bound(statement)), needs or ""))


def _run(node: ast.stmt | ast.expr, module: Module) -> object:
    """Execute a statement, or evaluate an expression, with the lines and `__future__` imports of the whole file."""
    flags = 0
    for each in module.tree.body:
        if isinstance(each, ast.ImportFrom) and each.module == "__future__":
            flags |= sum(getattr(__future__, alias.name).compiler_flag for alias in each.names)
    tree, mode = (ast.Expression(node), "eval") if isinstance(node, ast.expr) else (ast.Module([node], []), "exec")
    return eval(compile(tree, str(module.path.resolve()), mode, flags, dont_inherit=True), module.names)


def _bound(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


@contextlib.contextmanager
def _as_script(path: Path) -> Iterator[None]:
    """The file alone on the command line, and what it prints nowhere."""
    arguments, sys.argv = sys.argv, [str(path)]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.argv = arguments


@contextlib.contextmanager
def _importable(path: Path, tree: ast.Module, module: types.ModuleType) -> Iterator[None]:
    """What lies beside the file can be imported, as from a script, and so can its package and its project.

    The packages that it is in are there without the code of their `__init__.py`, which may import anything.
    """
    folder = path.resolve().parent
    before, above = list(sys.path), [folder, *folder.parents][:_MOST_FOLDERS]
    inside = list(itertools.takewhile(lambda each: (each / "__init__.py").exists(), above))
    packages = above[: max(len(inside), _relative(tree))]
    for depth, package in enumerate(reversed(packages)):
        name = ".".join(each.name for each in packages[: -depth - 2 : -1])
        stub = types.ModuleType(name)
        stub.__path__ = [str(package)]
        sys.modules.setdefault(name, stub)
        module.__package__ = name
    roots = [each for each in above if any((each / name).exists() for name in _ROOTS)][:1]
    sys.path[:0] = dict.fromkeys(map(str, (folder, above[len(inside)], *roots)))
    try:
        yield
    finally:
        sys.path[:] = before


def _relative(tree: ast.Module) -> int:
    """From how many folders up the file imports: 1 for its own, as in `from .beside import x`."""
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)


@contextlib.contextmanager
def _launching_nothing() -> Iterator[None]:
    def refuse(kernel, *_, **__):
        raise NotOnStandIn(f"it launches {getattr(kernel, '__name__', 'a kernel')}")

    kinds = {kind: kind.run for kind in (triton.JITFunction, Autotuner)}
    for kind in kinds:
        kind.run = refuse
    try:
        with triton.knobs.runtime.scope():
            triton.knobs.runtime.interpret = False  # the file may ask for Triton's interpreter, which compiles nothing
            yield
    finally:
        for kind, run in kinds.items():
            kind.run = run
