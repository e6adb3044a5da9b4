"""Launching again what Triton has compiled: past its look at every argument, with the same arguments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch.utils._pytree import tree_leaves

import triton_kernels
from gemm_ref import MATHS, Implementation, Problem, get_stage, make_inputs
from gemm_ref.call import Plan, driver
from gemm_ref.call.choose import select_tile
from gemm_ref.epilogue import Extras
from gemm_ref.operands import as_layout
from tests.driver import Driver
from tests.matrices import VECTORS

launcher = pytest.importorskip("triton_kernels.launcher", exc_type=ImportError)

import triton  # noqa: E402
from triton.backends.nvidia import driver as nvidia  # noqa: E402
from triton.compiler.compiler import LazyDict  # noqa: E402
from triton.knobs import HookChain  # noqa: E402

from triton_kernels import without_gpu  # noqa: E402


class _Recorder:
    """The C functions of Triton's driver, which record what they are given; Triton's launcher is its own."""

    def __init__(self) -> None:
        self.launches: list[tuple] = []
        self.maps = 0
        self.driver = Driver()
        self.utils = mock.Mock(build_signature_metadata=repr)
        self.utils.launch.side_effect = lambda *args: self.launches.append(args)
        for name in ("fill_tma_descriptor", "fill_tma_descriptor_tiled"):  # of Triton 3.6, and of newer ones
            getattr(self.utils, name).side_effect = self._make_map

    def _make_map(self, *args: object) -> tuple:
        assert self.driver.has_context(), "the driver encodes no tensor map in this thread"
        self.maps += 1
        return "map", *(list(x) if isinstance(x, list | tuple) else x for x in args)

    def load(self, kernel) -> None:
        """Gives a kernel that was compiled without a GPU its launcher, as loading it on a GPU does."""
        kernel.module, kernel._run = object(), nvidia.CudaLauncher(kernel.src, kernel.metadata)


@pytest.fixture
def recorder(monkeypatch) -> _Recorder:
    found = _Recorder()
    monkeypatch.setattr(without_gpu.NoGpu, "utils", found.utils, raising=False)
    monkeypatch.setattr(without_gpu.NoGpu, "get_current_stream", lambda *_: 7)
    monkeypatch.setattr(triton.runtime.driver, "_active", without_gpu.NoGpu((9, 0)))
    # Triton 3.6 compiles a C function for each signature; newer ones annotate the arguments of a single one.
    library = mock.Mock(launch=found.utils.launch)
    monkeypatch.setattr(nvidia, "library_dirs", list)  # which looks for a GPU's libraries
    monkeypatch.setattr(nvidia, "compile_module_from_src", lambda **_: library, raising=False)
    monkeypatch.setattr(nvidia, "PyKernelArg", lambda **about: tuple(about.values()), raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    monkeypatch.setattr(driver, "library", lambda: found.driver)
    monkeypatch.setattr(launcher, "stream_of", lambda _: 7)
    return found


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
def test_the_second_launch_is_what_triton_would_make_of_it(stage, dialect, math, recorder, monkeypatch):
    """Triton's C function is called as by its own `kernel[grid](...)`, but with addresses for tensors."""
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
        recorder.launches.clear()
        turned = "left" in prepared._names and plan.implementation.transpose_c
        a, b, c = matrices
        left, right = (b, a) if turned else (a, b)
        count = 1 + prepared.describes_right_twice
        operands = (left, *(right,) * count, c, *room)[: len(prepared._names)]
        if not prepared._describe:
            operands = tuple(named[name] for name in prepared._names)
        described = (
            operands
            if prepared._describe is None
            else (*prepared._describe(*operands[: 2 + count]), *operands[2 + count :])
        )
        more = prepared._of_extras(extras) if prepared._scaled else ()
        args = (*described, *prepared._sizes, *more)
        compiled = without_gpu.compiled(prepared._kernel, *args, grid=prepared._grid, **prepared._options)
        recorder.load(compiled)
        driver.bind_context()
        with without_gpu._without_gpu():
            assert prepared._kernel[prepared._grid](*args, **prepared._options) is compiled
        again = prepared._launched(compiled, -1, args, described)
        others = tuple(torch.empty_like(x) for x in operands)
        with ThreadPoolExecutor(1) as thread:  # which has no context yet
            for tensors in (operands, others):
                assert thread.submit(again, tensors, more).result() is compiled
        assert not any(isinstance(x, torch.Tensor) for x in tree_leaves(recorder.launches[1:]))  # which it would keep
        by_triton, same, other = map(_flat, recorder.launches)
        assert by_triton == same and len(other) == len(same)
        places = [place for place, x in enumerate(by_triton) if x in {x.data_ptr() for x in operands}]
        assert len(places) == len(operands)
        assert [other[place] for place in places] == [x.data_ptr() for x in others]
        maps = recorder.maps
        again(others, more)
        assert _flat(recorder.launches[-1]) == other and recorder.maps == maps  # which are not made again
        assert not any(isinstance(x, HookChain) for x in recorder.launches[-1])
        with monkeypatch.context() as hooked:
            hooked.setattr(triton.knobs.runtime.launch_exit_hook, "calls", [print])
            again(others, more)
        assert any(isinstance(x, HookChain) for x in recorder.launches[-1])  # Triton calls it, for a profiler
        assert _flat(recorder.launches[-1]) == other
    assert len(made) == (2 if stage in ("s13", "s14") else 1)


def _flat(args: tuple) -> list:
    """The arguments of a C launch in a row, with an address for a tensor; the metadata and the hooks of none."""
    found = []
    for x in args:
        if isinstance(x, list | tuple):
            found += _flat(x)
        elif isinstance(x, torch.Tensor):
            found.append(x.data_ptr())
        else:
            found.append(None if isinstance(x, LazyDict | HookChain) else x)
    return found
