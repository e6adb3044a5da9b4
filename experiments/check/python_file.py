"""A kernel from a user's Python file: a function that launches a Triton or Gluon kernel on the tensors it is given.

The function is `gemm(a, b, c)`, which fills c, or `gemm(a, b)`, which returns a C of its own: a (M, K), b (K, N), c
(M, N), row-major. Any name will do. It is called with CPU tensors, and the launches inside it run on the reference GPU,
so it must take the device of what it allocates from its operands. With several functions, --kernel names it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path

import torch

import gemm_ref
from experiments.check.cuda.cuda_file import Options
from experiments.check.subject import Subject
from experiments.check.trial import Launches
from experiments.records.request import UsageError
from gemm_ref import ptx

TILE = (128, 128)  # taken for the tile of C, which a launch in Python does not tell


class PythonFile(Subject):
    """A function of a Python file and the kernels that it launches. Raises UsageError."""

    def __init__(self, path: Path, options: Options) -> None:
        for option in ("block", "grid", "args", "template", "define", "shared"):
            if getattr(options, option):
                raise UsageError(f"--{option} is for CUDA: a Python file launches its kernel itself")
        self.path, self.tile = path, TILE
        self._function = _choose(_import(path), options.kernel, path.name)
        self.name = self._function.__name__
        if options.math:
            self.set_math(options.math)
        self._given_c = len(_operands(self._function)) == 3
        self.zeroed = not self._given_c  # what it allocates itself may hold zeros
        self.dialect = "triton"
        self._launched: list[str] = []
        if not self._given_c:
            self.notes.append(
                "it allocates C itself, so it is not checked whether it reads C; write gemm(a, b, c) to check that too"
            )

    @property
    def how(self) -> str:
        return f"{self.name}({', '.join(_operands(self._function))})"

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        from triton_kernels.reference_gpu import on_reference_gpu

        places = {x.untyped_storage().data_ptr(): name for name, x in (("A", a), ("B", b), ("C", c))}
        shape = tuple(c.shape)

        def name_of(x: torch.Tensor) -> str:
            own = "C" if tuple(x.shape) == shape and not self._given_c else f"a tensor of {tuple(x.shape)}"
            return places.get(x.untyped_storage().data_ptr(), own)

        with on_reference_gpu(name_of), _explained(self.name), ptx.watched(launches := Launches()):
            made = self._function(a, b, c) if self._given_c else self._function(a, b)
        if not launches.seen:
            raise UsageError(f"{self.name} launched no Triton kernel, so there is nothing to check")
        if not self._given_c:
            if not isinstance(made, torch.Tensor) or made.shape != c.shape:
                raise UsageError(
                    f"{self.name}(a, b) must return C of shape {tuple(c.shape)}; it returned {_what(made)}"
                )
            c.copy_(made)

    def gpu_call(self, problem: gemm_ref.Problem) -> Callable[..., torch.Tensor]:
        def call(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            if self._given_c:
                self._function(a, b, out)
                return out
            return out.copy_(self._function(a, b))

        return call


@contextlib.contextmanager
def _explained(name: str):
    """Errors of the user's own code and of Triton's compiler as UsageError; faults of the kernel pass."""
    try:
        yield
    except (ptx.PtxError, UsageError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise UsageError(f"{name} could not be run with CPU tensors: {type(error).__name__}: {error}") from error


def _import(path: Path) -> types.ModuleType:
    """The file as a module, with its folder on sys.path as Python itself would have it."""
    spec = importlib.util.spec_from_file_location(f"checked_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # so that what it defines can find its own module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path.name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module


def _choose(module: types.ModuleType, name: str, where: str) -> Callable:
    functions = {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    }
    fitting = {key: value for key, value in functions.items() if len(_operands(value)) in (2, 3)}
    if name:
        if name not in fitting:
            there = ", ".join(fitting) or "none"
            raise UsageError(f"{where} has no function {name}(a, b, c) or {name}(a, b) that launches: there is {there}")
        return fitting[name]
    if len(fitting) != 1:
        there = f"several ({', '.join(fitting)}): choose one with --kernel" if fitting else "none"
        raise UsageError(
            f"{where} needs a function that launches the kernel, gemm(a, b, c) or gemm(a, b); it has {there}"
        )
    return next(iter(fitting.values()))


def _operands(function: Callable) -> list[str]:
    """The names of the parameters that a call must give."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]


def _what(made: object) -> str:
    return f"one of {tuple(made.shape)}" if isinstance(made, torch.Tensor) else f"a {type(made).__name__}"
