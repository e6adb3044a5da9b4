"""Compiles to PTX as nvcc does, in about half the time: CUDA's headers are preprocessed and trimmed once.

For each kernel nvcc preprocesses 50,000 lines of headers and its compiler parses them, most of which no rung uses.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cuda_kernels.trim import trim, words
from gemm_ref.build import CACHE, BuildError, cached, digest, find_cxx, keep, version_of
from gemm_ref.toolchain import nvcc_command

FOLDER = Path(__file__).resolve().parent
INCLUDE = FOLDER / "include"
_IMPLICIT = '-include "cuda_runtime.h"'  # nvcc puts it into its preprocessor's command
_BYTES = "latin-1"  # one character for each byte, whatever the headers' encoding is
_OWN_CODE = tuple((FOLDER / name).read_text(encoding="utf-8") for name in ("headers.py", "trim.py"))


def compile_trimmed(source: Path, target: Path, flags: Sequence[str]) -> str | None:
    """Compiles a file to PTX as `nvcc -ptx FLAGS SOURCE -o TARGET` does, and returns the compiler's warnings.

    Returns None where nvcc itself has to compile it: the file includes other headers than the rungs do or names
    something that the trimmed headers lack, it has an error, or nvcc's steps are not the known ones.
    """
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    rungs = _rungs_by_headers().get(_headers_of(source, folders))
    steps = _steps(source, target, flags) if rungs else None
    if not rungs or not steps:
        return None
    headers = _trimmed_headers(rungs, tuple(flag for flag in flags if not flag.startswith("-I")))
    if _run(steps, _preprocess_without_headers(steps, headers.macros)) is None:
        return None
    own = steps.preprocessed.read_text(encoding=_BYTES)
    if words(own) & headers.left_out:
        return None
    steps.preprocessed.write_text(headers.text + own, encoding=_BYTES)
    return _run(steps, steps.compile)


class _Steps(NamedTuple):
    """The shell commands by which nvcc makes PTX, and their environment."""

    preprocess: str
    compile: str
    environment: dict[str, str]

    @property
    def preprocessed(self) -> Path:
        """The file that the first writes and the second reads."""
        return Path(re.findall(r'-o "([^"]+)"', self.preprocess)[-1])


def _steps(source: Path, target: Path, flags: Sequence[str]) -> _Steps | None:
    """Returns nvcc's own steps, with its temporary files beside the source; None if they are not the known ones."""
    environment = os.environ | {"TMPDIR": str(source.parent)}
    command = nvcc_command([*flags, "--dryrun", "-ptx", str(source), "-o", str(target)])
    plan = subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stderr
    lines = [line.removeprefix("#$ ") for line in plan.splitlines() if line.startswith("#$ ")]
    settings = dict(re.findall(r"^(\w+)= *(.*?) *$", "\n".join(lines), re.M))
    commands = [line for line in lines if not re.match(r"\w+=", line)]
    if len(commands) < 2 or _IMPLICIT not in commands[0] or "cicc" not in commands[1]:
        return None
    return _Steps(commands[0], " && ".join(commands[1:]), environment | settings)


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
        steps = _steps(source, Path(folder) / "headers.ptx", flags)
        assert steps, "these are the steps of a rung too"
        command = re.sub(r'"[^"]*tmpxft[^"]*"', "", steps.preprocess.replace(folder, ""))
        path = CACHE / f"headers-{digest(command, version_of(find_cxx()), *_OWN_CODE, *files)}.ii"

        def preprocess(command: str) -> str:
            if _run(steps, command) is None:
                raise BuildError(f"the preprocessor failed: {command}")
            return steps.preprocessed.read_text(encoding=_BYTES)

        def trimmed() -> bytes:
            whole = preprocess(steps.preprocess)
            keep(path.with_suffix(".h"), preprocess(steps.preprocess.replace(" -E ", " -E -dM ")))
            source.write_text("".join(f'#include "{rung}"\n' for rung in rungs))
            own = preprocess(f"{_preprocess_without_headers(steps, path.with_suffix('.h'))} -I{INCLUDE}")
            text, left_out = trim(whole, words(own))
            keep(path.with_suffix(".names"), "\n".join(sorted(left_out)))
            return text.encode(_BYTES)

        text = cached(path, trimmed).read_text(encoding=_BYTES)
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


def _run(steps: _Steps, command: str) -> str | None:
    """Returns what one of the steps writes to stderr; None if it fails."""
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, errors="replace", env=steps.environment, check=False
    )
    return None if done.returncode else done.stderr
