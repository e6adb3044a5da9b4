"""A kernel's PTX as the reference GPU loads it: of each instance of its template, compiled once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments.check.cuda import guess, host, nvcc
from experiments.check.cuda.unit import Unit
from experiments.records.request import UsageError
from gemm_ref import ptx, toolchain


@dataclass
class Compiled:
    """The kernel called `name` of a unit. What its compiler says goes to the lists `notes` and `warnings`."""

    unit: Unit
    name: str
    path: Path  # of the file that has it
    notes: list[str]
    warnings: list[tuple[str, int, str]]
    _kernels: dict[str, ptx.DecodedKernel | UsageError] = field(default_factory=dict)

    def launched(self, entry: str, text: str, said: str) -> ptx.DecodedKernel:
        """The one with this name in the PTX that its host code launches. Raises UsageError."""
        return self._once(entry, lambda: self._load(text, said, entry))

    def instance(self, template: Sequence[str], guessed: guess.Template) -> ptx.DecodedKernel:
        """The one with these arguments of its template; where it does not compile, the error blames the `guessed`.

        Raises UsageError.
        """
        one = self.in_cpp(template)

        def compiled() -> ptx.DecodedKernel:
            try:
                text, said, entry = nvcc.compile_ptx(self.unit, one if template else "")
            except UsageError as error:
                raise (guess.blamed(one, guessed, error) if guessed else error) from error
            return self._load(text, said, entry)

        return self._once(one, compiled)

    def in_cpp(self, template: Sequence[str]) -> str:
        """The kernel's name in C++, with its namespace and the arguments of its template."""
        scopes = (f.scope for f, _, _ in self.unit.functions() if f.is_kernel and f.name == self.name)
        return next(scopes, "") + self.name + (f"<{', '.join(template)}>" if template else "")

    def _once(self, key: str, load: Callable[[], ptx.DecodedKernel]) -> ptx.DecodedKernel:
        if key not in self._kernels:
            try:
                self._kernels[key] = load()
            except UsageError as error:  # which every other layout and launch would meet again
                self._kernels[key] = error
        if isinstance(found := self._kernels[key], UsageError):
            raise found
        return found

    def _load(self, text: str, said: str, entry: str) -> ptx.DecodedKernel:
        self._note_warnings(said)
        self.notes += [note for note in self.unit.notes if note not in self.notes]
        text = nvcc.without_others(text, lambda name: name == entry if entry else self.name in name)
        ours = list(ptx.entries(text, called=self.name)) if ".entry" in text else []
        if not ours:
            raise UsageError(f"nvcc compiled no kernel {self.name}: is it only declared, or does an #if leave it out?")
        if len(ours) > 1:
            raise UsageError(f"{self.name} is defined {len(ours)} times, for other parameters each: leave one")
        kernel = ptx.load(text, ours[0])
        return replace(kernel, cubin=functools.cache(lambda: toolchain.assemble(text, toolchain.REFERENCE_CAPABILITY)))

    def _note_warnings(self, said: str) -> None:
        text = self.unit.texts.get(self.path.resolve(), "")
        for file, line, number, message in nvcc.WARNING.findall(said):
            warning = (number, int(line), message.strip())
            told = number == nvcc.UNUSED or file != self.path.name or warning in self.warnings
            if not told and not host.host_line(text, int(line)):  # nvcc compiles the whole file
                self.warnings.append(warning)
