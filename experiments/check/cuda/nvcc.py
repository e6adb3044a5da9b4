"""What nvcc makes of a user's file for the reference GPU, and what it says of it.

A file is compiled as it lies. Where a header is missing, that of its project or a stand-in is passed; where a host
function does not compile, it is left out: what is checked is the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cuda_kernels import source
from experiments.check import source_text
from experiments.check.cuda import headers, host
from experiments.check.cuda.signature import closing
from experiments.records.request import UsageError
from gemm_ref.build import BuildError
from gemm_ref.toolchain import find_toolkit

WARNING = re.compile(r"^(?:.*/)?([^/\n]+)\((\d+)\): warning #(\d+)-D: (.*)$", re.M)  # file, line, number, text
UNUSED = "177"  # declared but never referenced
UNDEFINED = "549"  # used before its value is set

FLAGS = (*source.FLAGS, "--expt-relaxed-constexpr", "--extended-lambda")
_TRIES = 24  # each finds one missing header, or functions that do not compile
_MISSING = re.compile(r"fatal error: ([^:\n]+): No such file|could not open source file \"([^\"]+)\"")
_MARK = "checked_instance"  # a variable of ours: what it is set to is the kernel's name in PTX
_ERROR = re.compile(r"^(.*)\((\d+)\): error", re.M)

T = TypeVar("T")


@dataclass
class Unit:
    """A user's file as nvcc is given it, and what had to be done so that it compiles."""

    path: Path
    flags: tuple[str, ...]
    defines: tuple[str, ...]  # NAME=VALUE
    folder: Path  # for the stand-ins
    text: str = ""  # of the file, where it had to be changed
    include: list[Path] = field(default_factory=list)
    stood_in: list[str] = field(default_factory=list)  # headers
    found: list[str] = field(default_factory=list)  # headers of the project
    left_out: list[str] = field(default_factory=list)  # host functions

    def __post_init__(self) -> None:
        self.text = source_text.read(self.path)
        toolkit = find_toolkit() / "include"
        for name in headers.names(self.path, self.text):
            if headers.is_known(name) and not (toolkit / name).exists() and not headers.project_folder(self.path, name):
                self._add_header(name)

    def set_constant(self, name: str, value: int) -> bool:
        """Give a macro or a constant of the file another value; whether the file itself defines it."""
        macro = rf"^([ \t]*#[ \t]*define[ \t]+{name}[ \t]+)[^\n/]+"
        constant = rf"(\bconst(?:expr)?\s+(?:static\s+)?(?:unsigned\s+)?(?:int|size_t|unsigned)\s+{name}\s*=\s*)[^;,]+"
        changed, count = re.subn(f"{macro}|{constant}", lambda m: f"{m[1] or m[2]}{value}", self.text, flags=re.M)
        self.text = changed
        return count > 0

    def compose(self, before: str = "", after: str = "") -> str:
        """The text of the file, lines numbered as they are in it, between two others."""
        # behind CUDA's own headers, which nvcc includes first: a macro such as T would change them
        macros = "".join(f"#define {define.replace('=', ' ', 1)}\n" for define in self.defines)
        return f'{before}\n{macros}#line 1 "{self.path.resolve()}"\n{self.text}\n#line 1 "checked"\n{after}'

    def arguments(self) -> tuple[str, ...]:
        folders = [self.path.resolve().parent, *self.include, *([self.folder] if self.stood_in else [])]
        return (*FLAGS, *self.flags, *(f"-I{folder}" for folder in folders))

    def mend(self, said: str) -> bool:
        """Whether something could be done about what nvcc said."""
        if missing := _MISSING.search(said):
            return self._add_header(missing[1] or missing[2])
        lines = {int(line) for file, line in _ERROR.findall(said) if Path(file).name == self.path.name}
        others = [file for file, _ in _ERROR.findall(said) if Path(file).name != self.path.name]
        if not lines or others:
            return False
        gone = []
        for function in host.functions(self.text):
            first, last = (self.text.count("\n", 0, at) + 1 for at in (function.start, function.end))
            if not function.on_device and any(first <= line <= last for line in lines):
                gone.append(function)
        self.text = host.blanked(self.text, gone)
        self.left_out += [function.name for function in gone]
        return bool(gone)

    def _add_header(self, name: str) -> bool:
        if name in self.stood_in or Path(name).is_absolute():
            return False
        if folder := headers.project_folder(self.path, name):
            if folder in self.include:
                return False
            self.include.append(folder)
            self.found.append(name)
            return True
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(headers.stand_in(name, headers.with_includes(self.path, self.text)), encoding="utf-8")
        self.stood_in.append(name)
        return True

    @property
    def notes(self) -> list[str]:
        told = []
        if self.stood_in:
            told.append(f"{', '.join(self.stood_in)} was not found: a stand-in without effect takes its place")
        if self.left_out:
            told.append(f"host code that does not compile here was left out: {', '.join(dict.fromkeys(self.left_out))}")
        return told


def compile_ptx(unit: Unit, instance: str = "") -> tuple[str, str, str]:
    """(PTX, warnings, entry) of a user's file; the entry is the name in PTX of `instance`, as in `kernel<float, 32>`.

    Raises UsageError with nvcc's errors, and what to do about some.
    """
    after = f'extern "C" __device__ const void* const {_MARK} = (const void*)&{instance};\n' if instance else ""
    text, said = mended(
        unit, lambda: source.compile_ptx(unit.compose(after=after), "checked.cu", flags=unit.arguments())
    )
    marked = re.search(rf"^.*\b{_MARK} = (\w+);\n", text, re.M)
    return (text.replace(marked[0], ""), said, marked[1]) if marked else (text, said, "")


def mended(unit: Unit, compile_: Callable[[], T]) -> T:
    """What `compile_` makes of the unit, once all is done that helps. Raises UsageError with nvcc's errors."""
    for _ in range(_TRIES):
        try:
            return compile_()
        except BuildError as error:
            if not unit.mend(str(error)):
                raise UsageError(_explain(str(error), unit)) from error
    raise UsageError(f"{unit.path.name} does not compile: it lacks more than {_TRIES} headers")


def without_others(text: str, wanted: Callable[[str], bool]) -> str:
    """PTX without the kernels whose names are not `wanted`: a file may have some that cannot be run, or take long."""

    kept, position = [], 0
    for match in re.finditer(r"^[ \t.\w]*\.entry\s+(\w+)\s*\([^{]*(?=\{)", text, re.M):
        if not wanted(match[1]):
            kept.append(text[position : match.start()])
            position = closing(text, match.end())
    return "".join([*kept, text[position:]])


def _explain(message: str, unit: Unit) -> str:
    """nvcc's errors, and -D for a name that the file expects from elsewhere."""
    undefined = dict.fromkeys(re.findall(r'identifier "(\w+)" is undefined', message))
    constants = [name for name in undefined if name.isupper()]
    hint = ""
    if unit.stood_in:
        hint += f"\n{', '.join(unit.stood_in)} was not found: pass the folder that has it with -I"
    if constants:
        hint += (
            f"\nis it a constant that the file does not define? Pass {' '.join(f'-D {name}=32' for name in constants)}"
            ", with the value that is meant"
        )
    return f"{unit.path.name} does not compile: {message}{hint}"
