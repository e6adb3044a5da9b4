"""cuobjdump and nvdisasm: where they are, and what they say about a cubin. Neither needs a GPU."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gemm_ref.build import CACHE, BuildError, cached, digest, version_of
from gemm_ref.toolchain import find_toolkit

# -gp: each instruction under the line of PTX that it was made from. Not -ndf, which would leave out where a jump by a
# table goes.
_LISTING = ("nvdisasm", "-c", "-gp")
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")


@dataclass(frozen=True)
class Usage:
    """What one kernel asks for, as its compiler wrote it into the cubin."""

    registers: int  # of a thread, each 4 bytes
    stack_bytes: int  # of a thread, in local memory
    shared_bytes: int  # of a block, known at compile time; from sm_90 on with what the system reserves in each block


@functools.cache
def find(tool: str) -> Path:
    """The path of `tool`: in nvcc's toolkit, on PATH, or in Triton's wheel, which carries both.

    Raises BuildError saying how to get it when it is nowhere.
    """
    places = []
    try:
        places.append(find_toolkit() / "bin" / tool)
    except BuildError:
        pass  # without nvcc there may still be Triton
    if on_path := shutil.which(tool):
        places.append(Path(on_path))
    if triton := importlib.util.find_spec("triton"):
        folders = triton.submodule_search_locations or []
        places += [Path(folder) / "backends" / "nvidia" / "bin" / tool for folder in folders]
    for path in places:
        if path.is_file():
            return path
    raise BuildError(
        f"{tool} was not found: it comes with Triton (`pip install triton`, on Linux) and with NVIDIA's CUDA toolkit "
        "(put its bin folder on PATH)"
    )


def usage(cubin: bytes) -> dict[str, Usage]:
    """What each kernel in a cubin asks for, by its name in it. Raises BuildError for bytes that are no cubin."""
    said = _say("cuobjdump", "-res-usage", cubin=cubin)
    return {name: Usage(*map(int, numbers)) for name, *numbers in _USAGE.findall(said)}


def disassemble(cubin: bytes) -> str:
    """The text of all kernels in a cubin, with a label at every place that is jumped to; kept in the build cache.

    `listing` reads it. Raises BuildError where there is no nvdisasm, and for bytes that are no cubin.
    """
    path = CACHE / f"{digest(version_of(str(find(_LISTING[0]))), *_LISTING, cubin)}.sass"
    return cached(path, lambda: _say(*_LISTING, cubin=cubin)).read_text(encoding="utf-8")


def _say(tool: str, *options: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([find(tool), *options, file.name], capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{tool} could not read {len(cubin)} bytes: {(done.stderr or done.stdout).strip()}")
    return done.stdout
