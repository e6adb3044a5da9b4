"""What a file itself gives the parameters of its functions: in its calls and tests, by default, and in comparisons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import torch
import triton.language as tl

from experiments.check.python.module import SIZES, Module


def texts(name: str, module: Module) -> list[str]:
    """What the file gives parameters of this name by default, and what it compares it with, of texts."""
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
    """The first value that the file's own tests give each name (`pytest.mark.parametrize`), this function's first."""
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
    """M, N or K, which the file passes for another parameter as well."""


def called_with(name: str, parameters: Sequence[str], module: Module) -> dict[str, object]:
    """The first constant, or size, that the file itself passes for each parameter of a function."""
    found: dict[str, object] = {}
    for _, passed in calls(name, parameters, module):
        sizes = {ast.unparse(each): Size(key) for key, each in passed.items() if key in SIZES}
        for parameter, argument in passed.items():
            known = (
                _value(argument, module),
                module.constants.get(ast.unparse(argument)),
                sizes.get(ast.unparse(argument)),
            )
            value = next((each for each in known if each is not None), None)
            if isinstance(value, bool | int | float | str | torch.dtype | tl.dtype):
                found.setdefault(parameter, value)
    return found


def calls(name: str, parameters: Sequence[str], module: Module) -> Iterator[tuple[ast.Call, dict[str, ast.expr]]]:
    """The file's own calls of a function, and what each passes for its parameters."""
    called = re.compile(rf"(\w+\.)*{re.escape(name)}(\.apply|\.forward|\[.*\])?")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and called.fullmatch(ast.unparse(node.func)):
            passed = dict(zip(parameters, node.args, strict=False))
            yield node, passed | {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}


def _value(node: ast.expr, module: Module) -> object:
    """What an expression that calls nothing is; None for any other."""
    calls_nothing = not any(isinstance(each, ast.Call | ast.Lambda | ast.Await) for each in ast.walk(node))
    return module.value(node) if calls_nothing else None
