"""A user's Python file as a module: what it defines, without its own tests, timings and plots.

A published file is often a script as well. So each statement is executed by itself, with a GPU's stand-in present, on
which nothing is launched. One that launches a kernel, takes a time or fails is left out, and `Module.left_out` says
which and why; the rest is as Python would have it.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import io
import math
import re
import sys
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface
from triton.testing import Mark

from experiments.check.python.project import Project
from experiments.check.python.stand_in import NotOnStandIn, StandIn, needs_gpu
from experiments.check.python.untuned import Untuned
from experiments.check.subject import read_source
from experiments.records.request import UsageError
from gemm_ref import ptx

SIZES = ("M", "N", "K")
_ALIASES = {"triton": triton, "tl": triton.language}  # under which packages of their own hand Triton on


@dataclass(frozen=True)
class LeftOut:
    """A statement that was not executed completely."""

    line: int
    why: str
    names: frozenset[str]  # that it would have given a value
    needs: str = ""  # the name that had none
    bare: str = ""  # a function that was defined without a decorator for it


@dataclass
class Module:
    """The names that a file defines, and its syntax tree."""

    path: Path
    tree: ast.Module
    names: dict[str, object]
    project: Project
    others: dict[str, Module] = field(default_factory=dict)  # of its project, which it imports, by their names
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def reasons(self) -> list[LeftOut]:
        """The statements left out, without those that only need a name of another."""
        missing: set[str] = set()
        found = []
        for each in self.left_out:
            if not (each.needs and each.needs in missing):
                found.append(each)
            missing |= each.names
        return found

    @property
    def constants(self) -> dict[str, object]:
        """The numbers and texts that the file assigns to names anywhere, inside of functions as well."""
        found: dict[str, object] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                with contextlib.suppress(ValueError):
                    value = ast.literal_eval(node.value)
                    target = node.targets[0]
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    values = value if isinstance(target, ast.Tuple) else [value]
                    pairs = zip(names, values, strict=False)
                    found |= {name.id: each for name, each in pairs if isinstance(name, ast.Name)}
        return found

    @property
    def untuned(self) -> list[Untuned]:
        """Its kernels, and those of the files that it imports, whose own decorators failed."""
        every = (value for module in (self, *self.others.values()) for value in module.names.values())
        return list({id(value): value for value in every if isinstance(value, Untuned)}.values())

    def value(self, said: ast.expr | str, more: Mapping[str, object] | None = None, default: object = None) -> Any:
        """Evaluates an expression of the file's own names and `more`; `default` where it uses others."""
        try:
            return eval(said if isinstance(said, str) else ast.unparse(said), {**self.names, **(more or {})})
        except Exception:
            return default

    def values(self, defines: Sequence[str]) -> dict[str, object]:
        """Returns the values of `NAME=VALUE`: a number, M, N or K, a name such as `torch.float16`, or else a text."""
        pairs = [define.partition("=") for define in defines]
        sizes = {name: Size(text) for name, _, text in pairs if text in SIZES and name not in SIZES}
        return {name: self.value(text, default=text) for name, _, text in pairs} | sizes

    @property
    def why_bare(self) -> str:
        """Why the first function without its decorator has none; empty where all have theirs."""
        found = next((each for each in self.left_out if each.bare), None)
        why = (self.why_missing(found.needs) or found.why) if found else ""
        return f"{found.bare} is without a decorator of its own: {why}" if found else ""

    def why_missing(self, name: str, seen: tuple[LeftOut, ...] = ()) -> str:
        """Returns why a name of the file has no value; empty where nothing defines it."""
        for module in (self, *self.others.values()):
            for each in module.left_out:
                if name in each.names and each not in seen:
                    own = "" if module is self else f"{module.path.name} "
                    # another file may have left it out before
                    why = self.why_missing(each.needs or name, (*seen, each))
                    return why or f"{own}line {each.line}: {each.why}"
        return ""


def load(path: Path, stand_in: StandIn) -> Module:
    """Raises UsageError for a file that is no Python."""
    try:
        tree = ast.parse(read_source(path), str(path))
    except SyntaxError as error:
        raise UsageError(f"{path.name}:{error.lineno}: {error.msg}: is it Python 3?") from error
    others: dict[str, Module] = {}

    def fill(beside: Path, made: types.ModuleType) -> None:
        module = Module(beside, ast.parse(read_source(beside), str(beside)), vars(made), project, others)
        others[made.__name__] = module
        for statement in module.tree.body:
            _execute(statement, module)

    project = Project(path, tree, fill)
    loaded = Module(path, tree, vars(project.module), project, others)
    alone = mock.patch.object(sys, "argv", [str(path)])  # on the command line
    with alone, project.present(), stand_in.present(reading=True), _launching_nothing():
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
        names = set(_bound(statement))
        bare = ""
        if isinstance(statement, ast.FunctionDef) and statement.decorator_list:
            names -= (defined := _decorated(statement, module))
            if defined and "jit" not in " ".join(map(ast.unparse, statement.decorator_list)):
                return  # a test, or what somebody registers
            bare = "".join(defined)
        elif isinstance(statement, ast.ImportFrom):
            found = {each.asname or each.name: _ALIASES[each.name] for each in statement.names if each.name in _ALIASES}
            module.names.update(found)
            names -= found.keys()
        why = str(error) if isinstance(error, NotOnStandIn) else f"{type(error).__name__}: {error}"
        needs = error.name if isinstance(error, NameError) else ""
        module.left_out.append(LeftOut(statement.lineno, why, frozenset(names), needs or "", bare))


def _decorated(statement: ast.FunctionDef, module: Module) -> set[str]:
    """Defines a function with those of its decorators that work; returns its name, if it could be defined."""
    try:
        _run(ast.copy_location(ast.FunctionDef(**vars(statement) | {"decorator_list": []}), statement), module)
    except Exception:
        return set()
    for each in reversed(statement.decorator_list):
        made: Any = module.names[statement.name]
        try:
            module.names[statement.name] = _run(each, module)(made)
        except Exception:  # a tuner, more often than not
            if isinstance(made, KernelInterface) and not isinstance(made, Untuned):
                module.names[statement.name] = Untuned(made)
    return {statement.name}


def _run(node: ast.stmt | ast.expr, module: Module) -> Any:
    """Executes a statement, or evaluates an expression, with the lines and `__future__` imports of the file."""
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


def _launching_nothing() -> contextlib.AbstractContextManager:
    """Inside, kernels are not launched, and output is discarded."""

    def refuse(kernel, *_, **__):
        raise NotOnStandIn(f"it launches {getattr(kernel, '__name__', 'a kernel')}")

    stack = contextlib.ExitStack()
    for kind in (triton.JITFunction, Autotuner):
        stack.enter_context(mock.patch.object(kind, "run", refuse))
    stack.enter_context(mock.patch.object(Mark, "run", needs_gpu("a benchmark")))  # which imports Matplotlib first
    stack.enter_context(triton.knobs.runtime.scope())
    triton.knobs.runtime.interpret = False  # the file may ask for Triton's interpreter, which compiles nothing
    stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
    return stack


# --- what stops a function before its kernel runs --------------------------------------------------------------------


class Stopped(UsageError):
    """The function raised an error, at a line of the file."""

    line = math.inf  # infinite where it came past its host code


@contextlib.contextmanager
def errors(module: Module, function: str) -> Iterator[None]:
    """Raises errors of the user's code and of Triton's compiler as UsageError; faults of the kernel pass."""
    try:
        yield
    except (ptx.PtxError, UsageError, KeyboardInterrupt):
        raise
    except CompilationError as error:
        line, said = _compiling(module, error)
        quote = read_source(module.path).split("\n")[line - 1].strip() if line else ""
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
    """Returns the line of the file at which Triton's compiler stopped, and why: that of the innermost function."""
    text, line, said = read_source(module.path), 0, ""
    while isinstance(error, CompilationError):
        said = error.error_message or said
        if error.src and error.src in text:
            line = text[: text.index(error.src)].count("\n") + getattr(error.node, "lineno", 1)
        error = error.__cause__
    return line, short(said or error or "Triton does not say why")


def short(error: object) -> str:
    """Returns the first line of a message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")


# --- values that the file itself passes ------------------------------------------------------------------------------


def texts(name: str, module: Module) -> list[str]:
    """Returns the texts that the file has as defaults of parameters of this name, or compares them with."""
    found: list[ast.expr | None] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.arguments):
            in_order = (node.posonlyargs + node.args)[-len(node.defaults) or None :]
            pairs = [*zip(in_order, node.defaults, strict=False), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
            found += [default for each, default in pairs if each.arg == name]
        elif isinstance(node, ast.Compare) and ast.unparse(node.left) == name:
            found += node.comparators
    said = (each for node in found if node for each in ast.walk(node) if isinstance(each, ast.Constant))
    return [each.value for each in said if isinstance(each.value, str)]


def parametrized(function: str, module: Module) -> dict[str, object]:
    """Returns the first values in the file's own tests (`pytest.mark.parametrize`), tests of this function first."""
    found: dict[str, object] = {}
    tests = [each for each in ast.walk(module.tree) if isinstance(each, ast.FunctionDef) and each.decorator_list]
    tests.sort(key=lambda each: not any(isinstance(node, ast.Name) and node.id == function for node in ast.walk(each)))
    for node in (decorator for test in tests for decorator in test.decorator_list):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize" and len(node.args) > 1):
            continue
        said, values = (_value(argument, module) for argument in node.args[:2])
        names = re.findall(r"\w+", said) if isinstance(said, str) else said
        first = next(iter(values), None) if isinstance(values, list | tuple) else None
        if not isinstance(names, list | tuple):
            continue
        first = getattr(first, "values", first) if len(names) > 1 else (first,)  # a pytest.param has values
        if isinstance(first, list | tuple) and len(first) == len(names):
            found = dict(zip(names, first, strict=True)) | found
    return found


class Size(str):
    """M, N or K, where the file passes it for another parameter as well."""


def called_with(name: str, parameters: Sequence[str], module: Module) -> dict[str, object]:
    """Returns the first constant, or size, that the file itself passes for each parameter of a function."""
    found: dict[str, object] = {}
    for _, passed in calls(name, parameters, module):
        sizes = {ast.unparse(each): Size(key) for key, each in passed.items() if key in SIZES}
        for parameter, argument in passed.items():
            text = ast.unparse(argument)
            known = (_value(argument, module), module.constants.get(text), sizes.get(text))
            value = next((each for each in known if each is not None), None)
            if isinstance(value, bool | int | float | str | torch.dtype | tl.dtype):
                found.setdefault(parameter, value)
    return found


def calls(name: str, parameters: Sequence[str], module: Module) -> Iterator[tuple[ast.Call, dict[str, ast.expr]]]:
    """Yields the file's own calls of a function, each with its arguments by parameter."""
    called = re.compile(rf"(\w+\.)*{re.escape(name)}(\.apply|\.forward|\[.*\])?")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and called.fullmatch(ast.unparse(node.func)):
            passed = dict(zip(parameters, node.args, strict=False))
            yield node, passed | {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}


_FACTORIES = re.compile(r"torch\.(randn|rand|zeros|ones|empty|full)")


def rank(argument: ast.expr, module: Module) -> int:
    """Returns the dimensions of a tensor that the file makes and names, the last time that it does; 0 if unknown."""
    found = 0
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(argument):
            made = node.value
            if isinstance(made, ast.Call) and made.args and _FACTORIES.fullmatch(ast.unparse(made.func)):
                first = made.args[0]
                found = len(first.elts if isinstance(first, ast.Tuple | ast.List) else made.args)
    return found


def _value(node: ast.expr, module: Module) -> object:
    """Evaluates an expression that calls nothing; None for any other."""
    calls_nothing = not any(isinstance(each, ast.Call | ast.Lambda | ast.Await) for each in ast.walk(node))
    return module.value(node) if calls_nothing else None
