"""A user's .cu with the options of the command line, and the kernel in it with its parameters bound."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

import gemm_ref
from experiments.check.cuda import headers, launch, parameters, syntax
from experiments.check.cuda.compile import Unit
from experiments.check.cuda.expressions import constants, numbers
from experiments.check.cuda.host_code import calls, recorder, recording
from experiments.check.cuda.kernel import CudaKernel
from experiments.check.messages import Message, Note, message
from experiments.check.subject import PLAIN, Options, Scales, read_source
from experiments.records.request import UsageError

_MAX_FILES = 3  # of a project, whose host code is run
_MACROS = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(", re.M)
_MAX_TEMPLATES = 3  # that are tried where nothing determines the arguments


class HostCode(NamedTuple):
    recording: recording.Recording | None
    unit: Unit  # the file that launches, or the user's
    aliases: Mapping[str, str]  # of types
    why: str = ""  # there is no recording


class Bound(NamedTuple):
    """A kernel whose launch is not known yet, and what it may be made of."""

    kernel: CudaKernel
    templates: Sequence[launch.Template]  # the first is the kernel's
    names: Mapping[str, int]
    passed_sizes: set[str]  # those of M, N and K that it receives


class KernelFile:
    """A kernel's file and the options, and what follows from them, each found once."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path, self.options = path, options  # the path as the user passes it
        self.has_launch_options = bool(options.grid and options.block)  # the whole launch
        self.signature, self._kernel_path, self._text = _find_kernel(path, options.kernel)
        self._folder = tempfile.TemporaryDirectory(prefix="gemm-ladder-check-")
        includes = (f"-I{Path(folder).resolve()}" for folder in options.include)
        self._flags = (*includes, *shlex.split(options.flags))
        macros = (flag.removeprefix("-D") for flag in self._flags if flag.startswith("-D"))
        self._defined = numbers([*options.define, *macros])
        known = constants(self._text, self._defined)
        reduced = parameters.reduced_constants(self.signature, known, self._text)
        self._reduced = {name: value for name, value in reduced.items() if name not in self._defined}
        self._unit = self._unit_of(path, None, self._flags)

    @functools.cached_property
    def block(self) -> tuple[str, ...]:
        return launch.parse(self.options.block, "--block") if self.options.block else ()

    @functools.cached_property
    def grid_and_block(self) -> tuple[tuple[str, ...], tuple[str, ...]] | UsageError:
        """The launch by the element of C that a thread's indices name, or why the source does not show it."""
        try:
            return launch.infer_from_indices(self.signature, self.bound.kernel.roles, self.bound.names, self.block)
        except UsageError as error:
            return error

    def _unit_of(self, path: Path, linked: Path | None, flags: tuple[str, ...]) -> Unit:
        folder, name = Path(self._folder.name), self.signature.name
        unit = Unit(path, flags, self.options.define, folder, name, self._kernel_path, linked)
        for constant, value in self._reduced.items():
            unit.set_constant(constant, value)
        return unit

    @functools.cached_property
    def host_code(self) -> HostCode:
        """How a file of the project launches the kernel; not asked where the user specifies a grid or a block."""
        best = HostCode(None, self._unit, parameters.type_aliases(self._text))
        failed, why = None, ""
        is_asked = not (self.options.grid or self.options.block)
        files = recording.candidate_files(self.path, self.signature.name) if is_asked else ()
        for file in dict.fromkeys(itertools.islice(files, _MAX_FILES)):
            is_linked = file != self.path and self.path.resolve() not in headers.included(file, read_source(file))
            unit = self._unit_of(file, self.path if is_linked else None, self._unit.flags)
            try:
                best = best._replace(aliases={**best.aliases, **parameters.type_aliases(unit.text)})
                element = self._element(best.aliases)
                found, why_not = recording.record(unit, self.signature, element, self.options.template)
            except UsageError as error:
                failed = failed or error
                continue
            why = why or why_not
            if found and found.score > (best.recording.score if best.recording else 0):
                best = best._replace(recording=found, unit=unit)
            if found and found.score == recording.MAX_SCORE:
                break
        if failed and not why:
            raise failed
        return best._replace(why=why)

    def _element(self, aliases: Mapping[str, str]) -> str:
        """The type of A's elements, as far as it is known before anything is launched."""
        names = (parameter.name for parameter in self.signature.template)
        known = {**aliases, **dict(zip(names, syntax.split(self.options.template), strict=False))}
        declared = self.signature.parameters
        for parameter, role in zip(declared, parameters.roles_by_name(declared), strict=True):
            if role == "A" and (text := parameters.element_type(parameter.type, known)) in parameters.TYPES:
                return text
        return "float"

    @functools.cached_property
    def bound(self) -> Bound:
        """The kernel with roles, types and sizes of its parameters. Raises UsageError where one is not known."""
        signature, options, (recorded, unit, aliases, _) = self.signature, self.options, self.host_code
        names = constants(self._unit.text, self._defined)
        by_value = recorded.roles(calls.structs(unit.text)) if recorded else []
        by_size = bool(recorded and not recorded.ignores_sizes)
        roles = parameters.assign_roles(signature, options.args, by_value, by_size)
        candidates = self._templates(names)
        template = candidates[0]
        names |= numbers(f"{parameter.name}={text}" for parameter, text in template)
        element = self._element(aliases)
        dtypes = self._dtypes(roles, template, element)
        passed, fixed, is_square, notes = self._sizes(roles, template, names)
        if skipped := recording.unreadable_neighbours(self.path):
            notes.append(message(Note.NEIGHBOURS_SKIPPED, files=", ".join(each.name for each in skipped)))
        zeroed = bool(recorded and recorded.has_zeroed_c(roles, dtypes["C"].itemsize))
        if recorded and zeroed:
            notes.append(message(Note.C_ZEROED, function=recorded.call.function.name))
        rounded = recorded.rounded(roles) if recorded else {}
        if recorded and rounded:
            steps = ", ".join(f"{axis} to {step}" for axis, step in rounded.items())
            notes.append(message(Note.SIZES_ROUNDED, function=recorded.call.function.name, steps=steps))
        storage = parameters.parse_layout(options.layout)
        if recorded and recorded.ignores_sizes and len(fixed) == len(parameters.SIZES):
            storage = replace(storage, padded=self._padded(roles, dtypes, fixed, names))
            notes += [message(Note.PADDED, function=recorded.call.function.name)] * bool(storage.padded)
        guesses = (
            ("--template", bool(template) and not (options.template or recorded)),
            ("--args", not recorded and not options.args and any(role.isdigit() for role in roles)),
            ("--grid, --block and --args", bool(recorded and recorded.call.assumed)),
        )
        kernel = CudaKernel(
            path=self._kernel_path,
            name=signature.name,
            tile=(1, 1),
            math=parameters.math_of(dtypes),
            square=is_square,
            fixed=fixed,
            is_integer=not all(dtype.is_floating_point for dtype in dtypes.values()),
            unsigned=dtypes["A"] == torch.uint8 or element in parameters.UNSIGNED,
            plain=Scales(beta=1.0) if {"C", "D"} <= {*roles} and "BETA" not in roles else PLAIN,
            zeroed=zeroed,
            scalars=tuple(role for role in (*parameters.SCALARS, "BIAS") if role in roles),
            settings=tuple(notes),
            past=[],
            folder=self._folder,
            signature=signature,
            unit=unit,
            roles=roles,
            template=template,
            guessed=tuple(option for option, is_guessed in guesses if is_guessed),
            dtypes=dtypes,
            storage=storage,
            rounded=rounded,
            recording=recorded,
        )
        if options.math:
            own, wanted = (gemm_ref.MATHS[math].dtype for math in (kernel.math, options.math))
            if own != wanted:
                what = f"--math {options.math} is for matrices of {wanted}"
                raise UsageError(f"{what}, and those of {kernel.name} are {own}")
            kernel = replace(kernel, math=options.math)
        return Bound(kernel, candidates, names, passed)

    def _templates(self, names: Mapping[str, int]) -> list[launch.Template]:
        """The arguments of the template; where nothing determines them, all that they may be."""
        signature, recorded = self.signature, self.host_code.recording
        declared = signature.template
        if self.options.template or not declared:
            return [launch.specified_template(signature, self.options.template)]
        if recorded:
            text = recording.instance(recorded.first.entry, signature.name).removeprefix(signature.name)
            return [tuple(zip(declared, syntax.split(text[1:-1], angles=True), strict=False))]
        texts = [read_source(file) for file in (self._kernel_path, *recording.neighbours(self._kernel_path))]
        known = functools.reduce(lambda found, text: constants(text, {}) | found, texts, dict(names))
        of_project = launch.template_instances(signature.name, declared, known, texts)
        common = launch.common_templates(declared, known, self._element(self.host_code.aliases))
        found = dict.fromkeys(itertools.islice(itertools.chain(of_project, common), _MAX_TEMPLATES))
        templates = [tuple(zip(declared, values, strict=True)) for values in found]
        return templates or [launch.specified_template(signature, "")]

    def _dtypes(self, roles: Sequence[str], template: launch.Template, element: str) -> dict[str, torch.dtype]:
        """The element type of each matrix, by its role; `element` of those that are in structs."""
        aliases = {**self.host_code.aliases, **{parameter.name: text for parameter, text in template}}
        types, found = parameters.TYPES, {}
        for parameter, role in zip(self.signature.parameters, roles, strict=True):
            if role in parameters.POINTERS and role != "NULL":
                if (text := parameters.element_type(parameter.type, aliases)) not in types:
                    what = f"{parameter.name} of {self.signature.name} has the type {text}"
                    raise UsageError(f"{what}: there are {', '.join(types)}")
                found[role] = types[text]
        if parameters.HOST in roles:
            recorded = self.host_code.recording
            mapped = recorder.tensor_map_types(recorded.first) if recorded else {}
            found = dict.fromkeys(parameters.MATRICES, parameters.TYPES[element]) | mapped | found
        return found if "C" in found else found | {"C": found["D"]}

    def _padded(
        self,
        roles: Sequence[str],
        dtypes: Mapping[str, torch.dtype],
        fixed: Mapping[str, int],
        names: Mapping[str, int],
    ) -> tuple[tuple[str, int, int], ...]:
        """The matrices that a program allocates larger than its sizes take: (name, rows, columns)."""
        assert self.host_code.recording
        held = self.host_code.recording.first.bytes_of(roles)
        found = []
        for name, (first, second) in (("A", "mk"), ("B", "kn"), ("C", "mn")):
            elements = held.get(name, 0) // dtypes[name].itemsize
            sides = parameters.padded_sides(elements, fixed[first], fixed[second], names.values())
            found += [(name, *sides)] if sides and elements > fixed[first] * fixed[second] else []
        return tuple(found)

    def _sizes(
        self, roles: Sequence[str], template: launch.Template, names: dict[str, int]
    ) -> tuple[set[str], dict[str, int], bool, list[Message]]:
        """Returns (the sizes that the kernel receives, those that the source fixes, whether one is for all, notes)."""
        words = set(re.findall(r"\w+", " ".join((*roles, *(text for _, text in template)))))
        passed = {axis for axis in parameters.SIZES if axis in words or parameters.HOST in words}
        missing = [axis for axis in parameters.SIZES if axis not in passed]
        of_source = parameters.size_constants(missing, names)
        fixed = {axis.lower(): names[name] for axis, name in of_source.items()}
        takes_vector = parameters.takes_vector(self.signature.parameters, roles)
        if takes_vector and "n" in fixed and "k" not in fixed and "K" in missing:
            fixed = {**fixed, "k": fixed["n"], "n": 1}
            names |= {"K": fixed["k"], "N": 1}  # what the launch is made of, as well
        if not passed and len(fixed) == 1:  # one constant for all
            fixed = {axis.lower(): next(iter(fixed.values())) for axis in parameters.SIZES}
        recorded = self.host_code.recording
        if fixed and recorded and recorded.ignores_sizes:
            own = recorded.sizes_of_program(recorded.first, roles)
            if set(own.values()) == set(fixed.values()):  # the argument is that constant
                fixed, missing = {axis.lower(): size for axis, size in own.items()}, list(own)
        if len(missing) == len(fixed):
            notes = [message(Note.SIZE_FIXED, axis=axis.upper(), size=size) for axis, size in fixed.items()]
            return passed, fixed, False, notes
        if len(passed) == 1:
            return passed, {}, True, [message(Note.ONE_SIZE, size=next(iter(passed)))]
        if len(missing) - len(fixed) > 1 or not passed:
            unknown = " and ".join(axis for axis in missing if axis.lower() not in fixed)
            raise UsageError(
                f"{self.signature.name} does not receive {unknown}: define it in the source or with -D, or say with "
                "--args which parameter it is"
            )  # a single one may follow from the grid
        return passed, {}, False, []


def _find_kernel(path: Path, name: str) -> tuple[syntax.Signature, Path, str]:
    """Returns (the kernel, the file that has it, its text and those that it includes). Raises UsageError."""
    text = read_source(path)
    kernels = {path: syntax.kernels(text)}
    if not kernels[path]:
        kernels = {file: syntax.kernels(read_source(file)) for file in headers.included(path, text)}
    whole = headers.with_includes(path, text)
    callees = {*_MACROS.findall(whole), *(f.name for f in syntax.functions(whole) if not f.is_kernel)}
    chosen = syntax.choose_kernel([each for found in kernels.values() for each in found], name, path.name, callees)
    syntax.require_values(chosen)
    file = next(file for file, found in kernels.items() if chosen in found)
    return syntax.written_out(chosen, whole), file, whole
