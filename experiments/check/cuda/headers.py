"""Headers that a file includes and this machine does not have: from its project, or replaced by a stand-in.

A stand-in lets the file compile and has no effect: none of it is called when a kernel is checked.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from experiments.check.cage.confine import is_private
from experiments.check.cuda.syntax import without_comments
from experiments.check.subject import read_source
from experiments.records.request import UsageError

_TORCH = Path(__file__).resolve().parent / "host_code" / "torch.h"
NOTHING = "#pragma once\n"  # the stand-in for a header of which nothing is known
_OF_TORCH = ("torch/", "ATen/", "c10/", "pybind11/")  # as its headers' names begin
# What the helper_*.h of NVIDIA's samples have: the names of what programs call, and what else they need.
_OF_SAMPLES = r"(?:sdk|StopWatch|getCmdLine|checkCmdLine|checkCuda|getLastCuda|findCuda|gpuGetMax|_ConvertSM)\w*"
_SAMPLES = """#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#define EXIT_WAIVED 2
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
"""
# Libraries of NVIDIA's, of which a stand-in declares the names that the source uses.
_LIBRARY = re.compile(r"(cublas|curand|cusparse|cusolver|cudnn|cufft|nvml|nccl|cutensor|nvToolsExt|cupti|magma)")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+\.[^>\n]+)>)', re.M)
# What lies at the top of a project; the second and the third kind lie in its folders, too.
_TOPS = ((".git",), ("README*", "LICENSE*"), ("CMakeLists.txt", "Makefile", "makefile", "*.sln", "setup.py"))
_UPWARDS = 4  # folders above the file's in which its project's headers are looked for
_MOST_FILES = 4000  # of a project, when a header is searched by its name


@functools.lru_cache(maxsize=1024)
def project(path: Path) -> list[Path]:
    """Returns the folders from the file's to the top of its project, or the file's alone.

    The top is the first that is a repository, or else the last that has a README, or else a file to build it with.
    """
    folders = [path.resolve().parent, *path.resolve().parent.parents[:_UPWARDS]]
    for marks in _TOPS:
        tops = [top for top, folder in enumerate(folders, 1) if any(next(folder.glob(mark), None) for mark in marks)]
        if tops:
            return folders[: tops[0] if marks == _TOPS[0] else tops[-1]]
    return folders[:1]


@functools.lru_cache(maxsize=1024)
def project_folder(path: Path, name: str) -> Path | None:
    """Returns the folder to pass with -I so that the file at `path` finds the header `name` of its project, if any."""
    folders = project(path)
    for above in (*folders, folders[0].parent):
        for inside in (".", "include", "inc", "src", "common", "utils", "Common"):
            if (above / inside / name).is_file() and is_own(path, above / inside / name):
                return above / inside
    wanted = PurePosixPath(name).parts
    for found in itertools.chain.from_iterable(map(_files, folders)):
        if found.parts[-len(wanted) :] == wanted and is_own(path, found):
            return Path(*found.parts[: -len(wanted)])
    return None


def is_own(path: Path, other: Path) -> bool:
    """Whether a file, wherever links lead, is in the project of the one at `path`, or beside its folder.

    Of a private folder, it may be one that lies in the folder itself and is not hidden.
    """
    other = other.resolve()
    is_beside = other.parent == path.resolve().parent and not other.name.startswith(".")
    return is_beside or any(other.is_relative_to(folder) for folder in readable_folders(path))


def readable_folders(path: Path) -> list[Path]:
    """Returns the folders of the project of the file at `path`, and the one above its own, without private ones."""
    folders = project(path)
    return [each for each in (*folders, folders[0].parent) if not is_private(each)]


@functools.lru_cache(maxsize=16)
def _files(folder: Path) -> tuple[Path, ...]:
    """Files below a folder, but for those in hidden folders, such as a repository's own."""

    def walk() -> Iterator[Path]:
        for above, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (Path(above, name) for name in files)

    return tuple(itertools.islice(walk(), _MOST_FILES))


def stand_in(name: str, source: str) -> str:
    """Returns the text of a stand-in for the header `name`; `source` is the text that includes it."""
    if name.startswith(_OF_TORCH):
        return f'#include "{_TORCH}"\n'
    if PurePosixPath(name).name.startswith(("helper_", "exception.h", "nvrtc_helper")):
        return _library("samples", _OF_SAMPLES, source, _SAMPLES)
    if library := _LIBRARY.match(PurePosixPath(name).name):
        return _library(library[1], rf"(?:{library[1]}|{library[1].upper()})\w*", source)
    return NOTHING


def included(path: Path, source: str) -> list[Path]:
    """Returns the files of its project that a file includes, directly or indirectly, in order of inclusion."""
    found: dict[Path, None] = {}
    _collect(path.resolve(), source, found, set())
    return list(found)


def _collect(path: Path, source: str, found: dict[Path, None], seen: set[Path]) -> None:
    seen.add(path)
    for quoted, angles in INCLUDE.findall(source):
        folder = project_folder(path, quoted or angles)
        file = (folder / (quoted or angles)).resolve() if folder else path
        if file not in seen:
            seen.add(file)
            with contextlib.suppress(UsageError):  # nvcc says whether what is no text is needed
                _collect(file, read_source(file), found, seen)
                found[file] = None


def with_includes(path: Path, source: str) -> str:
    """Returns the texts of the files of its project that a file includes, and its own."""
    return "\n".join([*(read_source(file) for file in included(path, source)), source])


def _library(library: str, names: str, source: str, more: str = "") -> str:
    """Declares the names of a library that the source uses: types, constants, functions that return 0."""
    source = without_comments(source)
    own = set(re.findall(r"#[ \t]*(?:define|ifndef)[ \t]+(\w+)", source))
    words = [word for word in dict.fromkeys(re.findall(rf"\b{names}\b", source)) if word not in own]
    called = set(re.findall(rf"\b({names})\s*\(", source))
    lines = [f"#ifndef CHECKED_{library}", f"#define CHECKED_{library}", "#include <library_types.h>", more]
    for number, word in enumerate(words, 1):
        if word.isupper() or re.match(r"[A-Z0-9]+_", word):
            lines.append(f"constexpr int {word} = {0 if word.endswith('_SUCCESS') else number};")
        elif word.endswith(("_t", "_st")) or word not in called and re.search(rf"\b{word}\s+\**\w+\s*[;,=)]", source):
            lines.append(
                f"struct {word} {{ constexpr {word}() = default; template <class T> constexpr {word}(T) {{}} "
                "constexpr operator int() const { return 0; } };"
            )
        elif word in called:
            text = re.search("String|Name", word)
            made = f'const char* {word}(T...) {{ return ""; }}' if text else f"int {word}(T...) {{ return 0; }}"
            lines.append(f"template <class... T> inline {made}")
    return "\n".join([*lines, "#endif\n"])
