"""Micro-kernels that each reach for one ceiling of the device: built as the rungs are, and all called alike."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import torch

from cuda_kernels.source import FLAGS, INCLUDE
from gemm_ref.build import build_library, digest, open_library
from gemm_ref.toolchain import architecture, find_toolkit

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class MicroKernel:
    """One .cu of this folder, with what is left open in it."""

    file: str  # its stem
    threads: int  # of a block
    blocks_per_sm: int  # as many as run at a time
    choice: tuple[str, str] | None = None  # a macro of the file and its value: which instruction
    least: tuple[int, int] = (7, 0)  # compute capability
    most: tuple[int, int] | None = None
    emulated: tuple[int, ...] = ()  # major versions for which ptxas writes other instructions in its place (its SASS)

    @property
    def defines(self) -> tuple[str, ...]:
        """nvcc's flags for what the file leaves open."""
        macros = [("THREADS", str(self.threads))] + ([self.choice] if self.choice else [])
        return tuple(f"-D{name}={value}" for name, value in macros)

    def refusal(self, capability: tuple[int, int]) -> str | None:
        """Why a GPU of this compute capability has no such instruction, or None if it has."""
        if capability[0] in self.emulated:
            return f"{self} is made from other instructions on compute capability {capability[0]}.{capability[1]}"
        if self.least <= capability <= (self.most or capability):
            return None
        needs = "{}.{}".format(*self.least) + (" exactly" if self.most == self.least else " or newer")
        return f"{self} needs compute capability {needs}; this GPU has {capability[0]}.{capability[1]}"

    def __str__(self) -> str:
        return self.choice[1] if self.choice else self.file


@functools.cache
def library(kernel: MicroKernel, capability: tuple[int, int]) -> Path:
    """The shared library of one micro-kernel for one GPU architecture, built once.

    Raises BuildError when there is no compiler, or with the compiler's output.
    """
    arch = architecture(capability)
    headers = digest(*(path.read_text(encoding="utf-8") for path in sorted(INCLUDE.glob("*.cuh"))))
    text = (FOLDER / f"{kernel.file}.cu").read_text(encoding="utf-8")
    return build_library(
        f"ceiling_{kernel}_sm_{arch}",
        cuda=f'// {headers}: the headers\n#line 1 "{kernel.file}.cu"\n{text}',
        cuda_cflags=(*FLAGS, *kernel.defines, f"-gencode=arch=compute_{arch},code=sm_{arch}"),
        cuda_home=find_toolkit(),
    )


def launch(kernel: MicroKernel, given: torch.Tensor, out: torch.Tensor, iterations: int, blocks: int) -> None:
    """Start the micro-kernel on the tensors' GPU, on torch's current stream; what they hold is said in its .cu.

    Raises BuildError if it does not compile, and RuntimeError if it does not start.
    """
    built = open_library(library(kernel, torch.cuda.get_device_capability(given.device)))
    with torch.cuda.device(given.device):
        stream = torch.cuda.current_stream().cuda_stream
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (given, out))
        error = built.launch(*pointers, ctypes.c_size_t(given.nbytes), iterations, blocks, ctypes.c_void_p(stream))
    if error:
        built.describe_error.restype = ctypes.c_char_p
        raise RuntimeError(f"{kernel} did not start with {blocks} blocks: {built.describe_error(error).decode()}")
