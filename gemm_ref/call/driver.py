"""The CUDA driver API, for what the runtime API lacks: in any thread, and while a CUDA graph is captured."""

from __future__ import annotations

import ctypes
import functools

import torch


@functools.cache
def library() -> ctypes.CDLL:
    """Returns the driver's functions, which return a CUresult."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    """Calls a function of the driver. Raises RuntimeError with the driver's reason if it fails."""
    if error := getattr(library(), name)(*arguments):
        reason = ctypes.c_char_p()
        library().cuGetErrorString(error, ctypes.byref(reason))
        raise RuntimeError(f"{name}: {(reason.value or b'unknown error').decode()}")


def bind_context() -> None:
    """Makes the primary context of torch's current GPU current in this thread if the thread has no context yet.

    The runtime API does this in a thread's first call, the driver API does not: autograd runs a backward pass in a
    thread of its own, whose first call may be one of the driver. The context is retained for the whole process.
    """
    context = ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), torch.cuda.current_device())
        call("cuCtxSetCurrent", context)


def device_attributes(index: int, *attributes: int) -> list[int]:
    """Values of these numbers of CUdevice_attribute for a GPU, by its index. Raises RuntimeError as `call` does."""
    torch.cuda.init()
    device, value, found = ctypes.c_int(), ctypes.c_int(), []
    call("cuDeviceGet", ctypes.byref(device), index)
    for attribute in attributes:
        call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        found.append(value.value)
    return found
