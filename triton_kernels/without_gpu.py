"""Compiling a jit function on a machine without a GPU: up to its PTX, and to machine code when somebody asks for it."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator
from dataclasses import replace

import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import CompiledKernel, make_backend
from triton.compiler.compiler import AsmDict

from gemm_ref.build import CACHE, cached, keep
from gemm_ref.toolchain import REFERENCE_CAPABILITY

capability = contextvars.ContextVar("capability", default=REFERENCE_CAPABILITY)  # what `compiled` compiles for
anew = contextvars.ContextVar("anew", default=False)  # whether `compiled` passes over what Triton has compiled before
driver_lock = threading.Lock()  # a launch on a GPU in another thread must not meet the driver below


def compiled(kernel: triton.JITFunction, /, *args, grid, **options) -> CompiledKernel | None:
    """What `kernel[grid](*args, **options)` would launch, where no GPU is to run it.

    In `.asm` are the texts `ttgir`, `llir` and `ptx` and the bytes `cubin`, which are assembled when they are first
    asked for, and kept: ptxas takes a quarter of the time, and the reference GPU reads PTX. None where one of Triton's
    hooks (`knobs.runtime`) has it not compiled.
    """
    with _without_gpu() as driver, triton.knobs.compilation.scope():
        if anew.get():
            kernel.device_caches.pop(driver.get_current_device(), None)
            triton.knobs.compilation.always_compile = True
        result = kernel.warmup(*args, grid=grid, **options)
    if result is not None and not isinstance(result.asm, _Stages):
        result.asm = _Stages(result, anew.get())
    return result


def ttir(kernel: triton.JITFunction, /, *args, grid, **options) -> str:
    """The first form of what `compiled` would compile: Triton's IR; of a Gluon function Gluon's.

    It takes a tenth of the time, and no more where a tile is too large for any GPU.
    """
    with _without_gpu(_ToTtir):
        try:
            result = kernel.warmup(*args, grid=grid, **options)
        except _ToTtir.Reached as reached:
            return str(reached)
    return result.asm.get("ttir") or result.asm.get("source", "")  # it had been compiled before


class NoGpu:
    """A driver for Triton that knows its target and no device.

    Triton decides how to specialise a kernel for its arguments (which sizes and addresses are multiples of 16) inside
    a launch, and a launch asks the driver for the target and for the key of its cache of compiled kernels. With
    these three answers `warmup` does what a launch would, on any machine, from the first argument to the PTX.
    """

    def __init__(self, capability: tuple[int, int]) -> None:
        self._capability = capability

    def get_current_target(self) -> GPUTarget:
        major, minor = self._capability
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_device(self) -> str:
        return f"no GPU, {self._capability}"  # not a GPU's index, so that real launches never find these kernels

    def get_current_stream(self, device: str) -> None:
        return None


class _ToPtx(CUDABackend):
    """Triton's compiler for NVIDIA's GPUs without its last stage, in which ptxas makes the cubin."""

    def __init__(self, target: GPUTarget) -> None:
        super().__init__(target)
        self.binary_ext = "ptx"

    def add_stages(self, stages: dict, *about: object) -> None:
        super().add_stages(stages, *about)
        del stages["cubin"]

    def hash(self) -> str:
        return f"{super().hash()}-ptx"  # part of the name in the cache: a GPU would miss the cubin in what lies there


class _ToTtir(_ToPtx):
    """The compiler that stops behind TTIR."""

    class Reached(Exception):
        """It did; the text is its message."""

    def add_stages(self, stages: dict, *about: object) -> None:
        super().add_stages(stages, *about)

        def stop(module: object, _: dict) -> None:
            raise self.Reached(module)

        stages["ttgir"] = stop


class _Stages(AsmDict):
    """What a kernel became, stage by stage, as Triton has it in `CompiledKernel.asm`."""

    def __init__(self, kernel: CompiledKernel, anew: bool) -> None:
        super().__init__(kernel.asm, ptx=kernel.asm["ptx"].decode())  # Triton reads the last stage as bytes
        self._metadata, self._anew = kernel.metadata, anew

    def __missing__(self, stage: str) -> bytes | str:
        if stage != "cubin":
            return super().__missing__(stage)
        about = self._metadata  # all options that it was compiled with, and a hash of all that the PTX is made of
        path = CACHE / f"{about.name}-{about.hash}.cubin"

        def assembled() -> bytes:
            return make_backend(about.target).make_cubin(self["ptx"], {}, about, about.target.arch)

        if self._anew:
            keep(path, assembled())
        self[stage] = cached(path, assembled).read_bytes()
        return self[stage]


@contextlib.contextmanager
def _without_gpu(compiler: type[_ToPtx] | None = None) -> Iterator[NoGpu]:
    """Inside, Triton's active driver is `NoGpu` and its compiler `_ToPtx`, and outside what they were before."""
    config, nvidia = triton.runtime.driver, backends["nvidia"]
    with driver_lock:
        before = config._active  # reading `active` would look for a GPU and raise where there is none
        driver = NoGpu(capability.get())
        config.set_active(driver)
        backends["nvidia"] = replace(nvidia, compiler=compiler or _ToPtx)
        try:
            yield driver
        finally:
            config.set_active(before)
            backends["nvidia"] = nvidia
