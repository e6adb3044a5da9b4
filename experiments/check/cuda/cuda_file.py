"""A kernel from a user's .cu: compiled for the reference GPU, bound to its arguments, and built for a GPU."""

from __future__ import annotations

import ctypes
import functools
import re
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import gemm_ref
from experiments.check import source_text
from experiments.check.cuda import headers, launch, nvcc, on_gpu, signature
from experiments.check.cuda.expressions import constants, evaluate, split
from experiments.check.subject import PLAIN, Scales, Subject
from experiments.records.request import UsageError
from gemm_ref import ptx, toolchain

_MATHS = {"float": "fp32", "half": "fp16", "__half": "fp16", "__nv_bfloat16": "bf16", "nv_bfloat16": "bf16"}


@dataclass(frozen=True)
class Options:
    """What the command line says of a CUDA kernel; empty where it does not."""

    kernel: str = ""
    block: str = ""
    grid: str = ""
    args: str = ""
    template: str = ""
    define: tuple[str, ...] = ()
    shared: str = ""
    math: str = ""  # the arithmetic that is meant, where the type of A, B and C does not tell
    include: tuple[str, ...] = ()  # folders of headers
    flags: str = ""  # for nvcc
    like: str = "sm_90"  # the GPU that host code in Python asks


class CudaKernel(Subject):
    """One `__global__` function and how it is called. Raises UsageError for what cannot be understood."""

    dialect = "cuda"

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self._kernels: dict[tuple[str, ...], ptx.Kernel] = {}  # by the arguments of the template
        text = source_text.read(path)
        self._folder = tempfile.TemporaryDirectory(prefix="gemm-ladder-check-")
        self._unit = nvcc.Unit(path, _flags(options), options.define, Path(self._folder.name))
        defined = [*options.define, *(flag.removeprefix("-D") for flag in self._unit.flags if flag.startswith("-D"))]
        names = constants(headers.with_includes(path, text), _numbers(defined))
        kernels = signature.read(text)
        self._signature = signature.choose(kernels, options.kernel, path.name)
        self._others = [kernel for kernel in kernels if kernel is not self._signature]
        self._roles = signature.roles(self._signature, options.args)
        self._template = _template(self._signature, options.template)
        names |= _numbers(f"{p.name}={text}" for p, text in self._template)
        self.name = self._signature.name
        self.math = _math(self._signature, self._roles, dict((p.name, text) for p, text in self._template))
        if options.math:
            self.set_math(options.math, gemm_ref.MATHS[self.math].dtype)
        self.scalars = tuple(role for role in signature.SCALARS if role in self._roles)
        self._find_sizes(names)
        self._find_shape(options, names)

    def _find_sizes(self, names: Mapping[str, int]) -> None:
        """Which of M, N, K the kernel is told, and what the others are."""
        words = {word for _, text in self._template for word in re.findall(r"\w+", text)}
        told = {axis for axis in signature.SIZES if axis in words or axis in self._roles}
        missing = [axis for axis in signature.SIZES if axis not in told]
        fixed = {axis.lower(): names[axis] for axis in missing if axis in names}
        if len(missing) == len(fixed):
            self.fixed = fixed
        elif len(told) == 1:
            self.square = True
            self.notes.append(f"it takes one size, {told.pop()}, so it is checked for square matrices only")
        else:
            unknown = " and ".join(axis for axis in missing if axis.lower() not in fixed)
            raise UsageError(
                f"{self.name} does not receive {unknown}: define it in the source or with -D, or say with --args which "
                "parameter it is"
            )
        self.notes += [f"{axis.upper()} is {size}, from the source or -D" for axis, size in self.fixed.items()]

    def _find_shape(self, options: Options, names: Mapping[str, int]) -> None:
        block = launch.parse(options.block, "--block") if options.block else ()
        if options.grid and block:
            grid = launch.parse(options.grid, "--grid")
        else:
            guessed, chosen = launch.guess(self._signature, self._roles, names, block)
            grid = launch.parse(options.grid, "--grid") if options.grid else guessed
            what = [] if options.grid else ["grid"]
            what += [] if block else ["block"]
            verb = "are" if len(what) == 2 else "is"
            self.notes.append(
                f"the {' and '.join(what)} {verb} guessed from how the source computes a thread's element"
            )
            block = chosen
        self.shape = launch.Shape(grid, block, options.shared or "0", tuple(names.items()))
        self.shape.at(gemm_ref.Problem(1, 1, 1))  # an expression that means nothing is refused now
        self.tile = self.shape.tile()

    @property
    def how(self) -> str:
        arguments = ", ".join(
            p.name if role.upper() == p.name.upper() else f"{p.name} = {role}" for p, role in self._bound
        )
        template = f"<{', '.join(text for _, text in self._template)}>" if self._template else ""
        return f"{self.name}{template}({arguments}), {self.shape}"

    @property
    def _bound(self) -> list[tuple[signature.Parameter, str]]:
        return list(zip(self._signature.parameters, self._roles, strict=True))

    def called(self, kernel: str) -> str:
        return self.name  # C++ names it with its arguments and its template's

    def swapped(self) -> tuple[CudaKernel, str] | None:
        shape = self.shape.swapped()
        if shape.grid == self.shape.grid:
            return None
        other = object.__new__(CudaKernel)
        other.__dict__ = self.__dict__ | {"shape": shape}
        return other, ",".join(shape.grid)

    def row_steps(self) -> list[tuple[int, str, str, str]]:
        named = {parameter.name: role for parameter, role in self._bound} | {axis: axis for axis in signature.SIZES}
        found = []
        for line, text in enumerate(self._signature.body.split("\n"), self._signature.first_line):
            for array, inside in re.findall(r"\b(\w+)\s*\[([^\[\]]*)\]", text):
                for name in re.findall(r"\*\s*(\w+)\s*\+", inside):
                    if named.get(array) in signature.MATRICES and named.get(name) in signature.SIZES:
                        found.append((line, named[array], name, named[name]))
        return found

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        problem = gemm_ref.Problem(a.shape[0], b.shape[1], a.shape[1], self.math)
        self.start(problem, self.shape.at(problem), a, b, c, scales=scales)

    def first_block(self, problem: gemm_ref.Problem) -> gemm_ref.Launch:
        """The launch of one block alone."""
        return replace(self.shape, grid=("1",)).at(problem)

    def start(
        self, problem: gemm_ref.Problem, shape: gemm_ref.Launch, *matrices: torch.Tensor, scales: Scales = PLAIN
    ) -> None:
        """Run the kernel on the reference GPU; the matrices are A, B and C, which need not have the problem's sizes."""
        kernel = self._kernel(self._arguments_of_template(problem))
        named = dict(zip(signature.MATRICES, matrices, strict=True))
        values = [self._value(role, problem, named, scales) for role in self._roles]
        ptx.run(kernel, shape, values, names=[role if role in signature.MATRICES else "" for role in self._roles])

    def _value(
        self, role: str, problem: gemm_ref.Problem, matrices: Mapping[str, torch.Tensor], scales: Scales = PLAIN
    ):
        sizes = {"M": problem.m, "N": problem.n, "K": problem.k, "LDA": problem.k, "LDB": problem.n, "LDC": problem.n}
        known = {**matrices, **sizes, "ALPHA": scales.alpha, "BETA": scales.beta}
        return known[role] if role in known else float(role) if "." in role else int(role)

    def _arguments_of_template(self, problem: gemm_ref.Problem) -> tuple[str, ...]:
        sizes = {"M": problem.m, "N": problem.n, "K": problem.k}
        words = [set(re.findall(r"\w+", text)) for _, text in self._template]
        return tuple(
            str(evaluate(text, sizes | dict(self.shape.names))) if used & set(sizes) else text
            for (_, text), used in zip(self._template, words, strict=True)
        )

    def _kernel(self, template: tuple[str, ...]) -> ptx.Kernel:
        if template not in self._kernels:
            self._kernels[template] = self._load(template)
        return self._kernels[template]

    def _load(self, template: tuple[str, ...]) -> ptx.Kernel:
        one = f"{self.name}<{', '.join(template)}>" if template else ""
        text, said, entry = nvcc.compile_ptx(self._unit, one)
        self._note_warnings(said)
        self.notes += [note for note in self._unit.notes if note not in self.notes]
        text = nvcc.without_others(text, lambda name: name == entry if entry else self.name in name)
        ours = list(ptx.entries(text, called=self.name))
        if not ours:
            raise UsageError(f"nvcc compiled no kernel {self.name}: does an #if in the file leave it out?")
        if len(ours) > 1:
            raise UsageError(f"{self.name} is defined {len(ours)} times, for other parameters each: leave one")
        kernel = ptx.load(text, ours[0])
        return replace(kernel, cubin=functools.cache(lambda: toolchain.assemble(text, toolchain.REFERENCE_CAPABILITY)))

    def _note_warnings(self, said: str) -> None:
        for file, line, number, message in nvcc.WARNING.findall(said):
            if any(kernel.line <= int(line) <= kernel.last_line for kernel in self._others):
                continue  # nvcc compiles the whole file
            if number != nvcc.UNUSED and file == self.path.name:
                warning = (number, int(line), message.strip())
                if warning not in self.warnings:
                    self.warnings.append(warning)

    def gpu_call(self, problem: gemm_ref.Problem):
        template = self._arguments_of_template(problem)
        one = self.name + (f"<{', '.join(template)}>" if template else "")
        library = on_gpu.build(self._unit, one)
        return functools.partial(self._call_on_gpu, library, problem)

    def _call_on_gpu(self, library: ctypes.CDLL, problem: gemm_ref.Problem, a, b, out) -> torch.Tensor:
        named = {"A": a, "B": b, "C": out}
        values = [on_gpu.as_c(parameter.type, self._value(role, problem, named)) for parameter, role in self._bound]
        if "BETA" in self._roles:
            out.zero_()
        on_gpu.start(library, self.name, self.shape.at(problem), values)
        return out


def _flags(options: Options) -> tuple[str, ...]:
    return (*(f"-I{Path(folder).resolve()}" for folder in options.include), *shlex.split(options.flags))


def _numbers(defines) -> dict[str, int]:
    found = {}
    for define in defines:
        name, _, value = define.partition("=")
        if re.fullmatch(r"-?\d+", value.strip()):
            found[name.strip()] = int(value)
    return found


def _template(chosen: signature.Signature, given: str) -> list[tuple[signature.Parameter, str]]:
    """Each parameter of the template with its argument: --template's, else its default, else the size of its name."""
    texts = split(given, angles=True)
    parameters = chosen.template
    if len(texts) > len(parameters):
        raise UsageError(f"--template has {len(texts)} arguments and {chosen.name} takes {len(parameters)}")
    found = []
    for index, parameter in enumerate(parameters):
        named = parameter.name.upper() if parameter.name.upper() in signature.SIZES else ""
        text = texts[index] if index < len(texts) else parameter.default or named
        if not text:
            wanted = ", ".join(f"{p.type} {p.name}" for p in parameters)
            raise UsageError(
                f"{chosen.name} is a template of <{wanted}>: pass all of them, as in --template 'float,32'"
            )
        found.append((parameter, text))
    return found


def _math(chosen: signature.Signature, roles, template: Mapping[str, str]) -> str:
    """The math mode of the element type, which A, B and C must share."""
    types = set()
    for parameter, role in zip(chosen.parameters, roles, strict=True):
        if role in signature.MATRICES:
            plain = re.sub(r"\b(?:const|volatile)\b|[*&\s]", "", parameter.type)
            types.add(template.get(plain, plain))
    if len(types) > 1 or not types <= set(_MATHS):
        raise UsageError(
            f"A, B and C of {chosen.name} have the types {', '.join(sorted(types))}: they must have one type, of "
            f"{', '.join(_MATHS)} (sums may have another)"
        )
    return _MATHS[types.pop()]
