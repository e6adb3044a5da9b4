"""A kernel that no function of its file launches on given matrices, as a function that does."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
from triton.runtime.jit import KernelInterface

from experiments.check.python.module import Module

_DIMENSIONS = {"A": "mk", "B": "kn", "C": "mn"}


def launch_of(name: str, module: Module, roles: Mapping[str, str]) -> Callable[..., None]:
    """A function of the kernel's parameters but its strides, which are those of the matrices that it is given.

    roles: A, B, C, M, N and K by the names of the parameters that are these. The grid is that of the launch in the
    file, and else a program for each tile.
    """
    kernel: Any = module.names[name]
    function = plain(kernel)
    parameters = inspect.signature(function).parameters
    letters = {parameter[0].lower(): role for parameter, role in roles.items() if role in _DIMENSIONS}
    strides = {each: found for each in parameters if (found := _stride(each, letters))}
    written = next((grid for node in ast.walk(module.tree) if (grid := _grid_of(node, name))), None)
    source = inspect.getsource(function)

    def launch(**values: Any) -> None:
        held = {role: values[parameter] for parameter, role in roles.items() if parameter in values}
        lengths = {"m": held["C"].shape[-2], "n": held["C"].shape[-1], "k": held["A"].shape[-1]}
        for parameter, (role, axis) in strides.items():
            values[parameter] = _step(held[role], role, axis, lengths)
        named = module.constants | values | {axis.upper(): length for axis, length in lengths.items()}
        grid = _written(written, named, module) if written is not None else None
        kernel[grid or _tiles(source, lengths)](**values)

    kept = [each for key, each in parameters.items() if key not in strides]
    setattr(launch, "__signature__", inspect.Signature(kept))  # noqa: B010 (mypy knows no such name of a function)
    return launch


def plain(kernel: Any) -> Any:
    """The Python function that a kernel is made of."""
    while isinstance(kernel, KernelInterface):
        kernel = kernel.fn
    return kernel


def _grid_of(node: ast.AST, name: str) -> ast.expr | None:
    """The grid in `name[grid](...)`."""
    target = node.func if isinstance(node, ast.Call) else None
    named = isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name
    return target.slice if named and isinstance(target, ast.Subscript) else None


def _stride(parameter: str, letters: Mapping[str, str]) -> tuple[str, str] | None:
    """The matrix and the axis of `stride_am`, `stride_a_m`, `a_m_stride` or `lda`."""
    if leading := re.fullmatch(r"ld([a-z])", parameter.lower()):
        return (letters[leading[1]], "") if leading[1] in letters else None
    rest = re.sub(r"_|strides?", "", parameter.lower())
    if "stride" in parameter.lower() and len(rest) == 2 and rest[0] in letters and rest[1] in "mnk":
        return letters[rest[0]], rest[1]
    return None


def _step(x: torch.Tensor, role: str, axis: str, lengths: Mapping[str, int]) -> int:
    """Elements from one index along an axis to the next; of no axis, from row to row."""
    dimensions = _DIMENSIONS[role]
    if x.shape[-2] != lengths[dimensions[0]]:
        dimensions = dimensions[::-1]  # it is passed transposed
    return int(x.stride(dimensions.index(axis) - 2 if axis else -2))


def _written(node: ast.expr, named: Mapping[str, object], module: Module) -> Any:
    """The grid that the file launches with, where it can be told from names that are known."""
    if isinstance(node, ast.Name):
        assigned = (each for each in ast.walk(module.tree) if isinstance(each, ast.Assign))
        node = next((each.value for each in assigned if ast.unparse(each.targets[0]) == ast.unparse(node)), node)
    try:
        return eval(compile(ast.Expression(node), "grid", "eval"), dict(module.names) | dict(named))
    except Exception:  # it names what exists only where the launch is
        return None


def _tiles(source: str, lengths: Mapping[str, int]) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """A program for each tile of C: along one axis of the grid, or two if the kernel asks for two."""

    def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
        sides = [_side(meta, axis) for axis in "mn"]
        counts = [triton.cdiv(lengths[axis], side) for axis, side in zip("mn", sides, strict=True)]
        if not re.search(r"program_id\((axis=)?1\)", source):
            return (counts[0] * counts[1],)
        by_columns = re.search(r"\w*(n|col\w*|x)\s*=\s*tl\.program_id\((axis=)?0\)", source)
        return (counts[1], counts[0]) if by_columns else (counts[0], counts[1])

    return grid


def _side(meta: Mapping[str, Any], axis: str) -> int:
    """Rows or columns of a tile, by the name of a constant."""
    found = [
        value for name, value in meta.items() if re.search(rf"^(b|blk|block|tile)(_?size)?_?{axis}?$", name.lower())
    ]
    return next((value for value in found if isinstance(value, int)), 1)
