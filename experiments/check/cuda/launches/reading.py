"""How a file's own host code launches a kernel: the host code is run up to its launches, at several sizes.

A function that takes A, B, C and sizes is called with sizes of ours, and so is a `main`, by its command line, its
input or in place of its own. What a `main` launches that is the same whatever it is told is carried over to other
sizes.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
import subprocess
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import gemm_ref
from experiments.check import source_text
from experiments.check.cuda import headers, host, launch
from experiments.check.cuda.expressions import constants
from experiments.check.cuda.launches import driver, fit, own_sizes, recorder
from experiments.check.cuda.launches.recorder import PLACE, Program, Recorded
from experiments.check.cuda.roles import HOST, MATRICES, PLACES, SCALARS, SIZES, is_pointer, role_of
from experiments.check.cuda.signature import Signature, closing
from experiments.check.cuda.unit import Unit
from experiments.records.request import UsageError
from gemm_ref.build import BuildError

Problem = gemm_ref.Problem
Names = tuple[tuple[str, int], ...]  # numbers that expressions may use
_NEIGHBOURS = ("*.cu", "*.cuh", "src/*.cu", "src/*.cuh", "test*/*.cu", "bench*/*.cu")
_SHARED = re.compile(r"\bsharedMemPer(?:Multiprocessor|BlockOptin)\b")  # what another kernel may be chosen by
TELLS_ALL = 2  # what the best of `Reading`s is worth
_MOST_BYTES = 1 << 20  # of a file that is looked through
ALPHA, BETA = 3.0, 5.0  # told apart from sizes and from each other
# Sizes that launchers take, if they take only some: multiples of 256 and 64 that differ.
WHOLE = (Problem(768, 1280, 512), Problem(1280, 512, 768), Problem(512, 768, 1280))
_POWERS = (Problem(1024, 256, 512), Problem(512, 1024, 256), Problem(256, 512, 1024))  # for those that take no others
_OTHERS = (Problem(256, 256, 256), Problem(96, 160, 64), Problem(67, 133, 39), Problem(5, 3, 2), Problem(1, 1, 1))


@dataclass
class Reading:
    """What one host function launches."""

    program: Program
    said: str  # by the compiler
    index: int  # of the call
    call: driver.Call
    where: str  # file:line of the function
    instance: str  # of a template, as in `kernel<32>`, if it was asked for
    chosen: Signature
    _seen: dict[Problem, Recorded | None] = field(default_factory=dict)

    def at(self, problem: Problem) -> Recorded:
        """The launch at these sizes. Raises UsageError where the host code refuses them."""
        found = self._at(problem)
        if found is None:
            raise UsageError(f"{self.call.function.name} ({self.where}) launches nothing at {problem}")
        return found

    def _at(self, problem: Problem) -> Recorded | None:
        key = Problem(problem.m, problem.n, problem.k)
        if key not in self._seen:
            self._seen[key] = self._run(key.m, key.n, key.k)
        return self._seen[key]

    def _run(self, m: int, n: int, k: int) -> Recorded | None:
        runs = self.program.run(self.index, m, n, k, ALPHA, BETA, all_=bool(self.instance))
        ours = [run for run in runs if self.instance in ("", _plain(instance(run.entry, self.chosen.name)))]
        return ours[0] if ours else None

    @functools.cached_property
    def sizes_are_its_own(self) -> bool:
        """Whether it launches the same whatever sizes it is told."""
        first, second = (self._at(problem) for problem in WHOLE[:2])
        return bool(first and second and self._numbers(first) == self._numbers(second))

    @functools.cached_property
    def worth(self) -> int:
        """How much it tells: TELLS_ALL if what it launches has A and B, and N, in whose place a tensor B may have K.

        0 if it launches nothing, at sizes that differ or at equal ones, or one block whatever sizes it is told.
        """
        own = self.sizes_are_its_own
        first = next(filter(None, map(self._at, (WHOLE[0], _POWERS[0], _OTHERS[0]))), None)
        if not first or own and first.launch.grid == (1, 1, 1):
            return 0
        if own or not self.call.gives_matrices:
            return TELLS_ALL - own
        one, other = (self._at(WHOLE[0].resized(n=n)) for n in (WHOLE[0].n, 2 * WHOLE[0].n))
        whole = sum(map(is_pointer, self.chosen.parameters)) < len(MATRICES) or {"A", "B"} <= {*self.roles(self.chosen)}
        return 1 + (whole and bool(one and other and self._numbers(one) != self._numbers(other)))

    def _numbers(self, record: Recorded) -> tuple:
        """What does not differ from one run of a program to the next."""
        raw = zip(self.chosen.parameters, record.arguments, strict=False)
        return record.launch, [value for parameter, value in raw if not is_pointer(parameter)]

    @functools.cached_property
    def probes(self) -> dict[Problem, Recorded]:
        """The launches at sizes that it takes."""
        if self.sizes_are_its_own:
            return {WHOLE[0]: self.at(WHOLE[0])}
        whole = WHOLE if self._at(WHOLE[0]) else _POWERS
        return {problem: found for problem in (*whole, *_OTHERS) if (found := self._at(problem))}

    @property
    def first(self) -> Recorded:
        """The launch at the first of them."""
        return next(iter(self.probes.values()))

    def roles(self, chosen: Signature, structs: Container[str] = ()) -> list[str]:
        """What each parameter is by the value that it is given; HOST for a struct, empty where that does not tell."""
        if self.sizes_are_its_own:
            return [""] * len(chosen.parameters)
        first = self.first
        whole = [(problem, found) for problem, found in self.probes.items() if problem in (*WHOLE, *_POWERS)]
        found = []
        for index, parameter in enumerate(chosen.parameters):
            if len(first.arguments[index]) not in (1, 2, 4, 8) or parameter.type.split()[-1] in structs:
                found.append(HOST)
                continue
            if is_pointer(parameter) and not self.call.gives_matrices or role_of(parameter.name) in SCALARS:
                found.append("")  # names tell
                continue
            told = [_told(record, index, parameter.type, problem) for problem, record in whole]
            common = set.intersection(*told) if told else set()
            named = parameter.name.upper()
            found.append(named if named in common else next((role for role in _ORDER if role in common), ""))
            if not found[-1] and len(common) == 1:
                found[-1] = common.pop()
        unknown = [index for index, p in enumerate(chosen.parameters) if is_pointer(p) and not found[index]]
        if self.call.gives_matrices and "C" not in found and len(unknown) == 1:  # what the host code allocates itself
            found[unknown[0]] = "C"
        return found

    def shape_for(self, chosen: Signature, roles: Sequence[str], names: Names) -> launch.Shape:
        """The launch at any sizes: as the host code has it, or carried over from the sizes of a `main`."""
        if self.sizes_are_its_own:
            return self._carried_over(self.first, chosen, roles, names)
        grid, block, shared = self.expressions() or (("?",), ("?",), "0")
        return ReadShape(grid, block, shared, names, reading=self)

    def own_shape(self, chosen: Signature, roles: Sequence[str], names: Names) -> launch.Shape | None:
        """What is carried over from a `main`'s own sizes: where the grid is the same at others, it may be for these."""
        if self.sizes_are_its_own:
            return self._carried_over(self.first, chosen, roles, names)
        told = self.expressions()
        constant = told and all(axis.isdigit() for axis in told[0]) and told[0] != ("1",)
        own = self._run(0, 0, 0) if constant and not self.call.gives_matrices else None
        return self._carried_over(own, chosen, roles, names) if own and own.launch == self.first.launch else None

    def told(self, roles: Sequence[str], shape: launch.Shape) -> str:
        """In a sentence, with the options that say the same."""
        options = "" if "?" in shape.grid else f": --grid '{','.join(shape.grid)}' --block '{','.join(shape.block)}'"
        options += f" --shared '{shape.shared}'" if options and shape.shared != "0" else ""
        where = f"{self.where}, on a GPU with little shared memory" if self.program.small else self.where
        where += ", which goes on where it would end with an error" * self.program.goes_on
        decided = f" with {', '.join(self.call.decided)}" if self.call.decided else ""
        return f"launched as by {self.call.function.name} ({where}){decided}{options}"

    def _carried_over(self, record: Recorded, chosen: Signature, roles: Sequence[str], names: Names) -> launch.Shape:
        sizes = dict(names) | own_sizes_of(record, chosen, roles)
        grid = []
        for axis, (value, order) in enumerate(zip(record.launch.grid, ("NMK", "MNK", "KMN"), strict=True)):
            step = record.launch.block[axis]
            told = (fit.one_size(value, sizes[name], name, by) for by in (step, 0) for name in order if name in sizes)
            grid.append("1" if value == 1 else next((text for text in told if text), str(value)))
        block = [str(size) for size in record.launch.block]
        return launch.Shape(_short(grid), _short(block), str(record.launch.shared_bytes), names)

    def expressions(self) -> tuple[tuple[str, ...], tuple[str, ...], str] | None:
        """Grid, block and dynamic shared memory as expressions that hold at every size that was tried."""
        launches = {problem: found.launch for problem, found in self.probes.items()}
        told = []
        for get in (lambda x: x.grid, lambda x: x.block):
            found = [fit.expression({p: get(x)[axis] for p, x in launches.items()}, axis) for axis in range(3)]
            axes = [text for text in found if text is not None]
            if len(axes) < len(found):
                return None
            told.append(_short(axes))
        shared = fit.expression({p: x.shared_bytes for p, x in launches.items()}, 0)
        return None if shared is None else (told[0], told[1], shared)


@dataclass(frozen=True)
class ReadShape(launch.Shape):
    """A launch that the host code is asked for at each size; expressions are for people, `?` where there is none."""

    reading: Reading | None = None

    def at(self, problem: Problem) -> gemm_ref.Launch:
        assert self.reading
        return self.reading.at(problem).launch

    def expressed(self) -> launch.Shape | None:
        return None if "?" in self.grid else launch.Shape(self.grid, self.block, self.shared, self.names)

    def swapped(self) -> launch.Shape:
        known = self.expressed()
        return known.swapped() if known else self

    def tile(self) -> tuple[int, int]:
        known = self.expressed()
        return known.tile() if known and not set("MNK") & set("".join(self.block)) else (128, 128)

    def __str__(self) -> str:
        return "grid and block as its host code has them" if "?" in self.grid else super().__str__()


_ORDER = (*PLACES, *SIZES, "ALPHA", "BETA")


def read(unit: Unit, chosen: Signature, element: str, template: str) -> tuple[Reading | None, str]:
    """What the file's host code does with the kernel, and why it is not known if it is not.

    Raises UsageError where the kernel itself does not compile.
    """
    places = {function: f"{file.name}:{line}" for function, file, line in unit.functions()}
    leading = host.callers(list(places), chosen.name, unit.text)
    texts = [source_text.read(file) for file in neighbours(unit.path)]
    calls = driver.calls(leading, chosen.name, element, unit.text, texts)
    if not calls:
        return None, "no host function of the file launches it" if not leading else (
            f"{leading[0].name} launches it, whose parameters are not understood"
        )
    rewrite = own_sizes.rewrite(unit.texts.values(), [f.name for f in leading], constants(unit.text, {}))
    try:
        program, said = recorder.build(unit, calls, rewrite)
    except BuildError:
        return None, "its host code could not be built"
    one = _plain(f"{chosen.name}<{template}>") if template else ""
    programs = [program] + ([replace(program, small=True)] if _SHARED.search(unit.text) else [])
    programs.append(replace(program, goes_on=True))
    found: Reading | None = None
    for program, (index, call) in itertools.product(programs, enumerate(calls)):
        if program.goes_on and (found or call.function.name != "main"):
            continue
        if call.function.name not in unit.left_out:
            reading = Reading(program, said, index, call, places[call.function], one, chosen)
            if reading.worth > (found.worth if found else 0):
                found = reading
            if reading.worth == TELLS_ALL:
                break
    return found, f"{calls[0].function.name} was run and launched nothing, or one block for sizes of its own"


def files(path: Path, kernel: str) -> Iterator[Path]:
    """The files to look for a launch in: the one at `path`, and those of its project that include it or declare it.

    A header may need what the files that include it have before it, so these come first.
    """
    text, ours = source_text.read(path), path.resolve()
    alone = path.suffix == ".cu" and host.callers(host.functions(text), kernel, text)
    if alone:
        yield path
    others, linked, declared = [], [], rf"__global__[^;{{}}]*\b{kernel}\s*\([^;{{}}]*\)\s*;"
    for file in neighbours(path):
        other = source_text.read(file)
        launches = re.search(rf"\b{kernel}\b", other) and host.callers(host.functions(other), kernel, other)
        if not launches and path.name not in other:
            continue
        if ours in headers.included(file, other):
            others.append(file)
            if launches:
                yield file
        elif launches and path.suffix == ".cu" and re.search(declared, headers.with_includes(file, other)):
            linked.append(file)
    yield from (*linked, *others[:1])
    yield path


def neighbours(path: Path) -> Iterator[Path]:
    """The CUDA files of a project beside the one at `path`."""
    for above in headers.project(path):
        for file in sorted(itertools.chain.from_iterable(above.glob(pattern) for pattern in _NEIGHBOURS)):
            if file.is_file() and file.stat().st_size < _MOST_BYTES and file.resolve() != path.resolve():
                yield file


@functools.cache  # every launch that is read names its kernel
def instance(entry: str, name: str) -> str:
    """The kernel in C++, `name<128, float>`, of a name in PTX."""
    try:
        told = subprocess.run(["c++filt", entry], capture_output=True, text=True, check=False).stdout
    except OSError:
        return name
    start = re.search(rf"\b{name}<", told)
    return told[start.start() : closing(told, start.end() - 1)] if start else name


def own_sizes_of(record: Recorded, chosen: Signature, roles: Sequence[str]) -> dict[str, int]:
    """M, N and K of a program's own launch, as its arguments and what it allocated tell them."""
    found, bytes_ = {}, {}
    for role, raw, parameter in zip(roles, record.arguments, chosen.parameters, strict=True):
        if is_pointer(parameter):
            bytes_[role] = dict(record.allocated).get(int.from_bytes(raw, "little") >> PLACE, 0)
        elif role in SIZES:
            found[role] = int.from_bytes(raw, "little")
    for role in SIZES if len(found) == 1 else ():
        found.setdefault(role, next(iter(found.values())))
    if "M" not in found and "N" in found and "K" in found and bytes_.get("B") and bytes_.get("A"):
        found["M"] = bytes_["A"] * found["N"] // bytes_["B"]
    return found


def _short(axes: list[str]) -> tuple[str, ...]:
    """Without axes of 1 at the end."""
    return _short(axes[:-1]) if len(axes) > 1 and axes[-1] == "1" else tuple(axes)


def _plain(text: str) -> str:
    return re.sub(r"\s", "", text)


def _told(record: Recorded, index: int, type_: str, problem: Problem) -> set[str]:
    """All that a parameter may be by its value."""
    raw = record.arguments[index] if index < len(record.arguments) else b""
    if len(raw) not in (1, 2, 4, 8):
        return set()
    whole = int.from_bytes(raw, "little", signed=True)
    if "*" in type_:
        place = whole >> PLACE
        tag = dict(record.tags).get(place, "") if whole % (1 << PLACE) == 0 else ""
        return {tag} if tag else {"NULL"} if whole == 0 else set()
    sizes = {"M": problem.m, "N": problem.n, "K": problem.k}
    if re.search(r"\b(?:float|double|half|__half|T|__nv_bfloat16)\b", type_):
        value = _fraction(raw, type_)
        return {"ALPHA"} if value == ALPHA else {"BETA"} if value == BETA else {repr(value)}
    return {axis for axis, size in sizes.items() if size == whole} or {str(whole)}


def _fraction(raw: bytes, type_: str) -> float:
    if len(raw) == 2:
        return struct.unpack("<f", b"\0\0" + raw)[0] if "bfloat" in type_ else struct.unpack("<e", raw)[0]
    return struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0]
