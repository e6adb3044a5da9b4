"""The ladder in CUDA: one .cu a rung, loaded through torch's load_inline; without a GPU, its PTX is run instead."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import torch

import gemm_ref
from cuda_kernels import source
from gemm_ref import ptx
from gemm_ref.build import open_library

__all__ = ["build_all", "gemm"]


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    stage: str,
    variant: str = "default",
    math: str | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """a (M, K) @ b (K, N) with the CUDA kernel of one rung; returns C (M, N), or `out` filled with it.

    GPU tensors run on their GPU, on torch's current stream; CPU tensors on the reference GPU, from the same source.
    Operands that are not contiguous are copied first. Raises ValueError for anything wrong with the call (see
    `gemm_ref.call`), `gemm_ref.build.BuildError` without a compiler, and RuntimeError if the launch fails.
    """
    return gemm_ref.run(a, b, out, _launch, stage=stage, variant=variant, math=math, dialect="cuda")


def build_all(implementations: Iterable[gemm_ref.Implementation], capability: tuple[int, int]) -> None:
    """Build the libraries of many implementations side by side, so that none is built when first called.

    Raises BuildError for the first that does not build, after the others were given their chance.
    """
    with ThreadPoolExecutor() as pool:
        builds = [pool.submit(source.library, implementation, capability) for implementation in implementations]
    for build in builds:
        build.result()


class _LaunchShape(ctypes.Structure):
    """`LaunchShape` of include/launch.cuh."""

    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint)]


def _launch(call: gemm_ref.Call, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    implementation, problem = call.implementation, call.problem
    launch = implementation.stage.launch(problem.m, problem.n, implementation.variant)
    sizes = (problem.m, problem.n, problem.k)
    if a.device.type == "cpu":
        kernel = ptx.load(source.ptx(implementation))
        ptx.run(kernel, launch, [a, b, c, *sizes], names=("A", "B", "C"))
        return
    library = open_library(source.library(implementation, torch.cuda.get_device_capability(a.device)))
    shape = _LaunchShape((ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block), launch.shared_bytes)
    with torch.cuda.device(a.device):
        stream = torch.cuda.current_stream().cuda_stream
        pointers = (ctypes.c_void_p(x.data_ptr()) for x in (a, b, c))
        error = library.launch(*pointers, *sizes, ctypes.byref(shape), ctypes.c_void_p(stream))
    if error:
        library.describe_error.restype = ctypes.c_char_p
        reason = library.describe_error(error).decode()
        raise RuntimeError(f"{implementation} did not start at {problem} with {launch}: {reason}")
