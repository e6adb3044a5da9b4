"""The ladder in CUDA: one .cu per rung, loaded through torch's load_inline; without a GPU, its PTX is run instead."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

import gemm_ref
from cuda_kernels import source, tensor_map
from gemm_ref import ptx
from gemm_ref.build import open_library
from gemm_ref.toolchain import REFERENCE_CAPABILITY

__all__ = ["build_all", "gemm"]


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    stage: str,
    variant: str = "default",
    math: str | None = None,
    out: torch.Tensor | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """a (M, K) @ b (K, N) with the CUDA kernel of one rung; returns C (M, N), or `out` filled with it.

    `math` is by the dtype, but that tf32, which rounds fp32 operands, must be asked for. In fp8 C is bfloat16,
    multiplied by `scale_a` and `scale_b`, each an fp32 tensor of one element or None for 1. There is no backward pass:
    operands that require grad are refused, unless grad mode is off.

    GPU tensors run on their GPU, on torch's current stream; CPU tensors on the reference GPU, from the same source.
    Operands that are not contiguous are copied first. Raises ValueError for anything wrong with the call (see
    `gemm_ref.call`), `gemm_ref.build.BuildError` without a compiler, and RuntimeError if the launch fails.
    """
    names = {"stage": stage, "variant": variant, "math": math, "dialect": "cuda"}
    return gemm_ref.run(a, b, out, _launch, **names, scale_a=scale_a, scale_b=scale_b)


def build_all(implementations: Iterable[gemm_ref.Implementation], capability: tuple[int, int]) -> None:
    """Build the libraries of many implementations side by side, for each layout in which they read B.

    So that none is built when first called.

    Raises BuildError for the first that does not build, after the others were given their chance.
    """
    with ThreadPoolExecutor() as pool:
        builds = [
            pool.submit(source.library, replace(item, b_layout=layout), capability)
            for item in implementations
            for layout in item.stage.reads_b(item.math, item.dialect)
        ]
    for build in builds:
        build.result()


class _LaunchShape(ctypes.Structure):
    """`LaunchShape` of include/launch.cuh."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("partials", ctypes.c_void_p),
        ("then", ctypes.c_void_p),
        ("tensor_maps", ctypes.c_void_p),
        ("scales", ctypes.c_void_p * 2),
    ]

    @classmethod
    def of(cls, launch: gemm_ref.Launch, **more: object) -> _LaunchShape:
        axes = ctypes.c_uint * 3
        return cls(axes(*launch.grid), axes(*launch.block), launch.shared_bytes, **more)


def _launch(call: gemm_ref.Call, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    implementation, problem = call.implementation, call.problem
    launch = call.launch
    partials = torch.empty(launch.partials, dtype=c.dtype, device=c.device) if launch.then else None
    if a.device.type == "cpu":
        _run_on_reference_gpu(call, launch, a, b, c, partials)
        return
    library = open_library(source.library(implementation, torch.cuda.get_device_capability(a.device)))
    shape = _LaunchShape.of(launch)
    if launch.then:
        then = _LaunchShape.of(launch.then)
        shape.partials, shape.then = partials.data_ptr(), ctypes.addressof(then)
    rows, columns = problem.m, problem.n
    if implementation.stage.tma:
        boxed, rows, columns = tensor_map.operands(call, a, b, c)
        maps = tensor_map.for_gpu(boxed)
        shape.tensor_maps = ctypes.addressof(maps)
    shape.scales[:] = [scale.data_ptr() if scale is not None else None for scale in call.scales]
    with torch.cuda.device(a.device):
        stream = torch.cuda.current_stream().cuda_stream
        pointers = (ctypes.c_void_p(x.data_ptr()) for x in (a, b, c))
        error = library.launch(*pointers, rows, columns, problem.k, ctypes.byref(shape), ctypes.c_void_p(stream))
    if error:
        library.describe_error.restype = ctypes.c_char_p
        reason = library.describe_error(error).decode()
        raise RuntimeError(f"{implementation} did not start at {problem} with {launch}: {reason}")


def _run_on_reference_gpu(
    call: gemm_ref.Call,
    launch: gemm_ref.Launch,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    partials: torch.Tensor | None,
) -> None:
    """What the rung's C launcher does on a GPU: one kernel, or one that fills `partials` and one that adds them."""
    implementation = call.implementation
    text = source.ptx(implementation)
    m, k = a.shape
    n = b.shape[1]
    machine = (implementation, REFERENCE_CAPABILITY)

    def load(name: str) -> ptx.Kernel:
        (entry,) = ptx.entries(text, called=name)
        return replace(ptx.load(text, entry), cubin=lambda: source.cubin(*machine).read_bytes())

    first = load(implementation.stage.id)
    if implementation.stage.tma:
        boxed, rows, columns = tensor_map.operands(call, a, b, c)
        scales = [0 if scale is None else scale for scale in call.scales]
        maps = tensor_map.for_reference_gpu(boxed)
        ptx.run(first, launch, [*maps, rows, columns, k, *scales], names=("left", "right", "C"))
        return
    if launch.then is None:
        ptx.run(first, launch, [a, b, c, m, n, k], names=("A", "B", "C"))
        return
    partials.fill_(float("nan"))  # so that a place which the first kernel misses shows in C
    ptx.run(first, launch, [a, b, partials, m, n, k], names=("A", "B", "partials"))
    second, splits = load(implementation.stage.second_kernel), launch.grid[2]
    ptx.run(second, launch.then, [partials, c, m * n, splits], names=("partials", "C"))
