"""A transposing copy that keeps up with memory, for operands that a kernel reads the other way round.

torch's own copy of a transposed matrix reaches a quarter of an H200's bandwidth (about 1.1 TB/s for 4096 x 4096
floats): at 2048 it takes most of the time of the product.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch

from gemm_ref.build import build_library, open_library
from gemm_ref.toolchain import architecture, find_toolkit


def transposed(x: torch.Tensor) -> torch.Tensor:
    """x (rows, columns) as a new row-major tensor (columns, rows).

    x on a GPU is row-major, of elements of 1, 2 or 4 bytes; the copy is on torch's current stream. On the CPU torch
    copies it. Raises BuildError without a compiler, and RuntimeError if the launch fails.
    """
    if x.device.type == "cpu" or x.numel() == 0:
        return x.t().contiguous()
    out = x.new_empty((x.shape[1], x.shape[0]))
    library = _library(torch.cuda.get_device_capability(x.device))
    with torch.cuda.device(x.device):
        pointers = (ctypes.c_void_p(each.data_ptr()) for each in (x, out))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        error = library.launch(*pointers, *x.shape, x.itemsize, stream)
    if error:
        raise RuntimeError(f"a copy of {tuple(x.shape)} did not start: {library.describe_error(error).decode()}")
    return out


@functools.cache
def _library(capability: tuple[int, int]) -> ctypes.CDLL:
    arch = architecture(capability)
    flags = ("-O3", "-std=c++17", f"-gencode=arch=compute_{arch},code=sm_{arch}")
    text = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    library = open_library(build_library("transpose", cuda=text, cuda_cflags=flags, cuda_home=find_toolkit()))
    library.describe_error.restype = ctypes.c_char_p
    return library
