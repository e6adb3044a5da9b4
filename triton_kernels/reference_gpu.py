"""Triton's and Gluon's launches on the reference GPU: arguments as Triton's launcher passes them to the PTX's entry."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import triton
from triton.backends.nvidia.compiler import CUDAOptions
from triton.compiler import CompiledKernel
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import TensorWrapper

import gemm_ref
from triton_kernels import without_gpu

OPTIONS = {each.name for each in dataclasses.fields(CUDAOptions)}  # of a launch
_SCRATCH_POINTERS = 2  # Triton ends every entry's parameters with global scratch and profile scratch, here unused


@dataclass(frozen=True)
class Started:
    """A launch: what was compiled for it, and how it is started."""

    kernel: str
    constants: dict[str, object]  # of the kernel, by name, with its sizes
    grid: tuple[int, int, int]
    shared_bytes: int
    ttir: str  # Triton's first form of the kernel, before it is one for a GPU; of Gluon its own
    foreign: tuple[str, ...] = ()  # options that Triton does not have for NVIDIA GPUs, and which were left out


@contextlib.contextmanager
def on_reference_gpu(
    name_of: Callable[[torch.Tensor], str],
    begin: Callable[[Started], contextlib.AbstractContextManager] = lambda _: contextlib.nullcontext(),
    choose: Callable[[list[Config]], list[Config]] = lambda configs: configs,
    pointed: Callable[[int], torch.Tensor | None] = lambda _: None,
    dry: bool = False,
) -> Iterator[None]:
    """Inside, `kernel[grid](...)` with CPU tensors runs on the reference GPU, for Triton and Gluon functions alike.

    A kernel that was compiled before may be launched in this way, too.

    For code that launches by itself. name_of: what messages call a tensor argument. begin: is told of each launch, and
    gives what is around its run; it may raise OutOfResources. choose: from an autotuned function's configurations, as
    its pruning leaves them, to those that will do; the first is run that compiles and has the resources, since nothing
    can be timed. pointed: the tensor at an address, of those whose addresses the code has asked for, since it may pass
    them on in a tensor. dry: nothing is run, and compiled no further than to TTIR. It is not for several threads.
    """

    def launch(kernel: triton.JITFunction, *args, grid, warmup: bool, **kwargs):
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        if warmup or any(x.untyped_storage().device.type == "cuda" for x in tensors):
            return launches[triton.JITFunction](kernel, *args, grid=grid, warmup=warmup, **kwargs)
        parameters = kernel.signature.parameters
        foreign = tuple(name for name in kwargs if name not in parameters and name not in OPTIONS)
        kwargs = {name: value for name, value in kwargs.items() if name not in foreign}
        given = dict(zip(parameters, args, strict=False)) | kwargs
        bound = {name: given.get(name, parameter.default) for name, parameter in parameters.items()}
        blocks = (*(grid(bound) if callable(grid) else grid), 1, 1)[:3]
        if dry:
            ttir = without_gpu.ttir(kernel, *args, grid=grid, **kwargs)
            with begin(Started(kernel.__name__, bound, blocks, 0, ttir, foreign)):
                return None
        compiled = without_gpu.compiled(kernel, *args, grid=grid, **kwargs)
        if compiled is not None:  # else Triton launches nothing either
            execute(compiled, bound, blocks)
        return compiled

    def execute(compiled: CompiledKernel, bound: dict[str, object], blocks: tuple[int, int, int]) -> None:
        values = [bound[name] for name, kind in compiled.src.signature.items() if kind != "constexpr"]
        passed = [x.base if isinstance(x, TensorWrapper) else x for x in values]
        shared, ttir = compiled.metadata.shared, compiled.asm.get("ttir") or compiled.asm.get("source", "")
        with begin(Started(compiled.src.fn.__name__, bound, blocks, shared, ttir)):
            names = tuple(name_of(x) if isinstance(x, torch.Tensor) else "" for x in passed)
            if not dry:
                run(compiled, blocks, [_argument(x, pointed, name_of) for x in passed], names)

    def compiled_before(compiled: CompiledKernel, grid: tuple[int, int, int]):
        def runner(*args, stream=None) -> None:
            parameters = compiled.src.fn.params
            if len(args) < len(parameters):  # older ones took what is no constant alone
                parameters = [each for each in parameters if not each.is_constexpr]
            execute(compiled, {each.name: x for each, x in zip(parameters, args, strict=True)}, grid)

        return runner

    def tune(tuner: Autotuner, *args, **kwargs):
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            left = tuner.prune_configs(kwargs)
        except Exception:  # of a model of the time, which asks a GPU
            left = tuner.configs
        *others, last = choose(left)
        for config in others:
            with contextlib.suppress(OutOfResources, CompileTimeAssertionFailure):  # as when Triton times them
                return start(tuner, config, args, kwargs)
        return start(tuner, last, args, kwargs)

    def start(tuner: Autotuner, config: Config, args: tuple, kwargs: dict):
        tuner.best_config = config  # which callers may ask for
        if config.pre_hook:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        return tuner.fn.run(*args, **kwargs, **config.all_kwargs())

    tuners = [Autotuner, *(kind for kind in _derived(Autotuner) if "run" in vars(kind))]
    launches, take = {kind: kind.run for kind in (triton.JITFunction, *tuners)}, CompiledKernel.__getitem__
    for kind in launches:
        kind.run = tune if kind in tuners else launch
    CompiledKernel.__getitem__ = compiled_before
    try:
        yield
    finally:
        CompiledKernel.__getitem__ = take
        for kind, before in launches.items():
            kind.run = before


def _derived(kind: type) -> Iterator[type]:
    each: type
    for each in kind.__subclasses__():
        yield each
        yield from _derived(each)


def run(
    compiled: CompiledKernel,
    grid: tuple[int, int, int],
    args: Sequence,
    names: tuple[str, ...],
    partly: tuple[str, ...] = (),
) -> None:
    block = (32 * compiled.metadata.num_warps, 1, 1)
    on = gemm_ref.Launch(grid, block, compiled.metadata.shared, partly=partly)
    kernel = replace(gemm_ref.ptx.load(compiled.asm["ptx"]), cubin=lambda: compiled.asm["cubin"])
    values, called = _with_tensor_maps(compiled, _without_nones(args), names)
    gemm_ref.ptx.run(kernel, on, [*values, *[0] * _SCRATCH_POINTERS], names=called)


_MOST_POINTERS = 1 << 12  # of an array that is looked through for them


def _argument(value: object, pointed: Callable[[int], torch.Tensor | None], name_of: Callable[[torch.Tensor], str]):
    """What the reference GPU takes for an argument: of a view its memory in order, of addresses what lies there."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype in (torch.int64, torch.uint64) and 0 < value.numel() <= _MOST_POINTERS:
        found = [pointed(address) for address in value.flatten().tolist()]
        tensors = tuple(_in_order(x) for x in found if x is not None)
        if len(tensors) == len(found):
            return gemm_ref.ptx.Pointers(tensors, tuple(name_of(x) for x in tensors))
    return _in_order(value)


def _in_order(x: torch.Tensor) -> torch.Tensor:
    """x, or where its elements do not lie one after another all that lies from its first to its last."""
    if x.is_contiguous():
        return x
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((last + 1 if x.numel() else 0,), (1,))


def _without_nones(args: Sequence) -> tuple:
    """What a kernel has parameters for: None is a constant of it. No argument that has a name comes after one."""
    return tuple(value for value in args if value is not None)


_SWIZZLES = (0, 32, 64, 128)  # bytes, by the number in a kernel's metadata


def _is_descriptor(value: object) -> bool:
    """Whether it is a TensorDescriptor: Triton and Gluon have a class each."""
    return hasattr(value, "block_shape") and hasattr(value, "base")


def _with_tensor_maps(compiled: CompiledKernel, args: tuple, names: tuple[str, ...]) -> tuple[list, list[str]]:
    """Each tensor descriptor as Triton's launcher passes it: a tensor map, then its sizes and its strides.

    The boxes are the compiler's: it splits a block whose rows are wider than the swizzle. Raises ValueError for a
    descriptor that fills with NaN, which the reference GPU does not do.
    """
    metadata = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    expanded, called = [], []
    for number, value in enumerate(args):
        name = names[number] if number < len(names) else f"argument {number}"
        if not _is_descriptor(value):
            expanded.append(value)
            called.append(name)
            continue
        about = next(metadata)
        if value.padding != "zero" or about["fp4_padded"]:
            raise ValueError(f"the descriptor of {name} pads in a way that the reference GPU does not")
        map_ = gemm_ref.ptx.TensorMap(
            value.base,
            box=about["block_size"][::-1],
            swizzle=_SWIZZLES[about["swizzle"]],
            sizes=tuple(value.shape)[::-1],
            strides=tuple(stride * value.base.element_size() for stride in value.strides[:-1])[::-1],
            to_tf32=getattr(value, "round_f32_to_tf32", False),  # Triton 3.6 has it not
        )
        expanded += [map_, *value.shape, *value.strides]
        called += [name] * (1 + len(value.shape) + len(value.strides))
    return expanded, called
