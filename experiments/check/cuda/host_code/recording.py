"""How a file's own host code launches a kernel: the host code is run up to its launches, at several sizes.

A function that takes A, B, C and sizes is called with sizes of ours, and so is a `main`, by its command line, its
input or in place of its own. A `main` that launches the same at all sizes is run once, and the launch is scaled.
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

from experiments.check.cuda import headers, syntax
from experiments.check.cuda.compile import Unit
from experiments.check.cuda.expressions import constants, fit, fit_one_size
from experiments.check.cuda.host_code import calls, recorder
from experiments.check.cuda.host_code.recorder import PLACE, Program, RecordedLaunch
from experiments.check.cuda.host_code.rewrite import put_sizes
from experiments.check.cuda.launch import LaunchRule, without_ones
from experiments.check.cuda.parameters import HOST, MATRICES, PLACES, SCALARS, SIZES, is_pointer, role_of
from experiments.check.cuda.syntax import Signature, closing
from experiments.check.messages import Message, Note, message
from experiments.check.subject import FEW_MULTIPROCESSORS, read_source
from experiments.records.request import UsageError
from gemm_ref import Problem
from gemm_ref.build import BuildError
from gemm_ref.launch import REFERENCE_SMS, round_up

_NEIGHBOURS = ("*.cu", "*.cuh", "src/*.cu", "src/*.cuh", "test*/*.cu", "bench*/*.cu")
_QUERIES_SHARED = re.compile(r"\bsharedMemPer(?:Multiprocessor|BlockOptin)\b")  # another kernel may depend on it
MAX_SCORE = 2  # of a `Recording` that determines all
_MAX_BYTES = 1 << 20  # of a file that is searched for launches
ALPHA, BETA = 3.0, 5.0  # distinct from sizes and from each other
# Sizes that launchers take, if they take only some: multiples of 256 and 64 that differ.
WHOLE = (Problem(768, 1280, 512), Problem(1280, 512, 768), Problem(512, 768, 1280))
_POWERS = (Problem(1024, 256, 512), Problem(512, 1024, 256), Problem(256, 512, 1024))  # for those that take no others
_OTHER_SIZES = ((256, 256, 256), (96, 160, 64), (33, 17, 9), (67, 133, 39), (5, 3, 2), (1, 1, 1))
_OTHERS = [Problem(*sizes) for sizes in _OTHER_SIZES]
_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # that programs round sizes up to
_ORDER = (*PLACES, *SIZES, *SCALARS)  # of roles, where a value may be several


@dataclass
class Recording:
    """What one host function launches; its runs are cached."""

    program: Program
    compiler_output: str
    index: int  # of the call
    call: calls.HostCall
    place: str  # file:line of the function
    instance: str  # of a template, as in `kernel<32>`, if one was requested
    signature: Signature
    _runs: dict[tuple[int, int, int], RecordedLaunch | None] = field(default_factory=dict)

    def at(self, problem: Problem) -> RecordedLaunch:
        """The launch at these sizes. Raises UsageError where the host code refuses them."""
        found = self._at(problem)
        if found is None:
            raise UsageError(f"{self.call.function.name} ({self.place}) launches nothing at {problem}")
        return found

    def _at(self, problem: Problem) -> RecordedLaunch | None:
        key = (problem.m, problem.n, problem.k)
        if key not in self._runs:
            end = "0" if self.instance else "2" if self.call.passes_matrices else "1"
            every = self.program.run(self.index, *key, ALPHA, BETA, end)
            launches = [each for each in every if each.entry in self.program.entries]
            names = ((each, _compact(instance(each.entry, self.signature.name))) for each in launches)
            found = [each for each, name in names if self.instance in ("", name)]
            found = [each for each in found if min(each.launch.grid)] or found  # CUDA refuses a launch of no blocks
            distinct = {each.arguments: each for each in reversed(found) if each.pointed == found[0].pointed}
            more = tuple(each for each in found[1:] if distinct.get(each.arguments) is each)
            then = [] if self.instance or not found else every[every.index(launches[-1]) + 1 :]
            then = [each for each in then if self.call.passes_matrices and found[0].is_followed_by(each)]
            self._runs[key] = replace(found[0], more=more, then=tuple(then)) if found else None
        return self._runs[key]

    @functools.cached_property
    def ignores_sizes(self) -> bool:
        """Whether it launches the same whatever sizes it is given."""
        first, second = (self._at(problem) for problem in WHOLE[:2])
        return bool(first and second and self._numbers(first) == self._numbers(second))

    @functools.cached_property
    def score(self) -> int:
        """How much it determines: MAX_SCORE if what it launches has A and B, and depends on N.

        0 if it launches nothing, at sizes that differ or at equal ones, or one block whatever the sizes.
        """
        first = next(filter(None, map(self._at, (WHOLE[0], _POWERS[0], _OTHERS[0]))), None)
        if not first or self.ignores_sizes and first.launch.grid == (1, 1, 1):
            return 0
        if self.ignores_sizes or not self.call.passes_matrices:
            return MAX_SCORE - self.ignores_sizes
        one, other = (self._at(WHOLE[0].resized(n=n)) for n in (WHOLE[0].n, 2 * WHOLE[0].n))
        in_structs = sum(map(is_pointer, self.signature.parameters)) < len(MATRICES)
        has_matrices = in_structs or {"A", "B"} <= {*self.roles()}
        return 1 + (has_matrices and bool(one and other and self._numbers(one) != self._numbers(other)))

    def _numbers(self, record: RecordedLaunch) -> tuple:
        """What does not differ from one run of a program to the next."""
        raw = zip(self.signature.parameters, record.arguments, strict=False)
        return record.launch, [value for parameter, value in raw if not is_pointer(parameter)]

    @functools.cached_property
    def probes(self) -> dict[Problem, RecordedLaunch]:
        """The launches at sizes that it takes."""
        if self.ignores_sizes:
            return {WHOLE[0]: self.at(WHOLE[0])}
        whole = WHOLE if self._at(WHOLE[0]) else _POWERS
        return {problem: found for problem in (*whole, *_OTHERS) if (found := self._at(problem))}

    @functools.cached_property
    def on_whole_gpu(self) -> Recording:
        """The recording on a GPU with all its multiprocessors, if the launch depends on their number; else itself."""
        whole = replace(self, program=replace(self.program, multiprocessors=REFERENCE_SMS), _runs={})
        problem = next(iter(self.probes))
        return self if whole.at(problem).launch == self.at(problem).launch else whole

    def rounded(self, roles: Sequence[str]) -> dict[str, int]:
        """The multiples that a program rounds its sizes up to before it allocates and launches, by M, N and K."""
        found = {}
        for role, index in ((role, index) for index, role in enumerate(roles) if role in SIZES):
            pairs = [
                (getattr(problem, role.lower()), int.from_bytes(record.arguments[index], "little"))
                for problem, record in self.probes.items()
            ]
            steps = (step for step in _STEPS if all(round_up(size, step) == passed for size, passed in pairs))
            found[role] = 1 if self.call.passes_matrices or self.ignores_sizes else next(steps, 1)
        return {role: step for role, step in found.items() if step > 1}

    def has_zeroed_c(self, roles: Sequence[str], element_bytes: int) -> bool:
        """Whether the host code fills C with zeros at all sizes."""
        sizes = ((problem.m * problem.n * element_bytes, record) for problem, record in self.probes.items())
        return all(record.with_roles(roles).has_zeroed_c(bytes_) for bytes_, record in sizes)

    @property
    def first(self) -> RecordedLaunch:
        return next(iter(self.probes.values()))

    def roles(self, structs: Container[str] = ()) -> list[str]:
        """The role of each parameter by the values passed; HOST for a struct, empty where they do not determine it."""
        if self.ignores_sizes:
            return [""] * len(self.signature.parameters)
        whole = [(problem, record) for problem, record in self.probes.items() if problem in (*WHOLE, *_POWERS)]
        found = []
        for index, parameter in enumerate(self.signature.parameters):
            if len(self.first.arguments[index]) not in (1, 2, 4, 8) or parameter.type.split()[-1] in structs:
                found.append(HOST)
                continue
            if is_pointer(parameter) and not self.call.passes_matrices or role_of(parameter.name) in SCALARS:
                found.append("")  # the name determines it
                continue
            possible = [_possible_roles(record, index, parameter.type, problem) for problem, record in whole]
            common = set.intersection(*possible) if possible else set()
            by_name = parameter.name.upper()
            role = by_name if by_name in common else next((each for each in _ORDER if each in common), "")
            is_free = not common and all(possible) and not is_pointer(parameter)  # such as half of a size
            found.append(HOST if is_free else common.pop() if not role and len(common) == 1 else role)
        unknown = [index for index, p in enumerate(self.signature.parameters) if is_pointer(p) and not found[index]]
        if self.call.passes_matrices and "C" not in found and len(unknown) == 1:  # allocated by the host code
            found[unknown[0]] = "C"
        return found

    def has_one_tile(self, roles: Sequence[str], tile: tuple[int, int] | None) -> bool:
        """Whether a program launches one block, for sizes of its own that are no more than this tile of C."""
        own = self._at(Problem(0, 0, 0)) if tile and not self.call.passes_matrices else None
        has_one_block = own and own.launch == self.first.launch and max(own.launch.grid) == 1
        found = self.sizes_of_program(own, roles) if own and has_one_block else {}
        return tile is not None and all(0 < found.get(axis, 0) <= side for axis, side in zip("MN", tile, strict=True))

    def rule(self, roles: Sequence[str], names: tuple[tuple[str, int], ...]) -> LaunchRule:
        """The launch at any sizes: as the host code makes it, or scaled from the sizes of a `main`."""
        if self.ignores_sizes:
            return self._scaled_rule(self.first, roles, names)
        grid, block, shared = self._expressions() or (("?",), ("?",), "0")
        function = self.place, self.call.function.name
        return LaunchRule(grid, block, shared, names, lambda problem: self.at(problem).launch, function)

    def program_rule(self, roles: Sequence[str], names: tuple[tuple[str, int], ...]) -> LaunchRule | None:
        """The rule scaled from a `main`'s own sizes: a grid that is the same at others may be for these alone."""
        if self.ignores_sizes:
            return self._scaled_rule(self.first, roles, names)
        found = self._expressions()
        constant = found and all(axis.isdigit() for axis in found[0]) and found[0] != ("1",)
        own = self._at(Problem(0, 0, 0)) if constant and not self.call.passes_matrices else None
        return self._scaled_rule(own, roles, names) if own and own.launch == self.first.launch else None

    def describe(self, rule: LaunchRule) -> Message:
        """The function that launches, and the options that set the same launch."""
        count = 1 + len(self.first.more) + len(self.first.then)
        has_options = rule.has_expressions and count == 1
        options = f": --grid '{','.join(rule.grid)}' --block '{','.join(rule.block)}'" * has_options
        options += f" --shared '{rule.shared}'" * (bool(options) and rule.shared != "0")
        place = self.place + ", on a GPU with little shared memory" * self.program.small_gpu
        few = f", on a GPU with {FEW_MULTIPROCESSORS} multiprocessors"
        place += few * (self.on_whole_gpu is not self)
        place += f", in {count} launches" * (count > 1)
        place += ", which continues where it would exit with an error" * self.program.ignores_exit
        assumed = f" with {', '.join(self.call.assumed)}" if self.call.assumed else ""
        name = self.call.function.name
        return message(Note.LAUNCH_RECORDED, function=name, place=place, assumed=assumed, options=options)

    def sizes_of_program(self, record: RecordedLaunch, roles: Sequence[str]) -> dict[str, int]:
        """M, N and K of a program's own launch, from its arguments and its allocations."""
        bytes_, pairs = record.bytes_of(roles), zip(roles, record.arguments, strict=True)
        found = {role: int.from_bytes(raw, "little") for role, raw in pairs if role in SIZES}
        if len(found) == 1:
            found = dict.fromkeys(SIZES, next(iter(found.values())))
        if "M" not in found and "N" in found and "K" in found and bytes_.get("B") and bytes_.get("A"):
            found["M"] = bytes_["A"] * found["N"] // bytes_["B"]
        return found

    def _scaled_rule(
        self, record: RecordedLaunch, roles: Sequence[str], names: tuple[tuple[str, int], ...]
    ) -> LaunchRule:
        sizes = dict(names) | self.sizes_of_program(record, roles)
        grid = []
        for axis, (blocks, order) in enumerate(zip(record.launch.grid, ("NMK", "MNK", "KMN"), strict=True)):
            steps = (record.launch.block[axis], 0)
            fitted = (fit_one_size(blocks, sizes[name], name, by) for by in steps for name in order if name in sizes)
            grid.append("1" if blocks == 1 else next(filter(None, fitted), str(blocks)))
        block = [str(size) for size in record.launch.block]
        shared, function = str(record.launch.shared_bytes), (self.place, self.call.function.name)
        return LaunchRule(without_ones(grid), without_ones(block), shared, names, None, function)

    def _expressions(self) -> tuple[tuple[str, ...], tuple[str, ...], str] | None:
        """Grid, block and dynamic shared memory as expressions that hold at every size that was tried."""
        launches = {problem: found.launch for problem, found in self.probes.items()}
        fitted = [
            fit({problem: sizes(launch)[axis] for problem, launch in launches.items()}, axis)
            for sizes in (lambda x: x.grid, lambda x: x.block, lambda x: (x.shared_bytes,))
            for axis in range(len(sizes(self.first.launch)))
        ]
        texts = [text for text in fitted if text is not None]
        if len(texts) < len(fitted):
            return None
        return without_ones(texts[:3]), without_ones(texts[3:6]), texts[6]


def record(unit: Unit, signature: Signature, element: str, template: str) -> tuple[Recording | None, str]:
    """Returns what the host code does with the kernel, or why that is unknown. Raises UsageError."""
    places = {function: f"{file.name}:{line}" for function, file, line in unit.all_functions()}
    leading = syntax.callers(list(places), signature.name, unit.text)
    texts = [read_source(file) for file in neighbours(unit.path)]
    ways = calls.host_calls(leading, signature.name, element, unit.text, texts)
    if not ways:
        return None, "no host function of the file launches it" if not leading else (
            f"{leading[0].name} launches it, whose parameters are not understood"
        )
    rewrite = put_sizes(unit.texts.values(), [f.name for f in leading], constants(unit.text, {}))
    try:
        program, output = recorder.build(unit, ways, rewrite)
    except BuildError:
        return None, "its host code could not be built"
    requested = _compact(f"{signature.name}<{template}>") if template else ""
    programs = [program] + [replace(program, small_gpu=True)] * bool(_QUERIES_SHARED.search(unit.text))
    programs.append(replace(program, ignores_exit=True))
    best: Recording | None = None
    for variant, (index, call) in itertools.product(programs, enumerate(ways)):
        if call.function.name in unit.left_out or variant.ignores_exit and (best or call.function.name != "main"):
            continue
        recording = Recording(variant, output, index, call, places[call.function], requested, signature)
        if recording.score > (best.score if best else 0):
            best = recording
        if recording.score == MAX_SCORE:
            break
    if best and best.first.unknown_bytes:
        raise UsageError(
            f"{best.call.function.name} ({best.place}) reads {best.first.unknown_bytes} bytes of device memory before "
            f"it launches {signature.name}, and nothing says what they hold, so the launch is not known: pass --grid "
            "and --block"
        )
    return best, f"{ways[0].function.name} was run and launched nothing, or one block for sizes of its own"


def candidate_files(path: Path, kernel: str) -> Iterator[Path]:
    """The files that may launch: the one at `path`, and those of its project that include it or declare its kernel.

    A header may need what the files that include it have before it, so these come first.
    """
    text, own = read_source(path), path.resolve()
    if path.suffix == ".cu" and syntax.callers(syntax.functions(text), kernel, text):
        yield path
    others, linked, declared = [], [], rf"__global__[^;{{}}]*\b{kernel}\s*\([^;{{}}]*\)\s*;"
    for file in neighbours(path):
        other = read_source(file)
        launches = re.search(rf"\b{kernel}\b", other) and syntax.callers(syntax.functions(other), kernel, other)
        if not launches and path.name not in other:
            continue
        if own in headers.included(file, other):
            others += [file] * (not launches)
            if launches:
                yield file
        elif launches and path.suffix == ".cu" and re.search(declared, headers.with_includes(file, other)):
            linked.append(file)
    yield from (*linked, *others[:1])
    yield path


def neighbours(path: Path) -> list[Path]:
    """The CUDA files of a project beside the one at `path`, those that are text."""
    return _neighbours(path)[0]


def unreadable_neighbours(path: Path) -> list[Path]:
    """Those that are no text or may not be read, such as the `._x.cu` that macOS leaves beside `x.cu`."""
    return _neighbours(path)[1]


@functools.lru_cache(maxsize=64)
def _neighbours(path: Path) -> tuple[list[Path], list[Path]]:
    readable: list[Path] = []
    unreadable: list[Path] = []
    for folder in headers.project(path):
        for file in sorted(itertools.chain.from_iterable(folder.glob(pattern) for pattern in _NEIGHBOURS)):
            try:
                if file.is_file() and file.stat().st_size < _MAX_BYTES and file.resolve() != path.resolve():
                    read_source(file)
                    readable.append(file)
            except (UsageError, OSError):
                unreadable.append(file)
    return readable, unreadable


@functools.cache  # for every launch that is read
def instance(entry: str, name: str) -> str:
    """The kernel in C++, `name<128, float>`, of a name in PTX."""
    try:
        demangled = subprocess.run(["c++filt", entry], capture_output=True, text=True, check=False).stdout
    except OSError:
        return name
    start = re.search(rf"\b{name}<", demangled)
    return demangled[start.start() : closing(demangled, start.end() - 1)] if start else name


def _compact(text: str) -> str:
    return re.sub(r"\s", "", text)


def _possible_roles(record: RecordedLaunch, index: int, type_: str, problem: Problem) -> set[str]:
    raw = record.arguments[index] if index < len(record.arguments) else b""
    if len(raw) not in (1, 2, 4, 8):
        return set()
    whole = int.from_bytes(raw, "little", signed=True)
    if "*" in type_:
        matrix = record.tags.get(whole >> PLACE, "") if whole % (1 << PLACE) == 0 else ""
        return {matrix} if matrix else {"NULL"} if whole == 0 else set()
    if re.search(r"\b(?:float|double|half|__half|T|__nv_bfloat16)\b", type_):
        is_bfloat = len(raw) == 2 and "bfloat" in type_  # the upper half of a float
        form = "<f" if is_bfloat else {2: "<e", 8: "<d"}.get(len(raw), "<f")
        value = struct.unpack(form, b"\0\0" * is_bfloat + raw)[0]
        return {{ALPHA: "ALPHA", BETA: "BETA"}.get(value, repr(value))}
    sizes = {"M": problem.m, "N": problem.n, "K": problem.k}
    return {axis for axis, size in sizes.items() if size == whole} or {str(whole)}
