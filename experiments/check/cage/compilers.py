"""nvcc and the host's compiler on strangers' texts: in a cage that reads their project and writes to one folder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from experiments.check import cage
from gemm_ref.build import compiler_runner


@contextlib.contextmanager
def confined_compilers(name: str, scratch: Path, readable: Sequence[Path]) -> Iterator[None]:
    """Inside, compilers run in a cage, and temporary folders are in `scratch`, which they can write to.

    name: of the file that they compile. readable: files and folders beside those of the system and of this project.
    """

    def run(command: Sequence[str] | str, environment: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
        own = cage.cage_of(f"the compiler of {name}", scratch, readable)
        changed = {key: value for key, value in (environment or {}).items() if os.environ.get(key) != value}
        code, [text] = own.call(cage.run_command, command, changed)
        with own.checked():
            return subprocess.CompletedProcess(command, int(code), "", text.decode(errors="replace"))
        raise AssertionError

    before, token = tempfile.tempdir, compiler_runner.set(run)
    tempfile.tempdir = str(scratch)
    try:
        yield
    finally:
        tempfile.tempdir = before
        compiler_runner.reset(token)
