"""Imports of a file from its own project, which are available while it is read and while its functions run."""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from experiments.check.cage.confine import is_private
from experiments.check.subject import read_source

_ROOTS = (".git", "pyproject.toml", "setup.py")  # of what a project's files import each other from
_MOST_FOLDERS = 6  # above the file's that are searched for it

_RELATIVE = re.compile(r"^\s*from\s+(\.+)", re.M)

Execute = Callable[[Path, types.ModuleType], None]


def readable(path: Path) -> list[Path]:
    """Returns the folder with all that a file may import of its project, or its neighbours in a private folder."""
    folder = path.resolve().parent
    above = [folder, *folder.parents][:_MOST_FOLDERS]
    inside = len(list(itertools.takewhile(lambda each: (each / "__init__.py").exists(), above)))
    levels = max((len(dots) for dots in _RELATIVE.findall(read_source(path))), default=0)
    roots = [count for count, each in enumerate(above) if any((each / name).exists() for name in _ROOTS)]
    tops = [each for each in above[: max(inside, levels, *roots[:1]) + 1] if not is_private(each)]
    return tops[-1:] or [path.resolve(), *folder.glob("*.py")]


class Project(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The folders from which a file imports, as from a script, as a member of its package and of its project.

    The packages that it is in are there without the code of their `__init__.py`, which may import anything, until
    something asks for a name of theirs. execute: fills a module with all that a file of the project defines.
    """

    def __init__(self, path: Path, tree: ast.Module, execute: Execute) -> None:
        self._execute = execute
        self.module = types.ModuleType(f"checked_{path.stem}")
        self.module.__file__ = str(path.resolve())
        self._modules = {self.module.__name__: self.module}
        folder = path.resolve().parent
        above = [folder, *folder.parents][:_MOST_FOLDERS]
        inside = list(itertools.takewhile(lambda each: (each / "__init__.py").exists(), above))
        levels = [node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]  # 1: `from .beside import`
        packages = above[: max(len(inside), *levels, 0)]
        for depth, package in enumerate(reversed(packages)):
            name = ".".join(each.name for each in packages[: -depth - 2 : -1])
            self._modules[name] = _Package(name, package, execute)
            self.module.__package__ = name
        roots = [each for each in above if any((each / name).exists() for name in _ROOTS)][:1]
        self._folders = [str(each) for each in dict.fromkeys((folder, above[len(inside)], *roots))]

    @contextlib.contextmanager
    def present(self) -> Iterator[None]:
        """Inside, its modules can be imported, and hide others of the same names."""
        hidden = {name: sys.modules.get(name) for name in self._modules}
        paths = mock.patch.object(sys, "path", [*self._folders, *sys.path])
        with paths, mock.patch.object(sys, "meta_path", [self, *sys.meta_path]):
            sys.modules |= self._modules
            try:
                yield
            finally:
                for name in self._modules:
                    sys.modules.pop(name, None)
                sys.modules |= {name: module for name, module in hidden.items() if module}

    def find_spec(self, name, path=None, target=None):
        """Returns the spec of a file of the project; None for any other module."""
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        where = (found and found.origin) or ""
        own = where.endswith(".py") and where.startswith(tuple(self._folders)) and "site-packages" not in where
        if not (found and own):
            return None
        found.loader = self
        return found

    def exec_module(self, module: types.ModuleType) -> None:
        self._modules[module.__name__] = module
        self._execute(Path(module.__file__ or ""), module)


class _Package(types.ModuleType):
    """A package whose `__init__.py` is executed when a name is asked for that is no file in it."""

    def __init__(self, name: str, folder: Path, execute: Execute) -> None:
        super().__init__(name)
        self.__path__ = [str(folder)]
        self._start: Path | None = folder / "__init__.py"
        self._execute = execute

    def __getattr__(self, name: str) -> object:
        start, inside = self._start, Path(self.__path__[0]) / name
        a_file = inside.is_dir() or inside.with_suffix(".py").exists()
        if name.startswith("__") or a_file or not (start and start.exists()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self._start = None
        self._execute(start, self)
        return getattr(self, name)
