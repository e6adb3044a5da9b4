"""A user's file and those of its project as nvcc is given them for one kernel, and what it compiles them to.

nvcc reads copies, in the same folders as the originals, without what the kernel does not need: the bodies of other
kernels, which only take time, and host functions that do not compile.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from cuda_kernels import source
from experiments.check import progress
from experiments.check.cage.compilers import confined_compilers
from experiments.check.cuda import headers, launch, syntax
from experiments.check.cuda.syntax import closing
from experiments.check.messages import Message, Note, message
from experiments.check.subject import read_source
from experiments.records.request import UsageError
from gemm_ref import ptx, toolchain
from gemm_ref.build import CACHE, BuildError, cached, digest, version_of
from gemm_ref.toolchain import find_toolkit

FLAGS = (*source.FLAGS, "--expt-relaxed-constexpr")
_MISSING = re.compile(r"fatal error: ([^:\n]+): No such file|could not open source file \"([^\"]+)\"")
_ERROR = re.compile(r"^(.*?)(?:\((\d+)\): error|:(\d+):\d+: (?:fatal )?error)", re.M)  # nvcc's, and the host compiler's
_OF_SHELL = re.compile(r"[$`\"\\\n]")  # what a shell interprets between double quotes
_CPP20 = "-std=c++20"
_CPP20_WORDS = re.compile(
    r"\b(?:concept|requires|consteval|constinit)\s|<=>|\]\s*<\s*(?:typename|class|int|auto)\b"
    r"|<(?:concepts|ranges|span|format|source_location|bit|numbers|latch|barrier|semaphore)>"
)
_LAMBDAS = "--extended-lambda"  # nvcc asks for it where there are any for the GPU; it then reads a third longer
_STATEMENT_TRIES = 3  # then the whole function is left out
# Headers of CUDA that take seconds to read, by prefix, each with its namespace.
_SLOW_HEADERS = {"cooperative_groups": "cooperative_groups", "cuda/": "cuda", "cub/": "cub", "thrust/": "thrust"}
_ALIAS = re.compile(r"^[ \t]*(?:namespace|using)\s+(\w+)\s*=\s*(?:::)?(\w+)\b[^;\n]*;", re.M)

UNDEFINED_VALUE = "549"  # nvcc's number of the warning: used before its value is set
_UNREFERENCED = "177"  # declared but never referenced
_WARNING = re.compile(r"^(?:.*/)?([^/\n]+)\((\d+)\): warning #(\d+)-D: (.*)$", re.M)  # file, line, number, text
_INCLUDED_FROM = re.compile(r"(?:^ +from .*\n){6,}", re.M)
_MAX_LINES = 100  # of the compiler's errors that are shown
_MAX_REPAIRS = 12  # each finds one missing header, or functions that do not compile
_MARK = "checked_instance"  # a variable of ours, initialised with the kernel's name in PTX

T = TypeVar("T")


@dataclass
class Unit:
    """A user's file as nvcc is given it, and the repairs after which it compiles."""

    path: Path
    flags: tuple[str, ...]
    defines: tuple[str, ...]  # NAME=VALUE
    folder: Path  # for the copies and the stand-ins
    kernel: str  # the one whose body is kept
    kernel_path: Path  # the file that has it
    linked: Path | None = None  # that file, where it is compiled by itself
    texts: dict[Path, str] = field(default_factory=dict)  # of the files, each after those that it includes
    include: list[Path] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)  # headers, by stand-ins
    left_out: list[str] = field(default_factory=list)  # host functions
    cut: list[str] = field(default_factory=list)  # host functions of which statements are left out
    skipped: set[str] = field(default_factory=set)  # of _SLOW_HEADERS, those that nothing uses
    constants: dict[str, int] = field(default_factory=dict)  # of the source, which are given other values
    warnings: list[tuple[str, int, str]] = field(default_factory=list)  # number, line, text; of the kernel's file
    _kernels: dict[str, ptx.DecodedKernel | UsageError] = field(default_factory=dict)  # instances that were compiled
    _tries: dict[str, int] = field(default_factory=dict)
    rewrite: Callable[[str], str] = str  # applied to the text of each file before it is compiled

    def __post_init__(self) -> None:
        text = read_source(self.path)
        self.path = self.path.resolve()
        files = [*headers.included(self.path, text), self.path]
        if self.linked:
            files += [*headers.included(self.linked, read_source(self.linked)), self.linked.resolve()]
        self.texts = {file: read_source(file) for file in files}
        if _CPP20_WORDS.search(syntax.without_comments(self.text)) and _CPP20 not in self.flags:
            self.flags = (_CPP20, *self.flags)
        self._leave_out_unused()
        toolkit = find_toolkit() / "include"
        for quoted, angles in headers.INCLUDE.findall(headers.with_includes(self.path, text)):
            name = quoted or angles
            ours = headers.stand_in(name, "") != headers.NOTHING or headers.project_folder(self.path, name)
            if ours and not (toolkit / name).exists():
                self._add_header(name)

    @property
    def text(self) -> str:
        return "\n".join(self.texts.values())

    def all_functions(self) -> list[tuple[syntax.Function, Path, int]]:
        """Returns each function with its file and line, those of the file itself first."""
        return [
            (function, file, text.count("\n", 0, function.start) + 1)
            for file, text in reversed(self.texts.items())
            for function in syntax.functions(text)
        ]

    def set_constant(self, name: str, value: int) -> None:
        """Gives a macro or a constant of the files another value."""
        macro = rf"^([ \t]*#[ \t]*define[ \t]+{name}[ \t]+)[^\n/]+"
        constant = rf"(\bconst(?:expr)?\s+(?:static\s+)?(?:unsigned\s+)?(?:int|size_t|unsigned)\s+{name}\s*=\s*)[^;,]+"
        for file, text in self.texts.items():
            changed, count = re.subn(f"{macro}|{constant}", lambda m: f"{m[1] or m[2]}{value}", text, flags=re.M)
            self.texts[file] = changed
            self.constants |= {name: value} if count else {}

    def compose(self, before: str = "", after: str = "") -> str:
        """Returns the text of the file, with its line numbers, between two others."""
        # behind CUDA's own headers, which nvcc includes first: a macro such as T would change them
        macros = "".join(f"#define {define.replace('=', ' ', 1)}\n" for define in self.defines)
        # those of earlier toolkits had assert
        linked = self._written(self.linked.resolve()) if self.linked else ""
        return f'#include <cassert>\n{before}\n{macros}{self._written(self.path)}\n{linked}\n#line 1 "checked"\n{after}'

    def arguments(self) -> tuple[str, ...]:
        """Returns the arguments for nvcc, and writes the copies of included files."""
        for file in self.texts:
            if file != self.path:
                copy = self._copied(file)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(self._written(file), encoding="utf-8")
        originals = [*dict.fromkeys((self.path.parent, (self.linked or self.path).resolve().parent)), *self.include]
        copies = [self._copied(folder) for folder in originals]
        for folder in copies:
            folder.mkdir(parents=True, exist_ok=True)  # so that a path may lead through it
        folders = [*copies, *originals, *([self.folder] if self.replaced else [])]
        if unsafe := [str(path) for path in (*folders, *self.texts) if _OF_SHELL.search(str(path))]:
            raise UsageError(f"{unsafe[0]!r} has characters that nvcc's shell would interpret: rename it")
        return (*FLAGS, *self.flags, *(f"-I{folder}" for folder in folders))

    def confined(self) -> contextlib.AbstractContextManager[None]:
        """In this context compilers read the project, the folders of -I and what else the flags name, and no more."""
        files = [self.path, *([self.linked.resolve()] if self.linked else [])]
        named = (Path(re.sub(r"^-[IL]", "", flag)) for flag in self.flags)
        readable = [*itertools.chain.from_iterable(map(headers.readable_folders, files)), *files, *named]
        return confined_compilers(self.path.name, self.folder, [each for each in readable if each.is_absolute()])

    def repair(self, message: str) -> bool:
        """Changes the unit so that the error of a compiler's message does not occur again; whether it could."""
        if _LAMBDAS in message and _LAMBDAS not in self.flags:
            self.flags = (_LAMBDAS, *self.flags)
            return True
        if missing := _MISSING.search(message):
            return self._add_header(missing[1] or missing[2])
        if self.skipped:
            self.skipped.clear()
            return True
        wrong: dict[str, set[int]] = {}
        for file, line, other_line in _ERROR.findall(message):
            wrong.setdefault(os.path.realpath(file), set()).add(int(line or other_line))
        before = list(self.texts.values())
        for path, text in self.texts.items():
            text = self._without_declarations(path, text, wrong.get(str(path), set()))
            for function in reversed(syntax.functions(text)) if str(path) in wrong else ():
                body = syntax.lines(text, function)
                lines = [line for line in sorted(wrong[str(path)], reverse=True) if line in body]
                if lines and not function.on_device:
                    text = self._without(text, function, lines)
            self.texts[path] = text
        return before != list(self.texts.values())

    def _without_declarations(self, path: Path, text: str, wrong: set[int]) -> str:
        """The text without what is declared outside of functions, in one of these lines: textures, of old toolkits."""
        lines = text.split("\n")
        for function in syntax.functions(text) if wrong else ():
            wrong = wrong.difference(syntax.lines(text, function))
        for line in wrong:
            if re.fullmatch(r"\s*[A-Za-z_][^;{}]*;\s*", lines[line - 1]):
                lines[line - 1] = ""
                self.cut.append(f"{path.name}:{line}")
        return "\n".join(lines)

    def _without(self, text: str, function: syntax.Function, lines: list[int]) -> str:
        """The text without what does not compile of a function: first asserts, and statements of what may launch."""
        self._tries[function.name] = self._tries.get(function.name, 0) + 1
        asserts = all("assert" in text.split("\n")[line - 1] for line in lines)
        if self._tries[function.name] <= _STATEMENT_TRIES and (function.launches or asserts):
            changed = text
            for line in lines:
                changed = syntax.without_statement(changed, line, function)
            if changed != text:
                self.cut.append(function.name)
                return changed
        self.left_out.append(function.name)
        return syntax.blanked(text, [function])

    def _leave_out_unused(self) -> None:
        """Empties the other kernels, and leaves out the device functions and the headers that only these need."""
        words: set[str] = set()
        unused: list[tuple[Path, syntax.Function]] = []
        for file, text in self.texts.items():
            defined = syntax.functions(text)
            bodies = [f.body for f in defined if not f.on_device and f.name != "main" and f.mentions(self.kernel)]
            kept = {self.kernel, *re.findall(r"\b(\w+)\s*(?:<[^<>;]*>\s*)?<<<", " ".join(bodies))}
            others = [f for f in defined if f.is_kernel and f.name not in kept and f.body.strip()]
            device = [f for f in defined if not f.on_host and not f.is_kernel]
            self.texts[file] = syntax.blanked(text, others)
            words.update(_words(syntax.blanked(self.texts[file], device, complete=True)))
            unused += [(file, function) for function in device]
        while called := [each for each in unused if each[1].name in words]:
            unused = [each for each in unused if each not in called]
            words.update(word for _, function in called for word in _words(function.body))
        for file, text in self.texts.items():
            self.texts[file] = syntax.blanked(text, [gone for each, gone in unused if each == file], complete=True)
        self.skipped = {name for name in _SLOW_HEADERS if self._is_unused(name)}

    def _is_unused(self, header: str) -> bool:
        """Whether nothing uses the namespace of a header, or what is called by an alias of it."""
        namespace, text = _SLOW_HEADERS[header], syntax.without_comments(self.text)
        aliases = [alias[1] for alias in _ALIAS.finditer(text) if alias[2] == namespace]
        text = _ALIAS.sub("", text)
        used = re.search(rf"(?<!\w::)\b{namespace}\s*::|\busing\s+namespace\s+{namespace}\b", text)
        return not used and _words(text).isdisjoint(aliases)

    def _written(self, path: Path) -> str:
        """A file as nvcc is given it, lines numbered as they are in it."""
        text = self.rewrite(self.texts[path])
        for header in self.skipped:
            text = re.sub(rf"^[ \t]*#[ \t]*include[ \t]*<{header}[^>\n]*>", "", text, flags=re.M)
            for alias in [alias[0] for alias in _ALIAS.finditer(text) if alias[2] == _SLOW_HEADERS[header]]:
                text = text.replace(alias, "")
        return f'#line 1 "{path}"\n{text}'

    def _copied(self, path: Path) -> Path:
        return self.folder / "copies" / path.relative_to(path.anchor)

    def _add_header(self, name: str) -> bool:
        if name in self.replaced or Path(name).is_absolute():
            return False
        if folder := headers.project_folder(self.path, name):
            self.include += [folder] * (new := folder not in self.include)
            return new
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(headers.stand_in(name, self.text), encoding="utf-8")
        self.replaced.append(name)
        return True

    @property
    def notes(self) -> list[Message]:
        """What was changed in the user's text."""
        lists = (
            (Note.HEADERS_REPLACED, "headers", self.replaced),
            (Note.HOST_CODE_LEFT_OUT, "names", self.left_out),
            (Note.STATEMENTS_LEFT_OUT, "names", [name for name in self.cut if name not in self.left_out]),
        )
        found = [message(Note.CONSTANT_REDUCED, name=name, value=value) for name, value in self.constants.items()]
        return found + [message(code, **{key: ", ".join(dict.fromkeys(names))}) for code, key, names in lists if names]

    # --- instances of the kernel

    def recorded(self, entry: str, text: str, output: str) -> ptx.DecodedKernel:
        """Returns the kernel with this name in the PTX that its host code launches. Raises UsageError."""
        return self._once(entry, lambda: self._load(text, output, entry))

    def instance(self, template: Sequence[str], guessed: launch.Template) -> ptx.DecodedKernel:
        """Returns the kernel with these template arguments. Raises UsageError, which names those that were guessed."""
        one = self.in_cpp(template)

        def compile_instance() -> ptx.DecodedKernel:
            try:
                text, output, entry = _compile_ptx(self, one if template else "")
            except UsageError as error:
                if not guessed:
                    raise
                wanted = ", ".join(f"{parameter.type} {parameter.name}" for parameter, _ in guessed)
                hint = f"{one} was guessed, and does not compile: tell its <{wanted}> with --template"
                raise UsageError(f"{hint}\n{error}") from error
            return self._load(text, output, entry)

        return self._once(one, compile_instance)

    def assemble(self, template: str, capability: tuple[int, int]) -> bytes:
        """The machine code of the kernel for another GPU; template: `<128, float>`. Raises UsageError, BuildError."""
        text = _compile_ptx(self, self.in_cpp(()) + template if template else "", capability)[0]
        with self.confined():
            return toolchain.assemble(text, capability)

    def in_cpp(self, template: Sequence[str]) -> str:
        """Returns the kernel's name in C++, with its namespace and the arguments of its template."""
        scopes = (f.scope for f, _, _ in self.all_functions() if f.is_kernel and f.name == self.kernel)
        return next(scopes, "") + self.kernel + (f"<{', '.join(template)}>" if template else "")

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
        text = _without_other_kernels(text, lambda name: name == entry if entry else self.kernel in name)
        entries = list(ptx.entries(text, called=entry or self.kernel)) if ".entry" in text else []
        if not entries:
            raise UsageError(
                f"nvcc compiled no kernel {self.kernel}: is it only declared, or does an #if leave it out?"
            )
        if len(entries) > 1:
            raise UsageError(f"{self.kernel} is defined {len(entries)} times, for other parameters each: leave one")
        kernel = ptx.load(text, entries[0])
        return replace(kernel, cubin=functools.cache(lambda: _assemble(text, self)))

    def _collect_warnings(self, output: str) -> None:
        text = self.texts.get(self.kernel_path.resolve(), "")
        host = [syntax.lines(text, each) for each in syntax.functions(text) if not each.on_device]
        for file, line, number, words in _WARNING.findall(output):
            warning = (number, int(line), words.strip())
            if number == _UNREFERENCED or file != self.kernel_path.name or warning in self.warnings:
                continue
            if not any(warning[1] in lines for lines in host):  # nvcc compiles the whole file
                self.warnings.append(warning)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", syntax.without_comments(text)))


def compile_with_repairs(unit: Unit, compile_: Callable[[], T], repair: Callable[[str], bool] | None = None) -> T:
    """Returns what `compile_` makes of the unit, once all repairs are done. Raises UsageError with nvcc's errors."""
    progress.step(f"compiles {unit.path.name}")
    for _ in range(_MAX_REPAIRS):
        try:
            with unit.confined():
                return compile_()
        except BuildError as error:
            if not (repair or unit.repair)(str(error)):
                raise UsageError(_explain(str(error), unit)) from error
    some = ", ".join(unit.replaced[:3])
    raise UsageError(f"{unit.path.name} does not compile: it lacks {_MAX_REPAIRS} headers or more, such as {some}")


def _compile_ptx(
    unit: Unit, instance: str, capability: tuple[int, int] = toolchain.REFERENCE_CAPABILITY
) -> tuple[str, str, str]:
    """Returns (PTX, warnings, the name in PTX of `instance`, `kernel<float, 32>`). Raises UsageError."""
    after = f'extern "C" __device__ const void* const {_MARK} = (const void*)&{instance};\n' if instance else ""
    text, output = compile_with_repairs(
        unit, lambda: source.compile_ptx(unit.compose(after=after), "checked.cu", capability, unit.arguments())
    )
    marked = re.search(rf"^.*\b{_MARK} = (\w+);\n", text, re.M)
    return (text.replace(marked[0], ""), output, marked[1]) if marked else (text, output, "")


def _assemble(text: str, unit: Unit) -> bytes:
    """The machine code of PTX, from the cache if it has been assembled before. Raises BuildError."""
    code = re.sub(r"^\s*\.file\s.*\n", "", text, flags=re.M)  # folders change, and nothing reads them from a cubin
    path = CACHE / f"checked-{digest(code, version_of(str(find_toolkit() / 'bin' / 'nvcc')))}.cubin"
    with unit.confined():
        return cached(path, lambda: toolchain.assemble(text, toolchain.REFERENCE_CAPABILITY)).read_bytes()


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
    lines = _INCLUDED_FROM.sub("    ...\n", message).splitlines()
    message = "\n".join(
        [*lines[:_MAX_LINES], *([f"and {len(lines) - _MAX_LINES} lines more"] * (len(lines) > _MAX_LINES))]
    )
    hint = f"\n{', '.join(unit.replaced)} was not found: pass the folder that has it with -I" if unit.replaced else ""
    if constants := [f"-D {name}=32" for name in undefined if name.isupper()]:
        passed = " ".join(constants)
        hint += f"\nis it a constant that the file does not define? Pass {passed}, with the value that is meant"
    if "Permission denied" in message:
        hint += "\nonly files of the project, of the folders of -I and of the compilers are read"
    return f"{unit.path.name} does not compile: {message}{hint}"
