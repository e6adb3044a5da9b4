"""The listing of machine code that `gemm_ref.sass.accesses` reads."""

from __future__ import annotations

import subprocess
import tempfile

from gemm_ref.build import CACHE, BuildError, digest, version_of, write_whole
from gemm_ref.sass import tools
from gemm_ref.sass.accesses import LISTING


def disassemble(cubin: bytes) -> str:
    """The instructions of a cubin, each under the line of PTX that it was made from; kept in the cache.

    Raises BuildError where there is no nvdisasm, or with what it says when it fails.
    """
    nvdisasm = str(tools.find(LISTING[0]))
    cached = CACHE / f"{digest(version_of(nvdisasm), *LISTING, cubin)}.sass"
    if cached.exists():
        return cached.read_text(encoding="utf-8")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([nvdisasm, *LISTING[1:], file.name], capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{LISTING[0]} failed:\n{done.stderr.strip()}")
    write_whole(cached, done.stdout)
    return done.stdout
