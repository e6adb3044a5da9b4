"""Headers that a file includes and this machine lacks: those of its project are found, and others get a stand-in.

A stand-in has what lets the file compile, and does nothing: none of it is called when a kernel is checked.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

_FOLDER = Path(__file__).resolve().parent / "standins"
# Which file of ours stands in for a header, by how its name begins.
_OURS = {
    ("torch/", "ATen/", "c10/", "pybind11/"): "torch.h",
    ("helper_", "exception.h", "nvrtc_helper"): "helper.h",
}
# Libraries of NVIDIA's, of which a stand-in declares the names that the source uses.
_LIBRARY = re.compile(r"(cublas|curand|cusparse|cusolver|cudnn|cufft|nvml|nccl|cutensor|nvToolsExt|cupti|magma)")
_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)
_UPWARDS = 3  # folders above the file's in which its project's headers are looked for
_MOST_FILES = 4000  # of a project, when a header is searched by its name


def project_folder(path: Path, name: str) -> Path | None:
    """The folder to pass with -I so that the file at `path` finds the header `name` of its project, if it is there."""
    folder = path.resolve().parent
    for above in (folder, *folder.parents[:_UPWARDS]):
        for inside in (".", "include", "inc", "src", "common", "utils", "Common"):
            if (above / inside / name).is_file():
                return above / inside
        if (above / ".git").exists():
            break
    top = next((up for up in (folder, *folder.parents[:_UPWARDS]) if (up / ".git").exists()), folder.parent)
    wanted = PurePosixPath(name).parts
    for seen, found in enumerate(top.rglob(wanted[-1])):
        if found.parts[-len(wanted) :] == wanted:
            return Path(*found.parts[: -len(wanted)])
        if seen > _MOST_FILES:
            break
    return None


def stand_in(name: str, source: str) -> str:
    """The text of a header that stands in for `name`; `source` is the text that includes it."""
    for beginnings, ours in _OURS.items():
        if name.startswith(beginnings) or PurePosixPath(name).name.startswith(beginnings):
            return f'#include "{_FOLDER / ours}"\n'
    if library := _LIBRARY.match(PurePosixPath(name).name):
        return _library(library[1], source)
    return "#pragma once\n"


def with_includes(path: Path, source: str, deep: int = 3) -> str:
    """The source and the texts of the files of its project that it includes."""
    texts = []
    for name in _QUOTED.findall(source) if deep else ():
        if folder := project_folder(path, name):
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
            texts.append(with_includes(folder / name, text, deep - 1))
    return "\n".join([*texts, source])


def _library(prefix: str, source: str) -> str:
    """Every name of a library that the source uses: types, constants that differ, functions that return 0."""
    words = dict.fromkeys(re.findall(rf"\b{prefix}\w*\b", source, re.I))
    called = set(re.findall(rf"\b({prefix}\w*)\s*\(", source, re.I))
    lines = ["#pragma once", "#include <library_types.h>"]
    for number, word in enumerate(words, 1):
        if word.isupper() or re.match(r"[A-Z0-9]+_", word):
            lines.append(f"constexpr int {word} = {0 if word.endswith('_SUCCESS') else number};")
        elif word.endswith(("_t", "_st")) or word not in called and re.search(rf"\b{word}\s+\w+\s*[;,=)]", source):
            lines.append(
                f"struct {word} {{ constexpr {word}() = default; template <class T> constexpr {word}(T) {{}} "
                "constexpr operator int() const { return 0; } };"
            )
        elif word in called and "#define " + word not in source:
            text = re.search("String|Name", word)
            made = f'const char* {word}(T...) {{ return ""; }}' if text else f"int {word}(T...) {{ return 0; }}"
            lines.append(f"template <class... T> inline {made}")
    return "\n".join(lines) + "\n"
