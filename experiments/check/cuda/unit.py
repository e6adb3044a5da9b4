"""A user's file, and the files of its project that it includes, as nvcc is given them.

They are copies, in the same folders as the originals, so that what is not needed can be left out of them: the bodies of
other kernels, which only take time, and host functions that do not compile. What is checked is one kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cuda_kernels import source
from experiments.check import source_text
from experiments.check.cuda import headers, host, signature
from gemm_ref.toolchain import find_toolkit

FLAGS = (*source.FLAGS, "--expt-relaxed-constexpr")
_MISSING = re.compile(r"fatal error: ([^:\n]+): No such file|could not open source file \"([^\"]+)\"")
_ERROR = re.compile(r"^(.*?)(?:\((\d+)\): error|:(\d+):\d+: (?:fatal )?error)", re.M)  # nvcc's, and the host compiler's
_NEWER = "-std=c++20"  # for what has words of it
_NEW = re.compile(
    r"\b(?:concept|requires|consteval|constinit)\s|<=>|\]\s*<\s*(?:typename|class|int|auto)\b"
    r"|<(?:concepts|ranges|span|format|source_location|bit|numbers|latch|barrier|semaphore)>"
)
_LAMBDAS = "--extended-lambda"  # nvcc asks for it where there are any for the GPU; it then reads a third longer
_STATEMENT_TRIES = 3  # then the whole function is left out
# Headers of CUDA's that take seconds to read, by how they begin, and the namespace of what is in them.
_LONG = {"cooperative_groups": "cooperative_groups", "cuda/": "cuda", "cub/": "cub", "thrust/": "thrust"}
_ALIAS = re.compile(r"^[ \t]*(?:namespace|using)\s+(\w+)\s*=\s*(?:::)?(\w+)\b[^;\n]*;", re.M)
_MACROS = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(", re.M)


@dataclass
class Unit:
    """A user's file as nvcc is given it, and what had to be done so that it compiles."""

    path: Path
    flags: tuple[str, ...]
    defines: tuple[str, ...]  # NAME=VALUE
    folder: Path  # for the copies and the stand-ins
    kernel: str  # whose body stays
    beside: Path | None = None  # the file that has the kernel, where that is compiled by itself and linked
    texts: dict[Path, str] = field(default_factory=dict)  # of the files, each after those that it includes
    include: list[Path] = field(default_factory=list)
    stood_in: list[str] = field(default_factory=list)  # headers
    left_out: list[str] = field(default_factory=list)  # host functions
    cut: list[str] = field(default_factory=list)  # host functions of which statements are left out
    spared: set[str] = field(default_factory=set)  # of _LONG, what nothing uses, until something does not compile
    _tries: dict[str, int] = field(default_factory=dict)
    rewrite: Callable[[str], str] = str  # the text of each file, before it is compiled

    def __post_init__(self) -> None:
        text = source_text.read(self.path)
        self.path = self.path.resolve()
        files = [*headers.included(self.path, text), self.path]
        if self.beside:
            files += [*headers.included(self.beside, source_text.read(self.beside)), self.beside.resolve()]
        for file in files:
            self.texts[file] = source_text.read(file)
        if _NEW.search(signature.without_comments(self.text)) and _NEWER not in self.flags:
            self.flags = (_NEWER, *self.flags)
        self._leave_out_what_others_need()
        toolkit = find_toolkit() / "include"
        for name in headers.names(self.path, text):
            ours = headers.stand_in(name, "") != headers.NOTHING or headers.project_folder(self.path, name)
            if ours and not (toolkit / name).exists():
                self._add_header(name)

    @property
    def text(self) -> str:
        """Of all files, as they are compiled."""
        return "\n".join(self.texts.values())

    def functions(self) -> list[tuple[host.Function, Path, int]]:
        """The functions of all files, those of the file itself first, with their files and lines."""
        return [
            (function, file, text.count("\n", 0, function.start) + 1)
            for file, text in reversed(self.texts.items())
            for function in host.functions(text)
        ]

    def set_constant(self, name: str, value: int) -> bool:
        """Give a macro or a constant of the files another value; whether they define it."""
        macro = rf"^([ \t]*#[ \t]*define[ \t]+{name}[ \t]+)[^\n/]+"
        constant = rf"(\bconst(?:expr)?\s+(?:static\s+)?(?:unsigned\s+)?(?:int|size_t|unsigned)\s+{name}\s*=\s*)[^;,]+"
        found = 0
        for file, text in self.texts.items():
            changed, count = re.subn(f"{macro}|{constant}", lambda m: f"{m[1] or m[2]}{value}", text, flags=re.M)
            self.texts[file] = changed
            found += count
        return found > 0

    def compose(self, before: str = "", after: str = "") -> str:
        """The text of the file, lines numbered as they are in it, between two others."""
        # behind CUDA's own headers, which nvcc includes first: a macro such as T would change them
        macros = "".join(f"#define {define.replace('=', ' ', 1)}\n" for define in self.defines)
        # those of earlier toolkits had assert
        linked = self._written(self.beside.resolve()) if self.beside else ""
        return f'#include <cassert>\n{before}\n{macros}{self._written(self.path)}\n{linked}\n#line 1 "checked"\n{after}'

    def arguments(self) -> tuple[str, ...]:
        """For nvcc; the copies are written anew."""
        for file in self.texts:
            if file != self.path:
                copy = self._copied(file)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(self._written(file), encoding="utf-8")
        originals = [*dict.fromkeys((self.path.parent, (self.beside or self.path).resolve().parent)), *self.include]
        copies = [self._copied(folder) for folder in originals]
        for folder in copies:
            folder.mkdir(parents=True, exist_ok=True)  # so that a path may lead through it
        folders = [*copies, *originals, *([self.folder] if self.stood_in else [])]
        return (*FLAGS, *self.flags, *(f"-I{folder}" for folder in folders))

    def mend(self, said: str) -> bool:
        """Whether something could be done about what a compiler said."""
        if _LAMBDAS in said and _LAMBDAS not in self.flags:
            self.flags = (_LAMBDAS, *self.flags)
            return True
        if missing := _MISSING.search(said):
            return self._add_header(missing[1] or missing[2])
        if self.spared:
            self.spared.clear()
            return True
        wrong: dict[str, set[int]] = {}
        for file, line, other_line in _ERROR.findall(said):
            wrong.setdefault(os.path.realpath(file), set()).add(int(line or other_line))
        before = list(self.texts.values())
        for path, text in self.texts.items():
            text = self._without_declarations(path, text, wrong.get(str(path), set()))
            for function in reversed(host.functions(text)) if str(path) in wrong else ():
                own = host.lines(text, function)
                lines = [line for line in sorted(wrong[str(path)], reverse=True) if line in own]
                if lines and not function.on_device:
                    text = self._without(text, function, lines)
            self.texts[path] = text
        return before != list(self.texts.values())

    def _without_declarations(self, path: Path, text: str, wrong: set[int]) -> str:
        """The text without what is declared outside of functions, in one of these lines: textures, of old toolkits."""
        lines = text.split("\n")
        for function in host.functions(text) if wrong else ():
            wrong = wrong.difference(host.lines(text, function))
        for line in wrong:
            if re.fullmatch(r"\s*[A-Za-z_][^;{}]*;\s*", lines[line - 1]):
                lines[line - 1] = ""
                self.cut.append(f"{path.name}:{line}")
        return "\n".join(lines)

    def _without(self, text: str, function: host.Function, lines: list[int]) -> str:
        """The text without what does not compile of a function: first asserts, and statements of what may launch."""
        self._tries[function.name] = self._tries.get(function.name, 0) + 1
        asserts = all("assert" in text.split("\n")[line - 1] for line in lines)
        if self._tries[function.name] <= _STATEMENT_TRIES and (function.launches or asserts):
            changed = text
            for line in lines:
                changed = host.without_statement(changed, line, function)
            if changed != text:
                self.cut.append(function.name)
                return changed
        self.left_out.append(function.name)
        return host.blanked(text, [function])

    def _leave_out_what_others_need(self) -> None:
        """Empty the other kernels, and leave out the device functions and the headers that only these need."""
        words: set[str] = set()
        spare: list[tuple[Path, host.Function]] = []
        for file, text in self.texts.items():
            functions = host.functions(text)
            others = [f for f in functions if f.is_kernel and f.name != self.kernel and f.body.strip()]
            device = [f for f in functions if not f.on_host and not f.is_kernel]
            self.texts[file] = host.blanked(text, others)
            words.update(_words(host.blanked(self.texts[file], device, whole=True)))
            spare += [(file, function) for function in device]
        while called := [each for each in spare if each[1].name in words]:
            spare = [each for each in spare if each not in called]
            words.update(word for _, function in called for word in _words(function.body))
        for file, text in self.texts.items():
            self.texts[file] = host.blanked(text, [gone for each, gone in spare if each == file], whole=True)
        self.spared = {name for name in _LONG if self._is_spare(name)}

    def _is_spare(self, header: str) -> bool:
        """Whether nothing uses the namespace of a header, or what is called by an alias of it."""
        namespace, text = _LONG[header], signature.without_comments(self.text)
        aliases = [alias[1] for alias in _ALIAS.finditer(text) if alias[2] == namespace]
        text = _ALIAS.sub("", text)
        used = re.search(rf"(?<!\w::)\b{namespace}\s*::|\busing\s+namespace\s+{namespace}\b", text)
        return not used and _words(text).isdisjoint(aliases)

    def _written(self, path: Path) -> str:
        """A file as nvcc is given it, lines numbered as they are in it."""
        text = self.rewrite(self.texts[path])
        for header in self.spared:
            text = re.sub(rf"^[ \t]*#[ \t]*include[ \t]*<{header}[^>\n]*>", "", text, flags=re.M)
            for alias in [alias[0] for alias in _ALIAS.finditer(text) if alias[2] == _LONG[header]]:
                text = text.replace(alias, "")
        return f'#line 1 "{path}"\n{text}'

    def _copied(self, path: Path) -> Path:
        return self.folder / "copies" / path.relative_to(path.anchor)

    def _add_header(self, name: str) -> bool:
        if name in self.stood_in or Path(name).is_absolute():
            return False
        if folder := headers.project_folder(self.path, name):
            self.include += [folder] * (new := folder not in self.include)
            return new
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(headers.stand_in(name, self.text), encoding="utf-8")
        self.stood_in.append(name)
        return True

    @property
    def notes(self) -> list[str]:
        told = []
        if self.stood_in:
            told.append(f"{', '.join(self.stood_in)} was not found: a stand-in without effect takes its place")
        if self.left_out:
            told.append(f"host code that does not compile here was left out: {', '.join(dict.fromkeys(self.left_out))}")
        if parts := [name for name in dict.fromkeys(self.cut) if name not in self.left_out]:
            told.append(f"statements that do not compile here were left out of {', '.join(parts)}")
        return told


def find_kernel(path: Path, wanted: str) -> tuple[signature.Signature, Path, str]:
    """(the kernel, the file that has it, that file's text and those that it includes). Raises UsageError."""
    text = source_text.read(path)
    kernels = signature.read(text)
    files = [path] if kernels else headers.included(path, text)
    for file in files:
        kernels += [] if file == path else signature.read(source_text.read(file))
    whole = headers.with_includes(path, text)
    functions = {*_MACROS.findall(whole), *(f.name for f in host.functions(whole) if not f.is_kernel)}
    chosen = signature.choose(kernels, wanted, path.name, functions)
    signature.require_values(chosen)
    file = next(file for file in files if chosen in signature.read(source_text.read(file)))
    return signature.written_out(chosen, whole), file, whole


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", signature.without_comments(text)))
