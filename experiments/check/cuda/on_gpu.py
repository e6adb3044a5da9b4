"""A user's CUDA kernel on a real GPU: built once as a shared library, and started through the CUDA runtime."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence

import torch

import gemm_ref
from experiments.check.cuda.unit import Unit
from gemm_ref.build import build_library, open_library
from gemm_ref.toolchain import architecture, find_toolkit

# torch's own flags take half's operators away, which nvcc alone offers, and the reference GPU's source had.
_LIKE_NVCC = "".join(
    f"#undef __CUDA_NO_{name}__\n"
    for name in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
)
_LAUNCHER = """
#include <cuda_runtime.h>
extern "C" cudaError_t launch(const unsigned* axes, unsigned shared_bytes, void** arguments, cudaStream_t stream) {
    const void* kernel = (const void*)&KERNEL;
    if (shared_bytes > 48 * 1024) {  // more than this has to be asked for
        cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error != cudaSuccess) return error;
    }
    const dim3 grid(axes[0], axes[1], axes[2]), block(axes[3], axes[4], axes[5]);
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}
extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
"""

CValue = ctypes.c_void_p | ctypes.c_float | ctypes.c_double | ctypes.c_size_t | ctypes.c_int64 | ctypes.c_int32
_FRACTIONS: dict[str, type[ctypes.c_float | ctypes.c_double]] = {"float": ctypes.c_float, "double": ctypes.c_double}
_WHOLE: dict[str, type[ctypes.c_size_t | ctypes.c_int64]] = {
    "size_t": ctypes.c_size_t,
    **dict.fromkeys(("long", "longlong", "int64_t", "uint64_t", "longint"), ctypes.c_int64),
}  # others are int


def build(unit: Unit, kernel: str) -> ctypes.CDLL:
    """The library that starts `kernel`, its name with template arguments, of a user's file.

    Raises BuildError with the compiler's output.
    """
    arch = architecture(torch.cuda.get_device_capability())
    library = build_library(
        "checked",
        cuda=unit.compose(before=_LIKE_NVCC, after=_LAUNCHER.replace("KERNEL", kernel)),
        cuda_cflags=(*unit.arguments(), f"-gencode=arch=compute_{arch},code=sm_{arch}"),
        cuda_home=find_toolkit(),
    )
    return open_library(library)


def start(library: ctypes.CDLL, name: str, shape: gemm_ref.Launch, values: Sequence[CValue]) -> None:
    """Launch on torch's current stream, with these C values as arguments. Raises RuntimeError if the launch fails."""
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    axes = (ctypes.c_uint * 6)(*shape.grid, *shape.block)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if error := library.launch(axes, ctypes.c_uint(shape.shared_bytes), pointers, stream):
        library.describe_error.restype = ctypes.c_char_p
        raise RuntimeError(f"{name} did not start with {shape}: {library.describe_error(error).decode()}")


def as_c(type_: str, value: torch.Tensor | float | int) -> CValue:
    """A value as a parameter of this C type has it."""
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    plain = re.sub(r"\b(?:const|unsigned|signed)\b|\s|&", "", type_) or "int"
    if plain in _FRACTIONS:
        return _FRACTIONS[plain](value)
    return _WHOLE.get(plain, ctypes.c_int32)(int(value))
