"""Micro-kernels that each reach for one ceiling of the device: all compiled and started alike."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

import torch

from cuda_kernels.ceilings.image import Image
from cuda_kernels.source import FLAGS, compile_ptx
from gemm_ref.toolchain import assemble

FOLDER = Path(__file__).resolve().parent
ONE_PASS = ("copy", "mma_dots", "wgmma_dots")  # files whose kernels have no loop: an iteration is a launch
TILE_BYTES = 4 * 16  # of a thread in a tile of read.cu


@dataclass(frozen=True)
class MicroKernel:
    """One .cu of this folder, with what is left open in it."""

    file: str  # its stem
    threads: int  # of a block
    blocks_per_sm: int  # as many as run at a time
    choice: tuple[str, str] | None = None  # a macro of the file and its value: which instruction
    least: tuple[int, int] = (7, 0)  # compute capability
    most: tuple[int, int] | None = None
    shared_bytes: int = 0  # of dynamic shared memory
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


def ptx_of(kernel: MicroKernel, capability: tuple[int, int]) -> str:
    """Returns the PTX of one micro-kernel. Raises BuildError without a compiler, or with the compiler's output."""
    name = f"{kernel.file}.cu"
    text = f'#line 1 "{name}"\n' + (FOLDER / name).read_text(encoding="utf-8")  # not that of a temporary folder
    return compile_ptx(text, name, capability, (*FLAGS, *kernel.defines))[0]


@functools.cache
def cubin(kernel: MicroKernel, capability: tuple[int, int]) -> bytes:
    """Returns the machine code of `ptx_of`, compiled once in a process."""
    return assemble(ptx_of(kernel, capability), capability)


@functools.cache
def _image(kernel: MicroKernel, device: int) -> Image:
    return Image(cubin(kernel, torch.cuda.get_device_capability(device)))


def arguments(kernel: MicroKernel, given: torch.Tensor, out: torch.Tensor, iterations: int, blocks: int) -> list:
    """Returns what the micro-kernel takes; a tensor stands for its address, and all numbers have 32 bits."""
    if kernel.file == "read":
        tiles = given.nbytes // (TILE_BYTES * kernel.threads)
        return [given, out, tiles, (blocks % tiles or 1) if tiles > 1 else 0, iterations]
    return [given, out] if kernel.file in ONE_PASS else [given, out, iterations]


def launch(kernel: MicroKernel, given: torch.Tensor, out: torch.Tensor, iterations: int, blocks: int) -> None:
    """Starts the micro-kernel on the tensors' GPU, on torch's current stream; what they hold is said in its .cu.

    Raises BuildError if it does not compile, and RuntimeError if it does not start.
    """
    values = arguments(kernel, given, out, iterations, blocks)
    values[2:] = map(ctypes.c_int, values[2:])
    with torch.cuda.device(given.device):
        image = _image(kernel, torch.cuda.current_device())
        for _ in range(iterations if kernel.file in ONE_PASS else 1):
            image.launch(f"{kernel.file}_kernel", blocks, kernel.threads, *values, shared_bytes=kernel.shared_bytes)
