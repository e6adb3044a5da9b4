"""Compiles host code as `nvcc -c` does; what was compiled before is read from the cache.

An entry is found by the text that the preprocessor makes of the source, for the host and for the GPU, so no header can
change unnoticed.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from cuda_kernels.compiler import BYTES, MARKER, plan, read_compiled, with_names
from gemm_ref.build import BuildError, digest, find_cxx, run_compiler, version_of
from gemm_ref.toolchain import find_toolkit, run_nvcc

_INCLUDE = re.compile(r'-I"[^"]*"')  # of folders, which nothing is read from after the preprocessor


def compile_object(source: Path, flags: Sequence[str]) -> str:
    """Writes `source`'s .o and .ptx beside it, as `nvcc -keep -c FLAGS` does; returns the warnings.

    Raises BuildError with the compiler's output.
    """
    folder, target, ptx_file = source.parent, source.with_suffix(".o"), source.with_suffix(".ptx")
    arguments = [*flags, "-keep", "--keep-dir", str(folder), "-c", str(source), "-o", str(target)]
    commands, environment = plan(arguments, folder)
    preprocess = [command for command in commands if " -E " in command]
    if len(preprocess) != 2:
        return run_nvcc(arguments)
    warnings = run_compiler(" && ".join(preprocess), environment)
    texts, names = _preprocessed(preprocess)
    steps = [command for command in commands if command not in preprocess]
    own = [_INCLUDE.sub("", step).replace(str(folder), "") for step in steps]
    key = digest(*texts, *own, version_of(find_cxx()), version_of(str(find_toolkit() / "bin" / "nvcc")))

    def compiled() -> bytes:
        try:
            output = warnings + run_compiler(" && ".join(steps), environment)
        except BuildError as error:
            raise BuildError(_without_names(str(error), names)) from None
        ptx = ptx_file.read_text(encoding="utf-8")
        head = json.dumps([_without_names(text, names) for text in (ptx, output)])
        return zlib.compress(head.encode() + b"\n" + target.read_bytes())

    packed = read_compiled(f"{source.stem}-{key}.object.zlib", compiled, names)
    head, _, content = zlib.decompress(packed).partition(b"\n")
    ptx, output = (with_names(text, names) for text in json.loads(head))
    ptx_file.write_text(ptx, encoding="utf-8")
    target.write_bytes(content)
    return output


def _preprocessed(commands: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns (what the commands wrote, with numbers for the folders of files, which may change; the files)."""
    numbers: dict[str, str] = {}

    def numbered(marker: re.Match) -> str:
        name = marker[1]
        if name not in numbers:
            numbers[name] = f"{len(numbers)}/{PurePosixPath(name).name}"
        return marker[0].replace(name, numbers[name])

    written = [Path(re.findall(r'-o "([^"]+)"', command)[-1]) for command in commands]
    texts = [re.sub(MARKER, numbered, path.read_text(encoding=BYTES), flags=re.M) for path in written]
    return texts, [name.encode(BYTES).decode(errors="replace") for name in numbers]


def _without_names(text: str, names: Sequence[str]) -> str:
    """Returns the text with /file/0 and so on for these files."""
    numbers = {name: f"/file/{number}" for number, name in enumerate(names) if name.startswith("/")}
    longest_first = sorted(numbers, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda match: numbers[match[0]], text)
