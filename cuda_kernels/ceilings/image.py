"""A cubin loaded on the current GPU, whose kernels are started through the CUDA driver."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from gemm_ref.call import driver

_MAX_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Image:
    """A cubin on the current GPU; a context manager. Raises RuntimeError where the driver refuses."""

    def __init__(self, cubin: bytes) -> None:
        torch.cuda.init()
        driver.bind_context()
        self._module = ctypes.c_void_p()
        driver.call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        self._kernels: dict[str, ctypes.c_void_p] = {}

    def __enter__(self) -> Image:
        return self

    def __exit__(self, *error: object) -> None:
        torch.cuda.synchronize()
        driver.call("cuModuleUnload", self._module)

    def launch(self, kernel: str, blocks: int, threads: int, *arguments: Any, shared_bytes: int = 0) -> None:
        """Starts a kernel on torch's current stream; a tensor among the arguments stands for its address."""
        if kernel not in self._kernels:
            self._kernels[kernel] = ctypes.c_void_p()
            driver.call("cuModuleGetFunction", ctypes.byref(self._kernels[kernel]), self._module, kernel.encode())
        function = self._kernels[kernel]
        if shared_bytes:
            driver.call("cuFuncSetAttribute", function, _MAX_SHARED_BYTES, shared_bytes)
        given = [ctypes.c_void_p(x.data_ptr()) if isinstance(x, torch.Tensor) else x for x in arguments]
        places = (ctypes.c_void_p * len(given))(*(ctypes.addressof(each) for each in given))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        driver.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, places, None)
