"""Where nvcc is: the machine's CUDA toolkit, else the one in nvcc's PyPI wheels."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gemm_ref.build import BuildError, build_library, find_cxx, open_library, run_compiler

# What `pip install` needs to compile CUDA to PTX, and to machine code, on a computer without a toolkit.
WHEELS = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
# The reference GPU runs what an H200 would, and is launched on as one.
REFERENCE_CAPABILITY = (9, 0)


@functools.cache
def find_toolkit() -> Path:
    """The CUDA toolkit's folder (its `bin/nvcc` exists): $CUDA_HOME, the nvcc on PATH, /usr/local/cuda, the wheels.

    Raises BuildError saying how to get one when there is none, or when $CUDA_HOME holds none.
    """
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if wish := os.environ.get(variable):
            if (Path(wish) / "bin" / "nvcc").is_file():
                return Path(wish)
            raise BuildError(
                f"{variable} is set to {wish}, which has no bin/nvcc: set it to a CUDA toolkit, or unset it"
            )
    for home in _candidates():
        if (home / "bin" / "nvcc").is_file():
            return home
    raise BuildError(
        "nvcc was not found: install NVIDIA's CUDA toolkit and set CUDA_HOME to it, or install its wheels with "
        f"`pip install {' '.join(WHEELS)}` (`make` does this in its own environment)"
    )


def _candidates() -> Iterator[Path]:
    if nvcc := shutil.which("nvcc"):
        yield _home_of(nvcc)
    yield Path("/usr/local/cuda")
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        yield from sorted(Path(folder).glob("cu[0-9]*"), reverse=True)


def _home_of(nvcc: str) -> Path:
    """The toolkit that an nvcc belongs to, which may be a wrapper that lies elsewhere: nvcc itself says."""
    plan = subprocess.run([nvcc, "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True)
    here = re.search(r"^#\$ _HERE_=(.*)$", plan.stderr, re.M)
    return Path(here[1]).parent if here else Path(nvcc).resolve().parent.parent


def architecture(capability: tuple[int, int]) -> str:
    """nvcc's name for a compute capability: from 9.0 on with the `a` that unlocks the chip's own instructions."""
    number = f"{capability[0]}{capability[1]}"
    return number + "a" if capability >= (9, 0) else number


def nvcc_command(arguments: list[str]) -> list[str]:
    """Returns nvcc's command line, with the host compiler that the rest is built with.

    Raises BuildError where one of the two is missing.
    """
    return [str(find_toolkit() / "bin" / "nvcc"), "-ccbin", find_cxx(), *arguments]


def run_nvcc(arguments: list[str]) -> str:
    """Run nvcc; returns its warnings.

    Raises BuildError with its output when it fails.
    """
    try:
        return run_compiler(nvcc_command(arguments))
    except BuildError as error:
        if not re.search("Unsupported gpu architecture|is not defined for option", str(error)):
            raise
        hint = f"this nvcc is too old for the architecture: `pip install {' '.join(WHEELS)}` brings a newer one"
        raise BuildError(f"{error}\n{hint}") from None


def assemble(ptx: str, capability: tuple[int, int]) -> bytes:
    """The machine code that ptxas -O3 makes of PTX, each instruction with the line of PTX that it comes from.

    Raises BuildError with its output when it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.ptx", Path(folder) / "out.cubin"
        source.write_text(ptx, encoding="utf-8")
        run_nvcc(["-O3", "-lineinfo", "-cubin", f"-arch=sm_{architecture(capability)}", str(source), "-o", str(target)])
        return target.read_bytes()


def open_device_library(name: str, text: str, capability: tuple[int, int]) -> ctypes.CDLL:
    """The library that nvcc makes of a CUDA text for one GPU architecture, with its `launch` and `describe_error`.

    Raises BuildError when there is no compiler, or with the compiler's output.
    """
    arch = architecture(capability)
    flags = ("-O3", "-std=c++17", "-lineinfo", f"-gencode=arch=compute_{arch},code=sm_{arch}")
    library = open_library(build_library(name, cuda=text, cuda_cflags=flags, cuda_home=find_toolkit()))
    library.describe_error.restype = ctypes.c_char_p
    return library
