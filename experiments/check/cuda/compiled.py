"""A user's file compiled by nvcc for the reference GPU, with repairs, and each instance of its kernel loaded once."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from cuda_kernels import source
from experiments.check.cuda import syntax, templates
from experiments.check.cuda.syntax import closing
from experiments.check.cuda.unit import Unit
from experiments.records.request import UsageError
from gemm_ref import ptx, toolchain
from gemm_ref.build import BuildError

UNDEFINED_VALUE = "549"  # nvcc's number of the warning: used before its value is set
_UNREFERENCED = "177"  # declared but never referenced
_WARNING = re.compile(r"^(?:.*/)?([^/\n]+)\((\d+)\): warning #(\d+)-D: (.*)$", re.M)  # file, line, number, text
_MAX_REPAIRS = 12  # each finds one missing header, or functions that do not compile
_MARK = "checked_instance"  # a variable of ours, initialised with the kernel's name in PTX

T = TypeVar("T")


@dataclass
class Compiled:
    """The kernel called `name` of a unit, as a cache of its instances; `warnings` grows as they are compiled."""

    unit: Unit
    name: str
    path: Path  # of the file that has the kernel
    warnings: list[tuple[str, int, str]] = field(default_factory=list)  # number, line, text
    _kernels: dict[str, ptx.DecodedKernel | UsageError] = field(default_factory=dict)

    def recorded(self, entry: str, text: str, output: str) -> ptx.DecodedKernel:
        """Returns the kernel with this name in the PTX that its host code launches. Raises UsageError."""
        return self._once(entry, lambda: self._load(text, output, entry))

    def instance(self, template: Sequence[str], guessed: templates.Template) -> ptx.DecodedKernel:
        """Returns the kernel with these arguments of its template; an error names those that were guessed.

        Raises UsageError.
        """
        one = self.in_cpp(template)

        def compile_instance() -> ptx.DecodedKernel:
            try:
                text, output, entry = _compile_ptx(self.unit, one if template else "")
            except UsageError as error:
                raise (templates.explain_failure(one, guessed, error) if guessed else error) from error
            return self._load(text, output, entry)

        return self._once(one, compile_instance)

    def in_cpp(self, template: Sequence[str]) -> str:
        """Returns the kernel's name in C++, with its namespace and the arguments of its template."""
        scopes = (f.scope for f, _, _ in self.unit.all_functions() if f.is_kernel and f.name == self.name)
        return next(scopes, "") + self.name + (f"<{', '.join(template)}>" if template else "")

    def _once(self, key: str, load: Callable[[], ptx.DecodedKernel]) -> ptx.DecodedKernel:
        if key not in self._kernels:
            try:
                self._kernels[key] = load()
            except UsageError as error:  # every other layout and launch would fail as well
                self._kernels[key] = error
        if isinstance(found := self._kernels[key], UsageError):
            raise found
        return found

    def _load(self, text: str, output: str, entry: str) -> ptx.DecodedKernel:
        self._collect_warnings(output)
        text = _without_other_kernels(text, lambda name: name == entry if entry else self.name in name)
        entries = list(ptx.entries(text, called=self.name)) if ".entry" in text else []
        if not entries:
            raise UsageError(f"nvcc compiled no kernel {self.name}: is it only declared, or does an #if leave it out?")
        if len(entries) > 1:
            raise UsageError(f"{self.name} is defined {len(entries)} times, for other parameters each: leave one")
        kernel = ptx.load(text, entries[0])
        return replace(kernel, cubin=functools.cache(lambda: toolchain.assemble(text, toolchain.REFERENCE_CAPABILITY)))

    def _collect_warnings(self, output: str) -> None:
        text = self.unit.texts.get(self.path.resolve(), "")
        for file, line, number, message in _WARNING.findall(output):
            warning = (number, int(line), message.strip())
            if number == _UNREFERENCED or file != self.path.name or warning in self.warnings:
                continue
            if not syntax.is_host_line(text, int(line)):  # nvcc compiles the whole file
                self.warnings.append(warning)


def compile_with_repairs(unit: Unit, compile_: Callable[[], T], repair: Callable[[str], bool] | None = None) -> T:
    """Returns what `compile_` makes of the unit, once all repairs are done. Raises UsageError with nvcc's errors."""
    for _ in range(_MAX_REPAIRS):
        try:
            return compile_()
        except BuildError as error:
            if not (repair or unit.repair)(str(error)):
                raise UsageError(_explain(str(error), unit)) from error
    raise UsageError(f"{unit.path.name} does not compile: it lacks more than {_MAX_REPAIRS} headers")


def _compile_ptx(unit: Unit, instance: str) -> tuple[str, str, str]:
    """Returns (PTX, warnings, entry) of a user's file; the entry is the name in PTX of `instance`, `kernel<float, 32>`.

    Raises UsageError with nvcc's errors, and what to do about some.
    """
    after = f'extern "C" __device__ const void* const {_MARK} = (const void*)&{instance};\n' if instance else ""
    text, output = compile_with_repairs(
        unit, lambda: source.compile_ptx(unit.compose(after=after), "checked.cu", flags=unit.arguments())
    )
    marked = re.search(rf"^.*\b{_MARK} = (\w+);\n", text, re.M)
    return (text.replace(marked[0], ""), output, marked[1]) if marked else (text, output, "")


def _without_other_kernels(text: str, is_wanted: Callable[[str], bool]) -> str:
    """PTX without the kernels whose names are not wanted: some may be unsupported, or take long to parse."""
    kept, position = [], 0
    for match in re.finditer(r"^[ \t.\w]*\.entry\s+(\w+)\s*\([^{]*(?=\{)", text, re.M):
        if not is_wanted(match[1]):
            kept.append(text[position : match.start()])
            position = closing(text, match.end())
    return "".join([*kept, text[position:]])


def _explain(message: str, unit: Unit) -> str:
    """nvcc's errors, and -D for a name that the file expects from elsewhere."""
    undefined = dict.fromkeys(re.findall(r'identifier "(\w+)" is undefined', message))
    hint = f"\n{', '.join(unit.replaced)} was not found: pass the folder that has it with -I" if unit.replaced else ""
    if constants := [f"-D {name}=32" for name in undefined if name.isupper()]:
        passed = " ".join(constants)
        hint += f"\nis it a constant that the file does not define? Pass {passed}, with the value that is meant"
    return f"{unit.path.name} does not compile: {message}{hint}"
