"""registers.cu with chosen registers in its machine code: what such a loop must compute, and its clocks on a GPU."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch

from cuda_kernels.ceilings import FOLDER
from cuda_kernels.ceilings.image import Image
from cuda_kernels.source import compile_ptx
from gemm_ref.sass import patch
from gemm_ref.sass.patch import RZ, TWO, Operands
from gemm_ref.toolchain import assemble

KERNEL = "registers"
VALUES, SOURCES, UNROLL = 144, 16, 256  # as in registers.cu


@dataclass(frozen=True)
class Operation:
    """What one instruction computes from a, b and c, elementwise; those of two registers are given b as c too."""

    ptx: str
    dtype: type[np.generic]  # in a word of a register
    compute: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


OPERATIONS = MappingProxyType(
    {
        "FFMA": Operation("fma.rn.f32 %0, %1, %2, %0;", np.float32, lambda a, b, c: a * b + c),
        "FADD": Operation("add.rn.f32 %0, %1, %0;", np.float32, lambda a, b, c: a + b),
        "FMUL": Operation("mul.rn.f32 %0, %1, %0;", np.float32, lambda a, b, c: a * b),
        "IMAD": Operation("mad.lo.u32 %0, %1, %2, %0;", np.uint32, lambda a, b, c: a * b + c),
        "HFMA2": Operation("fma.rn.f16x2 %0, %1, %2, %0;", np.float16, lambda a, b, c: a * b + c),
        "LOP3": Operation("lop3.b32 %0, %1, %2, %0, 0x96;", np.uint32, lambda a, b, c: a ^ b ^ c),
    }
)


@dataclass(frozen=True)
class Compiled:
    """The loop of one operation as ptxas wrote it."""

    name: str
    cubin: bytes
    places: tuple[int, ...]  # of its instructions in the cubin
    values: Mapping[int, int]  # register -> which of the VALUES it holds

    def with_registers(self, operands: Sequence[Operands]) -> bytes:
        """The cubin with these UNROLL instructions in the loop.

        Raises ValueError for a register that the loop does not own.
        """
        named = {register for its in operands for register in (its.d, its.a, its.b, its.c)}
        if foreign := named - {*self.values, RZ}:
            raise ValueError(f"{sorted(foreign)} are no registers of this loop: it has {sorted(self.values)}")
        return patch.patched(self.cubin, self.places, operands)

    def expected(self, words: np.ndarray, operands: Sequence[Operands]) -> np.ndarray:
        """What a trip makes of `words`, (threads, VALUES) of uint32; exact for small numbers."""
        operation = OPERATIONS[self.name]
        state = {register: words[:, i : i + 1].copy().view(operation.dtype) for register, i in self.values.items()}
        state[RZ] = np.zeros_like(next(iter(state.values())))
        for its in operands:
            result = operation.compute(state[its.a], state[its.b], state[its.b if self.name in TWO else its.c])
            if its.d != RZ:
                state[its.d] = result
        after = words.copy()
        for register, i in self.values.items():
            after[:, i : i + 1] = state[register].view(np.uint32)
        return after

    def small_words(self, threads: int) -> np.ndarray:
        """Seeded words, (threads, VALUES) of uint32, each one or two small numbers of the operation's type."""
        dtype = OPERATIONS[self.name].dtype
        least = 0 if dtype is np.uint32 else -1
        numbers = np.random.default_rng(0).integers(least, 2, (threads, VALUES * 4 // np.dtype(dtype).itemsize))
        return numbers.astype(dtype).view(np.uint32)


@functools.cache
def compiled(name: str, capability: tuple[int, int]) -> Compiled:
    """The loop of one of OPERATIONS for a GPU architecture.

    Raises BuildError without a compiler, and ValueError where the machine code does not look as it must.
    """
    first, last = patch.ARCHITECTURES
    if not first <= capability <= last:
        raise ValueError(
            "registers can be chosen in the machine code of compute capability {}.{} to {}.{}; this is {}.{}".format(
                *first, *last, *capability
            )
        )
    text = f'#define OPERATION "{OPERATIONS[name].ptx}"\n' + (FOLDER / "registers.cu").read_text(encoding="utf-8")
    cubin = assemble(compile_ptx(text, "registers.cu", capability)[0], capability)
    places = tuple(patch.find_run(cubin, KERNEL, name, UNROLL))
    return Compiled(name, cubin, places, values_of(name, cubin))


def values_of(name: str, cubin: bytes) -> dict[int, int]:
    """Which value each register holds: where it is loaded from, and where it is stored to after the loop.

    Raises ValueError where the two differ.
    """
    loaded, stored = (patch.offsets(cubin, KERNEL, access) for access in ("LDG", "STG"))
    if not loaded <= stored or sorted(offset for _, offset in loaded) != [4 * value for value in range(VALUES)]:
        raise ValueError(f"{name}: this compiler moves values between registers, so those of the loop cannot be chosen")
    return {register: offset // 4 for register, offset in sorted(loaded)}


def launch(image: Image, words: torch.Tensor, clocks: torch.Tensor, trips: int) -> None:
    """Starts a block for each of `clocks` (int64), with a thread for each row of `words` (int32, VALUES columns)."""
    image.launch(KERNEL, len(clocks), len(words), words, clocks, ctypes.c_int(trips))
