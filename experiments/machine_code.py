"""The listing of machine code, which `gemm_ref.ptx.sass` reads: where nvdisasm is, and how it is run."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from cuda_kernels.toolchain import find_toolkit
from gemm_ref.build import CACHE, BuildError, digest, version_of, write_whole
from gemm_ref.ptx.sass import LISTING


@functools.cache
def find_nvdisasm() -> str:
    """The path of nvdisasm: the one on PATH, the CUDA toolkit's, or the one that comes with Triton.

    Raises BuildError saying how to get one when there is none.
    """
    name = LISTING[0]
    folders = [os.environ.get("PATH", "")]
    try:
        folders.append(str(find_toolkit() / "bin"))
    except BuildError:  # Triton's does as well
        pass
    triton = importlib.util.find_spec("triton")
    if triton is not None:
        folders.append(str(Path(triton.origin).parent / "backends" / "nvidia" / "bin"))
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise BuildError(f"{name} was not found: it comes with Triton (`pip install triton`) and with CUDA's toolkit")
    return found


def disassemble(cubin: bytes) -> str:
    """The instructions of a cubin, each under the line of PTX that it was made from; kept in the cache.

    Raises BuildError where there is no nvdisasm, or with what it says when it fails.
    """
    cached = CACHE / f"{digest(version_of(find_nvdisasm()), *LISTING, cubin)}.sass"
    if cached.exists():
        return cached.read_text(encoding="utf-8")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([find_nvdisasm(), *LISTING[1:], file.name], capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{LISTING[0]} failed:\n{done.stderr.strip()}")
    write_whole(cached, done.stdout)
    return done.stdout
