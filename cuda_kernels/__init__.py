"""The ladder in CUDA: one .cu per rung, loaded through torch's load_inline; without a GPU, its PTX is run instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

import gemm_ref
from cuda_kernels import launcher, source
from gemm_ref.call import Launcher, Plan, Prepare
from gemm_ref.call.execute import run
from gemm_ref.call.torch_op import call, define_op
from gemm_ref.epilogue import Extras

__all__ = ["build_all", "gemm", "gemm_of_ptx", "gemm_rewritten"]


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    stage: str | None = None,
    variant: str = "default",
    math: str | None = None,
    out: torch.Tensor | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    c: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    on_range: str | None = None,
    batch_invariant: bool = False,
) -> torch.Tensor:
    """activation(alpha a @ b + beta c + bias) with the CUDA kernel of one rung: (..., N), or `out` filled with it.

    Without `stage` it is the last rung that takes such operands and runs on their GPU, in fp32 with the tile that is
    chosen for their shape. `math` is by the dtype, but that tf32, which rounds fp32 operands, must be asked for. In
    fp8 C is bfloat16, multiplied by `scale_a` and `scale_b`, each an fp32 tensor of one element or None for 1.
    Gradients come from the same rung; torch.compile and its like see a custom op (`gemm_ref.call.torch_op`).

    a (..., K), b (K, N). The rest is for the rungs that have epilogues (s19), which compute it in fp32: bias (N,), in
    C's dtype or fp32; activation "relu", "gelu", "gelu_tanh" or "silu"; c (..., N), in C's dtype, which may be `out`;
    beta is 1 where there is a c, unless it is given, and where it is 0 c is not read.

    In the emulated modes (s20: fp16x3, bf16x6) C is fp32 from products of parts of 16 bits, or, without `stage`, from
    fp32 arithmetic where that is predicted to be faster (`range_report` says which). Parts do not hold every row or
    column: on_range is "widen", which computes those in fp32 and is the default, or "raise", which raises
    `operands.split.OutOfRange`. There a and b may be in parts already (`operands.split.split_operand`).

    batch_invariant: row i of the result has the same bits whatever M is. The tile and the blocks are then chosen by
    shape among those that add a row's products in the order of K; a `stage` that has none is refused (s13).

    GPU tensors run on their GPU, on torch's current stream; CPU tensors on the reference GPU, from the same source.
    Operands that are not contiguous are copied first. Raises ValueError for anything wrong with the call (see
    `gemm_ref.call`), `gemm_ref.build.BuildError` without a compiler, and RuntimeError if the launch fails.
    """
    extras = Extras(scale_a, scale_b, bias, activation, c, alpha, beta)
    return call(a, b, out, prepare, stage, "cuda", variant, math, extras, on_range, batch_invariant)


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


def gemm_of_ptx(implementation: gemm_ref.Implementation, text: str) -> Callable[..., torch.Tensor]:
    """`fn(a, b, out=None)` that runs `text`, PTX of a changed copy of the rung's file, on the reference GPU.

    a, b: CPU tensors, as for `gemm`; what the kernel does wrong is raised as a `gemm_ref.ptx.PtxError`.
    """

    def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
        return _reference_launcher(plan, text)

    return _callable(implementation, prepare)


def gemm_rewritten(
    implementation: gemm_ref.Implementation, rules: tuple[str, ...], least_shared_bytes: int = 0
) -> Callable[..., torch.Tensor]:
    """`fn(a, b, out=None)` that runs a rung whose text is changed by these of `rewritten.RULES`, as `gemm` runs it.

    least_shared_bytes: dynamic shared memory that a block asks for, whatever it needs: it keeps other blocks away.
    """

    def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
        plan = replace(plan, least_shared_bytes=least_shared_bytes)
        if c.device.type == "cpu":
            return _reference_launcher(plan, source.ptx(implementation, rules=rules))
        return launcher.prepare(plan, a, b, c, rules)

    return _callable(implementation, prepare)


def _callable(implementation: gemm_ref.Implementation, prepare: Prepare) -> Callable[..., torch.Tensor]:
    def fn(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        item = implementation
        return run(a, b, out, prepare, item.stage.id, item.dialect, item.variant, item.math)

    return fn


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Launcher:
    """The launcher for a plan and matrices like these: `gemm_ref.call.Prepare`."""
    if c.device.type == "cpu":
        return _reference_launcher(plan)
    return launcher.prepare(plan, a, b, c)


def _reference_launcher(plan: Plan, text: str = "") -> Launcher:
    """The launcher that runs PTX on the reference GPU, which is imported here: a call on a GPU never needs it.

    text: the PTX, where it is not that of the rung as it is.
    """
    from cuda_kernels import reference_gpu

    return functools.partial(reference_gpu.run, plan, text=text)


define_op(__name__, "cuda", prepare)
