"""A stand-in for a GPU: host code queries it and allocates on it, and it answers as the model that it stands for.

Inside `StandIn.present()` torch and Triton's driver have a GPU. What is allocated on it lies on the CPU and says that
it is on the GPU. There is no time on it: who takes times, records a graph or wants another service is told so.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
import triton
from torch._library import triton as torch_triton
from torch.overrides import TorchFunctionMode
from triton.experimental.gluon.language.nvidia.hopper import tma

from gemm_ref.build import CACHE, digest, keep
from triton_kernels import without_gpu

MAX_ELEMENTS = 1 << 20  # of a tensor that has memory while a file is read


class NotOnStandIn(RuntimeError):
    """A service that only a GPU has."""


@dataclass(frozen=True)
class Model:
    """A GPU as its data sheet and `cudaGetDeviceProperties` describe it, by torch's names."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    shared_memory_per_block_optin: int
    total_memory: int
    L2_cache_size: int
    clock_rate: int  # kHz
    memory_clock_rate: int
    memory_bus_width: int
    shared_memory_per_block: int = 48 << 10
    regs_per_multiprocessor: int = 65536
    warp_size: int = 32
    gcnArchName: str = ""

    @property
    def max_threads_per_multi_processor(self) -> int:
        return 1536 if self.minor else 2048


MODELS = MappingProxyType(
    {
        "sm_80": Model("NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912, 80 << 30, 40 << 20, 1410000, 1593000, 5120),
        "sm_89": Model("NVIDIA GeForce RTX 4090", 8, 9, 128, 101376, 24 << 30, 72 << 20, 2520000, 10501000, 384),
        "sm_90": Model("NVIDIA H100 80GB HBM3", 9, 0, 132, 232448, 80 << 30, 50 << 20, 1980000, 2619000, 5120),
    }
)
DEVICE = torch.device("cuda", 0)


class StandIn:
    """A GPU of one model, inside of `present`. Not thread-safe: torch's and Triton's modules are patched."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.compiled_for = (model.major, model.minor)  # kernels are
        self._mode = _OnCpu()
        self.pointed = self._mode.pointed.get  # the tensor at an address that was asked for when it was last present

    @contextlib.contextmanager
    def present(self, reading: bool = False) -> Iterator[None]:
        """Inside, there is the GPU. reading: tensors of more than MAX_ELEMENTS have no memory."""
        chosen = without_gpu.capability.set(self.compiled_for)
        self._mode.reading = reading
        self._mode.pointed.clear()  # what was there then may be gone, and another tensor be there
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(mock.patch.object(triton.runtime.driver, "_active", _Driver(self.model)))
                stack.enter_context(mock.patch.multiple(torch.cuda, **self._answers()))
                stack.enter_context(mock.patch.object(torch.version, "cuda", "12.8"))
                stack.enter_context(mock.patch.object(torch, "set_default_device", _always(None)))
                # An operator is never compiled by torch, whose compiler takes seconds to import.
                stack.enter_context(mock.patch.object(torch.library, "wrap_triton", lambda kernel: kernel))
                stack.enter_context(
                    mock.patch.object(torch_triton, "get_inner_triton_kernels", _always([]), create=True)
                )
                for old, new in renamed().items():
                    stack.enter_context(mock.patch.object(tma, old, getattr(tma, new)))
                stack.enter_context(_command(self.model))
                stack.enter_context(self._mode)
                yield
        finally:
            without_gpu.capability.reset(chosen)

    def away(self) -> contextlib.AbstractContextManager:
        """Inside, tensors are on the CPU, as they really are."""
        return mock.patch.object(self._mode, "present", False)

    def _answers(self) -> dict[str, Any]:
        model = self.model
        answers = {
            "is_available": True,
            "is_initialized": True,
            "device_count": 1,
            "current_device": 0,
            "get_device_name": model.name,
            "get_device_capability": (model.major, model.minor),
            "get_device_properties": model,
            "get_arch_list": [f"sm_{model.major}{model.minor}"],
            "is_bf16_supported": True,
            "mem_get_info": (model.total_memory, model.total_memory),
            "memory_allocated": 0,
            "max_memory_allocated": 0,
            "current_stream": _Stream(),
            "default_stream": _Stream(),
            "Stream": _Stream(),
        }
        nothing = ("init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "manual_seed")
        refused = ("Event", "CUDAGraph", "graph")
        return {
            **{name: _always(value) for name, value in answers.items()},
            **{name: _always(None) for name in nothing},
            **{name: needs_gpu(f"torch.cuda.{name}") for name in refused},
            **{name: lambda *_, **__: contextlib.nullcontext() for name in ("device", "device_of", "stream")},
        }


@functools.cache
def renamed() -> dict[str, str]:
    """Returns Gluon's functions of TMA that this Triton has renamed, by their old names, from its own messages."""
    return dict(re.findall(r"(\w+) has been removed; call (\w+) instead", inspect.getsource(tma)))


class _OnCpu(TorchFunctionMode):
    """Treats every CUDA device as the CPU, and every tensor as one on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.present, self.reading = True, False
        self.pointed: dict[int, torch.Tensor] = {}  # whose address was asked for

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.present:
            return func(*args, **kwargs)
        if func in _PROPERTIES:
            return _PROPERTIES[func]
        if func in _STAY:
            return args[0]
        if func is torch.Tensor.data_ptr:
            self.pointed[func(*args)] = args[0]
        args = tuple(self._real(value) if func in _MOVE else value for value in args)
        kwargs = {name: self._real(value) if name == "device" else value for name, value in kwargs.items()}
        if self.reading and kwargs.get("device"):
            size = _SAME_SIZE.get(func, func)(*args, **kwargs | {"device": "meta"})
            if size.numel() > MAX_ELEMENTS:
                return size
        return func(*args, **kwargs)

    def _real(self, value: object) -> object:
        name = str(value) if isinstance(value, str | torch.device) else ""
        return torch.device("cpu") if re.fullmatch(r"cuda(:\d+)?", name) or type(value) is int else value


# torch calls the getters of a tensor's attributes functions too.
_PROPERTIES = {torch.Tensor.is_cuda.__get__: True, torch.Tensor.device.__get__: DEVICE, torch.Tensor.get_device: 0}
_STAY = {torch.Tensor.cuda, torch.Tensor.pin_memory}
_MOVE = {torch.Tensor.to}
# Without memory torch computes the left one in Python, and imports SymPy for it, which takes longer than a check.
_SAME_SIZE = {torch.randn: torch.rand}


class _Driver(without_gpu.NoGpu):
    def __init__(self, model: Model) -> None:
        super().__init__((model.major, model.minor))
        properties = {
            "max_shared_mem": model.shared_memory_per_block_optin,
            "max_num_regs": model.regs_per_multiprocessor,
            "multiprocessor_count": model.multi_processor_count,
            "warpSize": model.warp_size,
            "sm_clock_rate": model.clock_rate,
            "mem_clock_rate": model.memory_clock_rate,
            "mem_bus_width": model.memory_bus_width,
        }
        self.utils = SimpleNamespace(get_device_properties=_always(properties))

    def get_active_torch_device(self) -> torch.device:
        return DEVICE

    def get_device_interface(self):
        return torch.cuda

    def get_benchmarker(self):
        return needs_gpu("a benchmark")

    def get_empty_cache_for_benchmark(self):
        needs_gpu("a benchmark")()


class _Stream:
    cuda_stream = 0

    synchronize = wait_stream = wait_event = record_event = lambda self, *_: None


def _always(value: object):
    return lambda *_, **__: value


def needs_gpu(what: str):
    """Returns a function that raises NotOnStandIn."""

    def refuse(*_, **__):
        raise NotOnStandIn(f"{what} needs a GPU")

    return refuse


def provide_command(model: Model) -> Path:
    """Returns a folder with the command `nvidia-smi`, which prints the model's name; kept in the cache."""
    path = CACHE / "stand_in" / digest(model.name) / "nvidia-smi"
    if not path.exists():
        keep(path, f"#!/bin/sh\necho '{model.name}'\n".encode())
        path.chmod(0o755)
    return path.parent


@contextlib.contextmanager
def _command(model: Model) -> Iterator[None]:
    """Inside, the shell has that command, unless the machine has one of its name."""
    path = os.environ.get("PATH", "")
    if not shutil.which("nvidia-smi"):
        path = os.pathsep.join(filter(None, (path, str(provide_command(model)))))
    with mock.patch.dict(os.environ, PATH=path):
        yield
