"""Compiles to PTX as nvcc does, in about half the time, and nothing twice.

For each kernel nvcc preprocesses 50,000 lines of headers and its compiler parses them, most of which no rung uses: here
CUDA's headers are preprocessed and trimmed once. What the compiler makes of the same text again, or why it refuses it,
is read from the cache.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from cuda_kernels.trim import trim, words
from gemm_ref.build import CACHE, BuildError, cached, digest, find_cxx, keep, run_compiler, version_of
from gemm_ref.toolchain import find_toolkit, nvcc_command

FOLDER = Path(__file__).resolve().parent
INCLUDE = FOLDER / "include"
_IMPLICIT = '-include "cuda_runtime.h"'  # nvcc puts it into its preprocessor's command
BYTES = "latin-1"  # one character for each byte, whatever the headers' encoding is
MARKER = r'^# \d+ "([^"<][^"]*)"'  # the file that the next lines come from
_REFUSAL = re.compile(r"\(\d+\): error|:\d+:\d+: error")  # of the text; the compiler may also have been killed
_OWN_CODE = tuple((FOLDER / name).read_text(encoding="utf-8") for name in ("compiler.py", "trim.py"))


def compile_to_ptx(source: Path, flags: Sequence[str]) -> tuple[str, str] | None:
    """Returns the PTX that `nvcc -ptx FLAGS SOURCE` writes, and the compiler's warnings.

    source: a file in a temporary folder of its own. None if nvcc's steps to PTX are not the known ones.
    Raises BuildError with the compiler's output.
    """
    steps = _steps(source, flags)
    if steps is None:
        return None
    text = _with_trimmed_headers(steps, source, flags) or _preprocess(steps, steps.preprocess)
    # Folders change, so in what is compiled the files that lines come from have numbers for names.
    names = list(dict.fromkeys(re.findall(MARKER, text, re.M)))
    numbers = {name: str(number) for number, name in enumerate(names)}
    text = re.sub(MARKER, lambda match: match[0].replace(match[1], f"/file/{numbers[match[1]]}"), text, flags=re.M)
    names = [name.encode(BYTES).decode(errors="replace") for name in names]
    command = re.sub(r"tmpxft_\w+-", "", steps.compile.replace(str(source.parent), ""))
    key = digest(text, command, version_of(str(find_toolkit() / "bin" / "nvcc")))

    def compiled() -> bytes:
        steps.preprocessed.write_text(text, encoding=BYTES)
        output = run_compiler(steps.compile, steps.environment)
        return zlib.compress(json.dumps((steps.target.read_text(encoding="utf-8"), output)).encode())

    ptx, output = json.loads(zlib.decompress(read_compiled(f"{source.stem}-{key}.ptx.zlib", compiled, names)))
    return with_names(ptx, [os.path.join(os.getcwd(), name) for name in names]), with_names(output, names)


def read_compiled(name: str, compile_: Callable[[], bytes], names: Sequence[str]) -> bytes:
    """Returns what `compile_` makes, from the cache if it has it; a text that the compiler refuses is refused again.

    names: of the files /file/0 and so on in the compiler's output. Raises BuildError with it.
    """
    path = CACHE / name
    refusal = path.with_suffix(".refusal")

    def compiled() -> bytes:
        try:
            return compile_()
        except BuildError as error:
            if _REFUSAL.search(str(error)):
                keep(refusal, str(error))
            raise

    try:
        if refusal.exists():
            raise BuildError(refusal.read_text(encoding="utf-8"))
        return cached(path, compiled).read_bytes()
    except BuildError as error:
        raise BuildError(with_names(str(error), names)) from None


def with_names(text: str, names: Sequence[str]) -> str:
    """Returns the text with the names of the files /file/0, /file/1 and so on."""
    return re.sub(r"/file/(\d+)", lambda match: names[int(match[1])], text)


def _with_trimmed_headers(steps: _Steps, source: Path, flags: Sequence[str]) -> str | None:
    """Returns the preprocessed text with the headers' declarations that rungs use.

    None if it includes other headers than a rung does, or names something that these lack.
    """
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    rungs = _rungs_by_headers().get(_headers_of(source, folders))
    if rungs is None:
        return None
    headers = _trimmed_headers(rungs, tuple(flag for flag in flags if not flag.startswith("-I")))
    try:
        own = _preprocess(steps, _preprocess_without_headers(steps, headers.macros))
    except BuildError:
        return None
    return None if words(own) & headers.left_out else headers.text + own


class _Steps(NamedTuple):
    """The shell commands by which nvcc makes PTX, and their environment."""

    preprocess: str
    compile: str
    environment: dict[str, str]
    target: Path

    @property
    def preprocessed(self) -> Path:
        """The file that the first writes and the second reads."""
        return Path(re.findall(r'-o "([^"]+)"', self.preprocess)[-1])


def _steps(source: Path, flags: Sequence[str]) -> _Steps | None:
    """Returns nvcc's own steps, with all their files beside the source; None if they are not the known ones."""
    target = source.with_suffix(".ptx")
    commands, environment = plan([*flags, "-ptx", str(source), "-o", str(target)], source.parent)
    if len(commands) < 2 or _IMPLICIT not in commands[0] or "cicc" not in commands[1]:
        return None
    return _Steps(commands[0], " && ".join(commands[1:]), environment, target)


def plan(arguments: Sequence[str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the shell commands that nvcc would run with these arguments, and their environment.

    folder: where they put temporary files.
    """
    environment = os.environ | {"TMPDIR": str(folder)}
    command = nvcc_command([*arguments, "--dryrun"])
    printed = subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stderr
    lines = [line.removeprefix("#$ ") for line in printed.splitlines() if line.startswith("#$ ")]
    settings = dict(re.findall(r"^(\w+)= *(.*?) *$", "\n".join(lines), re.M))
    return [line for line in lines if not re.match(r"\w+=", line)], environment | settings


class _Headers(NamedTuple):
    text: str  # the declarations that the rungs use
    macros: Path  # a file of all that are defined
    left_out: frozenset[str]  # the names of the other declarations


@functools.cache
def _trimmed_headers(rungs: tuple[Path, ...], flags: tuple[str, ...]) -> _Headers:
    """Returns what is left of the headers that these rungs include."""
    files = [path.read_bytes() for path in (*rungs, *sorted(INCLUDE.glob("*.cuh")))]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "headers.cu"
        source.write_text("".join(f"#include <{name}>\n" for name in sorted(_headers_of(rungs[0], [INCLUDE]))))
        steps = _steps(source, flags)
        assert steps, "these are the steps of a rung too"
        command = re.sub(r'"[^"]*tmpxft[^"]*"', "", steps.preprocess.replace(folder, ""))
        path = CACHE / f"headers-{digest(command, version_of(find_cxx()), *_OWN_CODE, *files)}.ii"

        def trimmed() -> bytes:
            whole = _preprocess(steps, steps.preprocess)
            keep(path.with_suffix(".h"), _preprocess(steps, steps.preprocess.replace(" -E ", " -E -dM ")))
            source.write_text("".join(f'#include "{rung}"\n' for rung in rungs))
            own = _preprocess(steps, f"{_preprocess_without_headers(steps, path.with_suffix('.h'))} -I{INCLUDE}")
            text, left_out = trim(whole, words(own))
            keep(path.with_suffix(".names"), "\n".join(sorted(left_out)))
            return text.encode(BYTES)

        text = cached(path, trimmed).read_text(encoding=BYTES)
    names = path.with_suffix(".names").read_text(encoding="utf-8")
    return _Headers(text, path.with_suffix(".h"), frozenset(names.split()))


@functools.cache
def _rungs_by_headers() -> dict[frozenset[str], tuple[Path, ...]]:
    found: dict[frozenset[str], tuple[Path, ...]] = {}
    for path in sorted(FOLDER.glob("s*.cu")):
        headers = _headers_of(path, [INCLUDE])
        found[headers] = (*found.get(headers, ()), path)
    return found


def _headers_of(source: Path, folders: Sequence[Path]) -> frozenset[str]:
    """Returns the headers in <> that a file includes, or that files do which it includes from `folders`."""
    found, files = set[str](), [source]
    for path in files:  # which grows
        text = path.read_text(encoding="utf-8", errors="replace")
        found.update(re.findall(r"^#include <([^>]+)>", text, re.M))
        own = [folder / name for name in re.findall(r'^#include "([^"]+)"', text, re.M) for folder in folders]
        files += [path for path in dict.fromkeys(own) if path.is_file() and path not in files]
    return frozenset(found)


def _preprocess_without_headers(steps: _Steps, macros: Path) -> str:
    """The preprocessor's command with the headers' macros for the headers: their #include finds them included."""
    return steps.preprocess.replace(_IMPLICIT, f'-w -include "{macros}"')  # -w: some macros are the preprocessor's own


def _preprocess(steps: _Steps, command: str) -> str:
    """Returns what the preprocessor writes. Raises BuildError with its output if it fails."""
    run_compiler(command, steps.environment)
    return steps.preprocessed.read_text(encoding=BYTES)
