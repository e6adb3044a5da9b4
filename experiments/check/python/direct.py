"""A launcher for a kernel that no function of its file launches on matrices that are passed."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
from triton.runtime.jit import KernelInterface

from experiments.check.python import module as source
from experiments.check.python import untuned
from experiments.check.python.module import Module
from experiments.records.request import UsageError

_DIMENSIONS = {"A": "mk", "B": "kn", "C": "mn"}


def launch_of(name: str, module: Module, roles: Mapping[str, str], by_columns: bool = False) -> Callable[..., None]:
    """Returns a function of the kernel's parameters except those that its tuner sets, and strides of its matrices.

    roles: A, B, C, M, N and K by the names of the parameters that are these. The grid is that of the launch in the
    file, and else a program for each tile; by_columns: with the tiles of a row of C along its first axis. Raises
    UsageError for a stride along an axis that its matrix has not.
    """
    kernel: Any = module.names[name]
    function = untuned.plain(kernel)
    parameters = inspect.signature(function).parameters
    letters = {parameter[0].lower(): role for parameter, role in roles.items() if role in _DIMENSIONS}
    strides = {each: found for each in parameters if (found := _stride(each, letters))}
    for each, (role, axis) in strides.items():
        if axis not in _DIMENSIONS[role]:
            sizes = ", ".join(_DIMENSIONS[role].upper())
            raise UsageError(f"{name} takes {each}, a stride along an axis that {role} ({sizes}) does not have")
    launches = (call.func for call, _ in source.calls(name, (), module))
    written = next((target.slice for target in launches if isinstance(target, ast.Subscript)), None)
    axes = 2 if re.search(r"program_id\((axis=)?1\)", inspect.getsource(function)) else 1

    def launch(**values: Any) -> None:
        held = {role: values[parameter] for parameter, role in roles.items() if parameter in values}
        lengths = {"m": held["C"].shape[-2], "n": held["C"].shape[-1], "k": held["A"].shape[-1]}
        for parameter, (role, axis) in strides.items():
            values[parameter] = _step(held[role], role, axis, lengths)
        named = module.constants | values | {axis.upper(): length for axis, length in lengths.items()}
        grid = _written(written, named, module) if written is not None else None
        kernel[grid or _tiles(axes, lengths, by_columns)](**values)

    kept = [each for key, each in parameters.items() if key not in strides and key not in _tuned_parameters(kernel)]
    setattr(launch, "__signature__", inspect.Signature(kept))  # noqa: B010 (mypy knows no such name of a function)
    return launch


def _tuned_parameters(kernel: Any) -> set[str]:
    found: set[str] = set()
    while isinstance(kernel, KernelInterface):
        found |= {name for config in getattr(kernel, "configs", ()) for name in config.kwargs}
        found |= getattr(kernel, "values", {}).keys()
        kernel = kernel.fn
    return found


def _stride(parameter: str, letters: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns the matrix and the axis of `stride_am`, `stride_a_m`, `a_m_stride` or `lda`."""
    if leading := re.fullmatch(r"ld([a-z])", parameter.lower()):
        return (letters[leading[1]], "") if leading[1] in letters else None
    rest = re.sub(r"_|strides?", "", parameter.lower())
    if "stride" in parameter.lower() and len(rest) == 2 and rest[0] in letters and rest[1] in "mnk":
        return letters[rest[0]], rest[1]
    return None


def _step(x: torch.Tensor, role: str, axis: str, lengths: Mapping[str, int]) -> int:
    """Returns the stride along an axis in elements; without an axis, that from row to row."""
    dimensions = _DIMENSIONS[role]
    if x.shape[-2] != lengths[dimensions[0]]:
        dimensions = dimensions[::-1]  # it is passed transposed
    return int(x.stride(dimensions.index(axis) - 2 if axis else -2))


def _written(node: ast.expr, named: Mapping[str, object], module: Module) -> Any:
    """Returns the grid of the file's own launch, where it is an expression of known names."""
    if isinstance(node, ast.Name):
        assigned = (each for each in ast.walk(module.tree) if isinstance(each, ast.Assign))
        node = next((each.value for each in assigned if ast.unparse(each.targets[0]) == ast.unparse(node)), node)
    return module.value(node, named)


def _tiles(axes: int, lengths: Mapping[str, int], by_columns: bool) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """Returns a grid with a program for each tile of C, along one axis or two."""

    def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
        rows, columns = (triton.cdiv(lengths[axis], untuned.tile_side(meta, axis) or 1) for axis in "mn")
        return (rows * columns,) if axes == 1 else (columns, rows) if by_columns else (rows, columns)

    return grid
