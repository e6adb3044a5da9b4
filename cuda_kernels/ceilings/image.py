"""A cubin loaded on the current GPU, whose kernels are started through the CUDA driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from gemm_ref.call import driver
from gemm_ref.launch import Launch

_MAX_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_COOPERATIVE, _CLUSTER = 2, 4  # CUlaunchAttributeID


class _Attribute(ctypes.Structure):  # CUlaunchAttribute
    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):  # CUlaunchConfig
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


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
        given = [ctypes.c_void_p(x.data_ptr()) if isinstance(x, torch.Tensor) else x for x in arguments]
        self.start(kernel, Launch((blocks, 1, 1), (threads, 1, 1), shared_bytes), [bytes(each) for each in given])

    def start(self, kernel: str, launch: Launch, arguments: Sequence[bytes], is_cooperative: bool = False) -> None:
        """Starts a kernel as `launch` says; arguments: the bytes of each. is_cooperative: it waits for its whole grid.

        launch.cluster is for a kernel that is not compiled for one.
        """
        if kernel not in self._kernels:
            self._kernels[kernel] = ctypes.c_void_p()
            driver.call("cuModuleGetFunction", ctypes.byref(self._kernels[kernel]), self._module, kernel.encode())
        function = self._kernels[kernel]
        if launch.shared_bytes:
            driver.call("cuFuncSetAttribute", function, _MAX_SHARED_BYTES, launch.shared_bytes)
        rooms = [ctypes.create_string_buffer(each, len(each)) for each in arguments]
        places = (ctypes.c_void_p * len(rooms))(*map(ctypes.addressof, rooms))
        attributes = [_Attribute(_COOPERATIVE, 0, (1,))] * is_cooperative
        attributes += [_Attribute(_CLUSTER, 0, launch.cluster)] * (launch.cluster != (1, 1, 1))
        config = _Config(
            launch.grid,
            launch.block,
            launch.shared_bytes,
            torch.cuda.current_stream().cuda_stream,
            (_Attribute * len(attributes))(*attributes),
            len(attributes),
        )
        driver.call("cuLaunchKernelEx", ctypes.byref(config), function, places, None)
