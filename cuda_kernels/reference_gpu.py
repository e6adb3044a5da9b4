"""Launching a rung's PTX on the reference GPU: what the rung's C launcher does on a GPU, and its tensor maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from cuda_kernels import source, tensor_map
from gemm_ref import ptx
from gemm_ref.call import Plan
from gemm_ref.epilogue import Extras
from gemm_ref.operands import pairs_with_padding, with_padding
from gemm_ref.operands.split import Split
from gemm_ref.toolchain import REFERENCE_CAPABILITY


def run(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras, text: str = "") -> None:
    """What the rung's C launcher does on a GPU: one kernel, or one that fills `partials` and one that adds them.

    Flags are fresh in each call. Raises `ptx.LeftOver` where the kernel has not set them back to 0.

    text: the PTX, where it is not that of the rung as it is.
    """
    launch = plan.launch
    implementation = plan.implementation
    text = text or source.ptx(implementation)
    m, n, k = plan.problem.m, plan.problem.n, plan.problem.k
    machine = (implementation, REFERENCE_CAPABILITY)

    def load(name: str) -> ptx.DecodedKernel:
        (entry,) = ptx.entries(text, called=name)
        return replace(ptx.load(text, entry), cubin=lambda: source.cubin(*machine).read_bytes())

    first = load(implementation.stage.id)
    if implementation.stage.tma:
        boxed, rows, columns = tensor_map.operands(plan, a, b, c)
        maps = _tensor_maps(boxed)
        matrices: dict[str, Any] = dict(zip(("left", "right", "C"), (*maps, _rows(c)), strict=False))
        sizes: list[Any] = [rows, columns, k]
        sizes += [launch.shared_tiles] if implementation.stage.tiles else []
        if isinstance(a, Split):
            sizes += [a.matrix, b.matrix, a.exponents, b.exponents]
        else:
            sizes += [0 if scale is None else scale for scale in extras[:2]]
        sizes += _of_epilogue(extras) if implementation.stage.epilogues else []
    else:
        b = with_padding(b) if implementation.config.ALIGN_B else b
        matrices, sizes = {"A": a, "B": b, "C": c}, [m, n, k]
    # Partial sums are NaN, so that a place that is missed shows; and a kernel may have no use for them, or for flags
    room = {"partials": torch.full((launch.partials,), float("nan")), "flags": torch.zeros(launch.flags).int()}
    named = dict([*matrices.items(), *room.items()][: len(first.entry.parameters) - len(sizes)])
    ptx.run(first, launch, [*named.values(), *sizes], names=tuple(named))
    if launch.then is not None:
        second = load(implementation.stage.second_kernel)
        ptx.run(second, launch.then, [room["partials"], c, *sizes, launch.parts], names=("partials", "C"))
    if room["flags"].any():
        raise ptx.LeftOver(f"{first.name} leaves flags that are not 0, and the next launch counts on that")


def _rows(c: torch.Tensor) -> ptx.Struct:
    """`Rows` of include/epilogue.cuh."""
    return ptx.Struct(((0, "u64", c), (8, "s32", c.shape[0]), (12, "s32", c.shape[1])), names=((0, "C"),))


def _of_epilogue(extras: Extras) -> list[torch.Tensor | int | float]:
    """What a kernel with an epilogue is given for it, behind the scales."""
    bias, c = (None if x is None else pairs_with_padding(x) for x in (extras.bias, extras.c))
    step = 0 if c is None else c.shape[1]
    return [0 if bias is None else bias, 0 if c is None else c, step, extras.alpha, extras.beta or 0.0]


def _tensor_maps(boxed: tuple[tensor_map.Boxed, ...]) -> list[tuple[ptx.TensorMap, ...]]:
    """The maps as the reference GPU takes them: of each matrix those of its views."""
    return [tuple(_tensor_map(x, of) for of in tensor_map.View.all_of(x)) for x in boxed]


def _tensor_map(boxed: tensor_map.Boxed, of: tensor_map.View) -> ptx.TensorMap:
    matrix, item = boxed.matrix, boxed.matrix.itemsize
    first = matrix.storage_offset() + of.offset // item
    return ptx.TensorMap(
        matrix.as_strided((of.rows, of.columns), (of.row_bytes // item, 1), first) if boxed.phases > 1 else matrix,
        box=(of.box.columns, of.box.rows),
        swizzle=boxed.box_bytes,
        sizes=(of.columns, of.rows),
        strides=(of.row_bytes,),
        to_tf32=boxed.to_tf32,
    )
