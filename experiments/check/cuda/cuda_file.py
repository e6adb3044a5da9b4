"""A kernel from a user's .cu: compiled for the reference GPU, bound to its arguments, and built for a GPU."""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import gemm_ref
from experiments.check import source_text
from experiments.check.cuda import elements, guess, headers, launch, layouts, on_gpu, roles, signature
from experiments.check.cuda.compiled import Compiled
from experiments.check.cuda.expressions import constants, evaluate, numbers, split
from experiments.check.cuda.launches import by_value, driver, own_sizes, reading, recorder
from experiments.check.cuda.unit import Unit, find_kernel
from experiments.check.subject import PLAIN, Scales, Subject, vector
from experiments.records.request import UsageError
from gemm_ref import ptx

_MOST_FILES = 3  # of a project, that are asked how they launch a kernel
_MOST_TEMPLATES = 3  # that are tried where nothing tells which is meant


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
    layout: str = ""  # matrices that are stored by columns: B=NxK


class CudaKernel(Subject):
    """One `__global__` function and how it is called. Raises UsageError for what cannot be understood."""

    dialect = "cuda"
    layout: layouts.Layout
    untold = ""  # why the launch is not known; then one of `launches` may be it

    def __init__(self, path: Path, options: Options) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gemm-ladder-check-")
        self._signature, self.path, source = find_kernel(path, options.kernel)
        self.name = self._signature.name
        given = bool(options.grid or options.block)
        flags = (*(f"-I{Path(folder).resolve()}" for folder in options.include), *shlex.split(options.flags))
        self._typedefs = elements.typedefs(source)
        defined = [*options.define, *(flag.removeprefix("-D") for flag in flags if flag.startswith("-D"))]
        names = constants(source, numbers(defined))
        small = own_sizes.smaller(self._untold(), names, source)
        self._small = {name: value for name, value in small.items() if name not in numbers(defined)}
        self._unit = self._new_unit(path, flags, options)
        names = constants(self._unit.text, numbers(defined))
        self._reading, why = (None, "") if given else self._read(path, options)
        self._compiled = Compiled(self._unit, self.name, self.path, self.notes, self.warnings)
        structs = driver.structs(self._unit.text)
        read = self._reading.roles(self._signature, structs) if self._reading else []
        self.says_sizes = bool(options.args)  # --args tells which size is which; names may mean others: A of m x n
        asked = bool(self._reading and not self._reading.sizes_are_its_own)
        self._roles = roles.roles(self._signature, options.args, read, host=asked)
        self._templates = self._find_templates(options, names)
        self._template = self._templates[0]
        self._guessed = bool(self._template) and not (options.template or self._reading)
        names |= numbers(f"{p.name}={text}" for p, text in self._template)
        self.layout = layouts.parse(options.layout)
        self._dtypes = self._find_types(self._element(options))
        self.math = elements.math_of(self._dtypes)
        self.unsigned = self._dtypes["A"] == torch.uint8 or self._element(options) in elements.UNSIGNED
        self.whole_numbers = not all(dtype.is_floating_point for dtype in self._dtypes.values())
        if options.math:
            self.set_math(options.math, gemm_ref.MATHS[self.math].dtype)
        self.scalars = tuple(role for role in (*roles.SCALARS, "BIAS") if role in self._roles)
        if {"C", "D"} <= {*self._roles} and "BETA" not in self._roles:
            self.plain = Scales(beta=1.0)
        self._find_sizes(names)
        self._find_shape(options, names, why)

    # --- what is known before it runs ------------------------------------------------------------------------

    def _untold(self) -> list[str]:
        """The sizes that are not passed to the kernel."""
        given = {*roles.named(self._signature.parameters), *(p.name for p in self._signature.template)}
        return [axis for axis in roles.SIZES if axis not in given]

    def _new_unit(self, path: Path, flags: tuple[str, ...], options: Options, beside: Path | None = None) -> Unit:
        """The file with smaller constants for sizes that would take minutes."""
        unit = Unit(path, flags, options.define, Path(self._folder.name), self.name, beside)
        for name, value in self._small.items():
            if unit.set_constant(name, value):
                note = f"{name} is a constant of the source: it is {value} here, which takes less time"
                self.notes += [note] if note not in self.notes else []
        return unit

    def _read(self, path: Path, options: Options) -> tuple[reading.Reading | None, str]:
        """How the file, or one of its project that includes it, launches the kernel, and why that is not known."""
        failed, why, best = None, "", None
        for file in dict.fromkeys(itertools.islice(reading.files(path, self.name), _MOST_FILES)):
            linked = file != path and path.resolve() not in headers.included(file, source_text.read(file))
            unit = self._new_unit(file, self._unit.flags, options, path if linked else None)
            try:
                self._typedefs |= elements.typedefs(unit.text)
                found, why_not = reading.read(unit, self._signature, self._element(options), options.template)
            except UsageError as error:
                failed = failed or error
                continue
            why = why or why_not
            if found and found.worth > (best.worth if best else 0):
                best, self._unit = found, unit
            if found and found.worth == reading.TELLS_ALL:
                break
        if failed and not why:
            raise failed
        return best, why

    def _element(self, options: Options) -> str:
        """The type of A's elements, as far as it is known before anything is launched."""
        given = zip((p.name for p in self._signature.template), split(options.template), strict=False)
        meant = self._typedefs | dict(given)
        for parameter, role in zip(self._signature.parameters, roles.named(self._signature.parameters), strict=True):
            if role == "A" and (text := elements.plain(parameter.type, meant)) in elements.TYPES:
                return text
        return "float"

    def _find_templates(self, options: Options, names: Mapping[str, int]) -> list[guess.Template]:
        """The arguments of the template; where nothing tells them, all that they may be."""
        chosen = self._signature
        if options.template or not chosen.template:
            return [guess.given(chosen, options.template)]
        if self._reading:
            one = reading.instance(self._reading.first.entry, self.name)
            return [list(zip(chosen.template, split(one.removeprefix(self.name)[1:-1], angles=True), strict=False))]
        texts = [source_text.read(file) for file in (self.path, *reading.neighbours(self.path))]
        known = functools.reduce(lambda found, text: constants(text, {}) | found, texts, dict(names))
        told = guess.instances(chosen.name, chosen.template, known, texts)
        tried = itertools.chain(told, guess.usual(chosen.template, known, self._element(options)))
        found = dict.fromkeys(itertools.islice(tried, _MOST_TEMPLATES))
        return [list(zip(chosen.template, texts, strict=True)) for texts in found] or [guess.given(chosen, "")]

    def _find_types(self, element: str) -> dict[str, torch.dtype]:
        """The element type of each matrix, by its role; `element` of those that lie in structs."""
        meant = self._typedefs | {parameter.name: text for parameter, text in self._template}
        found = {
            role: elements.dtype(self.name, parameter.name, elements.plain(parameter.type, meant))
            for parameter, role in self._bound
            if role in roles.POINTERS and role != "NULL"
        }
        if roles.HOST in self._roles:
            held = by_value.mapped(self._reading.first) if self._reading else {}
            found = dict.fromkeys(roles.MATRICES, elements.TYPES[element]) | held | found
        return found if "C" in found else found | {"C": found["D"]}

    def _find_sizes(self, names: Mapping[str, int]) -> None:
        """Which of M, N, K the kernel is told, and what the others are."""
        words = set(re.findall(r"\w+", " ".join((*self._roles, *(text for _, text in self._template)))))
        told = set(roles.SIZES) if roles.HOST in words else {axis for axis in roles.SIZES if axis in words}
        self._told = told
        missing = [axis for axis in roles.SIZES if axis not in told]
        whole = own_sizes.constants_of(missing, names)
        fixed = {axis.lower(): names[name] for axis, name in whole.items()}
        if not told and len(fixed) == 1:  # one constant for all
            fixed = {axis.lower(): next(iter(fixed.values())) for axis in roles.SIZES}
        if fixed and self._reading and self._reading.sizes_are_its_own:
            own = reading.own_sizes_of(self._reading.first, self._signature, self._roles)
            if set(own.values()) == set(fixed.values()):  # what it is told is that constant
                fixed, missing = {axis.lower(): size for axis, size in own.items()}, list(own)
        if len(missing) == len(fixed):
            self.fixed = fixed
        elif len(told) == 1:
            self.square = True
            self.notes.append(f"it takes one size, {told.pop()}, so it is checked for square matrices only")
        elif len(missing) - len(fixed) > 1 or not told:
            unknown = " and ".join(axis for axis in missing if axis.lower() not in fixed)
            raise UsageError(
                f"{self.name} does not receive {unknown}: define it in the source or with -D, or say with --args which "
                "parameter it is"
            )  # one that only the grid tells is no matter
        self.notes += [f"{axis.upper()} is {size}, from the source or -D" for axis, size in self.fixed.items()]

    def _find_shape(self, options: Options, names: Mapping[str, int], why: str) -> None:
        block = launch.parse(options.block, "--block") if options.block else ()
        named = tuple(names.items())
        if self._reading:
            self.shape = self._reading.shape_for(self._signature, self._roles, named)
            self.notes.append(self._reading.told(self._roles, self.shape))
        elif options.grid and block:
            self.shape = launch.Shape(launch.parse(options.grid, "--grid"), block, options.shared or "0", named)
        else:
            self._guess_shape(options, names, block, why)
        if not isinstance(self.shape, reading.ReadShape):
            self.shape.at(gemm_ref.Problem(1, 1, 1))  # an expression that means nothing is refused now
        told = self.untold or self._counts_rows()
        if "M" not in self._told and "m" not in self.fixed and not self.square and not told:
            self.fixed["m"] = 1
            self.notes.append("neither it nor its grid is told M, so it is checked for one row: M is 1")
        self.tile = self.shape.tile()

    def _guess_shape(self, options: Options, names: Mapping[str, int], block: tuple[str, ...], why: str) -> None:
        """By how the source computes a thread's element; where it does not say that, `launches` are tried."""
        grid, shared = launch.parse(options.grid, "--grid") if options.grid else (), options.shared or "0"
        what = ([] if grid else ["grid"]) + ([] if block else ["block"])
        told = f"the {' and '.join(what)} {'are' if len(what) == 2 else 'is'} guessed"
        try:
            guessed, chosen = launch.guess(self._signature, self._roles, names, block)
            grid, block = grid or guessed, chosen
            self.notes.append(f"{told} from how the source computes a thread's element")
        except UsageError as error:
            self.untold = f"{error}{f' ({why})' if why else ''}"
            self._blocks = [block] if block else []
            dynamic = re.search(r"\bextern\s+__shared__", self._signature.body)
            shared = options.shared or (str(launch.DYNAMIC_BYTES) if dynamic else "0")
        self.shape = launch.Shape(grid or ("1",), block or ("1",), shared, tuple(names.items()))

    def _counts_rows(self) -> bool:
        """Whether the grid grows with M, as far as that is known."""
        return any(axis == "?" or "M" in re.findall(r"\w+", axis) for axis in self.shape.grid)

    @property
    def how(self) -> str:
        arguments = ", ".join(
            p.name if role.upper() in (p.name.upper(), roles.HOST) else f"{p.name} = {role}" for p, role in self._bound
        )
        template = f"<{', '.join(text for _, text in self._template)}>" if self._template else ""
        stored = f", {self.layout}" if self.layout.turned else ""
        return f"{self.name}{template}({arguments}), {self.shape}{stored}"

    @property
    def _bound(self) -> list[tuple[signature.Parameter, str]]:
        return list(zip(self._signature.parameters, self._roles, strict=True))

    @property
    def undetermined(self) -> list[str]:
        """`B_dim = 1`: numbers that it is given whatever its sizes are, and that may be sizes of its own."""
        if not self._reading:
            return []
        usual = self._reading.call.decided
        given = [f"{p.name} = {role}" for p, role in self._bound if role.isdigit() and p.type != "bool"]
        return [text for text in given if text in usual or int(text.split()[-1]) >= own_sizes.SMALLEST]

    def called(self, kernel: str) -> str:
        return self.name  # C++ names it with its arguments and its template's

    def launches(self) -> Iterator[CudaKernel]:
        """The kernel with what its template and its blocks may be, where nobody launches it."""
        for template in self._templates:
            names = dict(self.shape.names) | numbers(f"{p.name}={text}" for p, text in template)
            for block in self._blocks or guess.blocks(self._signature, self._unit.text, names):
                shape = replace(self.shape, block=tuple(map(str, block)), names=tuple(names.items()))
                yield self.changed(_template=template, shape=shape, untold="")

    def swapped(self) -> tuple[CudaKernel, str] | None:
        shape = self.shape.swapped()
        if shape.grid == self.shape.grid:
            return None
        return self.changed(shape=shape), ",".join(shape.grid)

    def regridded(self) -> Iterator[CudaKernel]:
        """With the grid that a program's own sizes tell, and with M and N exchanged there, since they may be equal."""
        read = self._reading if len(self.fixed) < len(roles.SIZES) else None
        if read and (told := read.own_shape(self._signature, self._roles, self.shape.names)):
            exchanged = tuple(text.translate(str.maketrans("MN", "NM")) for text in told.grid)
            for grid in (told.grid, exchanged):
                if grid != self.shape.grid:
                    shape = replace(told, grid=grid)
                    yield self.changed(shape=shape, tile=shape.tile())

    def changed(self, **attributes: object) -> CudaKernel:
        """The same kernel with other attributes."""
        other = object.__new__(CudaKernel)
        other.__dict__ = self.__dict__ | {"seen": None} | attributes
        return other

    def row_steps(self) -> list[tuple[int, str, str, str]]:
        named = {parameter.name: role for parameter, role in self._bound} | {axis: axis for axis in roles.SIZES}
        steps = self._signature.row_steps()
        meant = ((line, named.get(array, ""), name, named.get(name, "")) for line, array, name in steps)
        return [step for step in meant if step[1] in roles.MATRICES and step[3] in roles.SIZES]

    # --- on the reference GPU --------------------------------------------------------------------------------

    def run(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales = PLAIN) -> None:
        problem = gemm_ref.Problem(a.shape[0], b.shape[1], a.shape[1], self.math)
        given = self._given(a, b, c, scales)
        try:
            self.start(problem, self.shape.at(self.layout.called(problem)), given, scales)
        finally:
            self.layout.take_back(given["D" if "D" in self._roles else "C"], c)

    def _given(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales) -> dict[str, torch.Tensor]:
        """What the kernel's pointers are given, by their roles."""
        given = {name: self.layout.stored(name, x, self._dtypes[name]) for name, x in (("A", a), ("B", b), ("C", c))}
        if "D" in self._roles:
            given["D"] = torch.full_like(given["C"], torch.nan if given["C"].is_floating_point() else -1)
        if "BIAS" in self._roles:
            given["BIAS"] = (scales.bias * vector(b.shape[1])).to(a.device, self._dtypes["BIAS"])
        return given

    def alone(self) -> CudaKernel:
        """With one block, by expressions where these tell it: host code would be asked for matrices of any size."""
        shape = self.shape.expressed()
        return self.changed(shape=replace(shape, grid=("1",))) if shape else self

    def first_block(self, problem: gemm_ref.Problem) -> gemm_ref.Launch:
        """The launch of one block alone."""
        return replace(self.shape.at(problem), grid=(1, 1, 1))

    def start(
        self,
        problem: gemm_ref.Problem,
        shape: gemm_ref.Launch,
        given: Mapping[str, torch.Tensor],
        scales: Scales = PLAIN,
    ) -> None:
        """Run the kernel on the reference GPU; the tensors, by role, need not have the problem's sizes."""
        kernel = self._loaded(problem)
        kinds = [kind for _, kind in kernel.entry.parameters]
        values = [
            self._of_the_host(index, kinds[index], problem, given)
            if role == roles.HOST
            else by_value.narrow(self._value(role, problem, given, scales), kinds[index], self._dtypes["A"])
            for index, role in enumerate(self._roles)
        ]
        called = {"C": "the C that beta multiplies", "D": "C"} if "D" in self._roles else {}
        names = [called.get(role, role) if role in roles.POINTERS else "" for role in self._roles]
        ptx.run(kernel, shape, values, names=names)

    def _of_the_host(self, index: int, kind: str, problem: gemm_ref.Problem, given: Mapping[str, torch.Tensor]):
        assert self._reading
        record = self._reading.at(self.layout.called(problem))
        return by_value.value(record.arguments[index], kind, given, record)

    def _value(self, role: str, problem: gemm_ref.Problem, given: Mapping[str, torch.Tensor], scales: Scales = PLAIN):
        known = {**given, "ALPHA": scales.alpha, "BETA": scales.beta, "NULL": 0}
        if role in known:
            return known[role]
        return float(role) if re.fullmatch(r"-?\d*\.\d*(?:e-?\d+)?", role) else evaluate(role, self._sizes(problem))

    def _sizes(self, problem: gemm_ref.Problem) -> dict[str, int]:
        """What M, N, K and the lengths of rows are to the kernel."""
        called = self.layout.called(problem)
        return {"M": called.m, "N": called.n, "K": called.k, **self.layout.rows(problem)} | {
            name: number for name, number in self.shape.names if name not in roles.SIZES
        }

    def _loaded(self, problem: gemm_ref.Problem) -> ptx.DecodedKernel:
        if not self._reading:
            guessed = self._template if self._guessed else []
            return self._compiled.instance(self._arguments_of_template(problem), guessed)
        program = self._reading.program
        return self._compiled.launched(self._launched(problem).entry, program.ptx, self._reading.said)

    def _launched(self, problem: gemm_ref.Problem) -> recorder.Recorded:
        """What the host code launches there, or at sizes of its own, which is carried over."""
        assert self._reading
        asked = isinstance(self.shape, reading.ReadShape)
        return self._reading.at(self.layout.called(problem)) if asked else self._reading.first

    def _arguments_of_template(self, problem: gemm_ref.Problem) -> tuple[str, ...]:
        words = [set(re.findall(r"\w+", text)) for _, text in self._template]
        return tuple(
            str(evaluate(text, self._sizes(problem))) if used & set(roles.SIZES) else text
            for (_, text), used in zip(self._template, words, strict=True)
        )

    # --- on a GPU --------------------------------------------------------------------------------------------

    def gpu_call(self, problem: gemm_ref.Problem):
        if isinstance(self.shape, reading.ReadShape):
            one = reading.instance(self._launched(problem).entry, self.name)
        else:
            one = self._compiled.in_cpp(self._arguments_of_template(problem))
        library = on_gpu.build(self._unit, one)
        return functools.partial(self._call_on_gpu, library, problem)

    def _call_on_gpu(self, library: ctypes.CDLL, problem: gemm_ref.Problem, a, b, out) -> torch.Tensor:
        given = self._given(a, b, out, PLAIN)
        if "BETA" in self._roles:
            given["C"].zero_()
        values = [on_gpu.as_c(parameter.type, self._value(role, problem, given)) for parameter, role in self._bound]
        on_gpu.start(library, self.name, self.shape.at(self.layout.called(problem)), values)
        self.layout.take_back(given["D" if "D" in self._roles else "C"], out)
        return out
