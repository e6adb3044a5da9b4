"""Launching again what Triton has compiled: past its look at every argument, with the same arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import triton_kernels
from gemm_ref import MATHS, Implementation, Problem, get_stage, make_inputs
from gemm_ref.call import Plan
from gemm_ref.call.choose import select_tile
from gemm_ref.epilogue import Extras
from gemm_ref.operands import as_layout
from tests.matrices import VECTORS

launcher = pytest.importorskip("triton_kernels.launcher", exc_type=ImportError)
LazyDict = pytest.importorskip("triton.compiler.compiler").LazyDict


def _recorded(kernel, given: list) -> None:
    """Have a kernel that was compiled without a GPU note what its launcher is called with."""
    kernel.module, kernel._run = object(), lambda *args: given.append(args)


@pytest.mark.parametrize(
    ("stage", "dialect", "math"),
    [
        ("s04", "triton", "fp32"),
        ("s09", "gluon", "fp32"),
        ("s13", "triton", "fp32"),
        ("s14", "triton", "fp32"),
        ("s16", "gluon", "bf16"),
        ("s17", "triton", "fp8"),
        ("s18", "gluon", "bf16"),
        ("s19", "triton", "tf32"),
        ("s19", "gluon", "bf16"),
    ],
)
def test_the_second_launch_is_what_triton_would_make_of_it(stage, dialect, math, monkeypatch):
    """A kernel's launcher is called as by Triton's own `kernel[grid](...)`, but with addresses for tensors."""
    from triton_kernels import without_gpu

    problem = Problem(*VECTORS, math)
    a, b = make_inputs(problem, "zeros")
    problem = replace(problem, b_layout=get_stage(stage).reads_b(math, dialect)[0])
    matrices = a, as_layout(b, problem.b_layout), torch.zeros(*VECTORS[:2], dtype=MATHS[math].out_dtype)
    extras = Extras(scale_a=torch.ones(1) if math == "fp8" else None)
    if "triton" in get_stage(stage).epilogues and dialect == "triton":
        extras = Extras(
            bias=torch.zeros(1, VECTORS[1]), c=torch.zeros(VECTORS[:2]), alpha=2.0, beta=3.0, activation="silu"
        )
    made = []

    class Prepared(launcher.Prepared):
        def __init__(self, *given, **more) -> None:
            super().__init__(*given, **more)
            made.append(self)

    monkeypatch.setattr(launcher, "Prepared", Prepared)
    monkeypatch.setattr(launcher.reference_gpu, "run", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    monkeypatch.setattr(launcher, "stream_of", lambda _: 7)
    monkeypatch.setattr(without_gpu.NoGpu, "get_current_stream", lambda *_: 7)
    rung = get_stage(stage)
    variant, epilogue = rung.find_variant("default", dialect), extras.epilogue(MATHS[math].out_dtype)
    implementation = Implementation(rung, variant, dialect, math, problem.b_layout, epilogue)
    plan = select_tile(Plan(implementation, problem), *matrices[:2])
    if plan.blocks is not None:
        plan = replace(plan, blocks=7)  # which share tiles, so that there is a second kernel
    triton_kernels.kernel_module(implementation).prepare(plan, *matrices)(*matrices, extras)
    named = dict(zip(("A", "B", "C", "partials"), (*matrices, torch.zeros(4)), strict=True))
    room = torch.zeros(4), torch.zeros(7, dtype=torch.int32)  # where a rung adds shares in its one kernel
    for prepared in made:
        given = []
        turned = "left" in prepared._names and plan.implementation.transpose_c
        a, b, c = matrices
        operands = (*((b, a) if turned else (a, b)), c, *room)[: len(prepared._names)]
        if not prepared._describe:
            operands = tuple(named[name] for name in prepared._names)
        described = operands if prepared._describe is None else (*prepared._describe(*operands[:3]), *operands[3:])
        more = prepared._of_extras(extras) if prepared._scaled else ()
        args = (*described, *prepared._sizes, *more)
        compiled = without_gpu.compiled(prepared._kernel, *args, grid=prepared._grid, **prepared._options)
        _recorded(compiled, given)
        with without_gpu._without_gpu():
            assert prepared._kernel[prepared._grid](*args, **prepared._options) is compiled
        again = prepared._launched(compiled, -1, args, described)
        others = tuple(torch.empty_like(x) for x in operands)
        for tensors in (operands, others):
            assert again(tensors, more) is compiled
        by_triton, same, other = given
        assert [_shown(x) for x in by_triton] == [_shown(x) for x in same]
        assert len(other) == len(same) and {id(x) for x in others}.isdisjoint(map(id, other))
        places = [place for place, x in enumerate(by_triton) if _address(x) in map(_address, operands)]
        assert len(places) == len(operands)
        assert [_address(other[place]) for place in places] == [x.data_ptr() for x in others]
    assert len(made) == (2 if stage in ("s13", "s14") else 1)


def _shown(x: object) -> object:
    """An argument of a launch, with an address for a tensor, and a descriptor as what its map is made of."""
    if hasattr(x, "block_shape"):
        return x.base.data_ptr(), x.base.dtype, *map(tuple, (x.shape, x.strides, x.block_shape)), x.padding
    if isinstance(x, torch.Tensor):
        return x.data_ptr()
    return x.data if isinstance(x, LazyDict) else x


def _address(x: object) -> object:
    shown = _shown(x)
    return shown[0] if isinstance(shown, tuple) and shown else shown
