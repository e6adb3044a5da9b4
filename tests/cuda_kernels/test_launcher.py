"""What a rung's C launcher is given on a GPU, seen by a library that launches nothing."""

from __future__ import annotations

import ctypes
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import gemm_ref
from cuda_kernels import launcher, source, tensor_map
from gemm_ref import Problem, make_inputs
from gemm_ref.call import driver
from gemm_ref.call.validate import validate
from gemm_ref.config import Box
from gemm_ref.epilogue import Extras
from gemm_ref.launch import cdiv
from tests.driver import Driver

STREAM = 7


class _Library:
    """The two functions of a rung's library; `launch` notes what it is called with, and fails with `error`."""

    def __init__(self) -> None:
        self.given, self.error = [], 0
        self.launch = self._Function(lambda *given: self.given.append(given) or self.error)
        self.describe_error = self._Function(lambda error: f"error {error}".encode())

    class _Function:
        def __init__(self, function) -> None:
            self._function = function

        def __call__(self, *given):
            return self._function(*given)


@pytest.fixture
def library(monkeypatch) -> _Library:
    """In place of what nvcc would build; CPU tensors stand for those of a GPU."""
    made = _Library()
    monkeypatch.setattr(source, "library", lambda *_: "no file")
    monkeypatch.setattr(launcher, "open_library", lambda _: made)
    monkeypatch.setattr(launcher, "stream_of", lambda _: STREAM)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # the index of the CPU
    monkeypatch.setattr(tensor_map, "_encode", lambda address, *_: address.to_bytes(8, "little").ljust(128, b"\0"))
    return made


def _prepared(stage: str, problem: Problem):
    a, b = make_inputs(problem)
    c = torch.empty(problem.m, problem.n, dtype=gemm_ref.MATHS[problem.math].out_dtype)
    call = validate(a, b, c, stage=stage, math=problem.math)
    implementation = replace(call.implementation, b_layout=problem.b_layout)
    call = replace(call, problem=problem, implementation=implementation)
    return launcher.prepare(call, a, b, c), call, (a, b, c)


def _pointers(*tensors) -> tuple[int, ...]:
    return tuple(x.data_ptr() for x in tensors)


def test_one_kernel(library):
    start, call, first = _prepared("s08", Problem(300, 200, 100))
    others = tuple(torch.empty_like(x) for x in first)
    for matrices in (first, others):
        start(*matrices, Extras())
        *given, shape, stream = library.given.pop()
        assert tuple(given) == (*_pointers(*matrices), 300, 200, 100) and stream == STREAM
        assert (tuple(shape.grid), tuple(shape.block)) == (call.launch.grid, call.launch.block)
        assert not (shape.partials or shape.then or shape.tensor_maps or shape.scales[0] or shape.scales[1])


def test_partial_sums_have_room_of_their_own_in_each_call(library, monkeypatch):
    start, call, matrices = _prepared("s13", Problem(128, 128, 4096))
    rooms = []

    def new_empty(c, size, dtype=None):
        assert (size, dtype, c.data_ptr()) == (call.launch.partials, torch.float32, matrices[2].data_ptr())
        rooms.append(c.new_zeros(size))
        return rooms[-1]

    monkeypatch.setattr(torch.Tensor, "new_empty", new_empty)
    for _ in range(2):
        start(*matrices, Extras())
    shapes = [shape for *_, shape, _ in library.given]
    assert [shape.partials for shape in shapes] == list(_pointers(*rooms)) and len(set(_pointers(*rooms))) == 2
    then = ctypes.cast(shapes[0].then, ctypes.POINTER(launcher._LaunchShape)).contents
    assert tuple(then.grid) == call.launch.then.grid == (cdiv(128 * 128, 256), 1, 1)


@pytest.mark.parametrize("stage", ["s17", "s18"])
@pytest.mark.parametrize("math", ["bf16", "tf32"])
def test_tensor_maps_are_of_the_matrices_of_each_call(library, stage, math):
    problem = Problem(256, 512, 64, math, "nk" if stage == "s17" and math == "tf32" else "kn")
    start, _, first = _prepared(stage, problem)
    others = tuple(torch.empty_like(x) for x in first)
    kept = []
    for matrices in (first, others, first):
        extras = Extras(scale_a=torch.tensor(2.0))
        start(*matrices, extras)
        *_, rows, columns, depth, shape, _ = library.given.pop()
        turned = stage == "s18" and math == "tf32"
        assert (rows, columns, depth) == ((512, 256, 64) if turned else (256, 512, 64))
        addresses = _maps(shape)
        a, b, c = _pointers(*matrices)
        assert addresses == ((b, a, c) if turned else (a, b, c)) and shape.tensor_maps % 64 == 0
        assert (shape.scales[0], shape.scales[1]) == (extras.scale_a.data_ptr(), None)
        kept.append((shape, addresses))
    assert all(_maps(shape) == addresses for shape, addresses in kept), "a launch changed what another was given"


@pytest.mark.parametrize("stage", ["s08", "s13", "s17", "s18", "s19"])
def test_a_launcher_keeps_no_matrix(library, stage):
    """It is kept with the plan of its call: what it held could not be used again, of the largest product that ran."""
    start, _, matrices = _prepared(stage, Problem(256, 512, 4096, "fp32" if stage < "s15" else "bf16"))
    start(*matrices, Extras())
    held = [weakref.ref(x) for x in matrices]
    del matrices
    assert [x() for x in held] == [None] * 3


@pytest.fixture
def libcuda(monkeypatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(driver, "library", lambda: made)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    return made


@pytest.mark.parametrize("columns, begins, promotion", [(1024, 0, 3), (1024, 8, 2), (1000, 0, 2)])
def test_the_cache_completes_two_lines_where_rows_begin_at_one(libcuda, columns, begins, promotion):
    tensor_map._encode.__wrapped__(1024 + 2 * begins, 9, 64, columns, 2 * columns, Box(64, 64), 3)
    assert [given[-2] for given in libcuda.encoded] == [promotion]


def test_a_thread_without_a_context_encodes_tensor_maps(libcuda):
    """As the thread in which autograd runs a backward pass may be."""
    boxed = tensor_map.Boxed(torch.zeros(64, 64, dtype=torch.bfloat16), Box(64, 64))
    with ThreadPoolExecutor(1) as thread:
        assert len(thread.submit(tensor_map.for_gpu((boxed,)), 1 << 20).result()) == tensor_map.MAP_BYTES
    assert len(libcuda.encoded) == 1 and not libcuda.has_context()


def _maps(shape) -> tuple[int, ...]:
    words = ctypes.cast(shape.tensor_maps, ctypes.POINTER(ctypes.c_uint64))
    return words[0], words[16], words[32]


def test_an_error_is_told(library):
    start, _, matrices = _prepared("s08", Problem(300, 200, 100))
    library.error = 98
    with pytest.raises(RuntimeError, match=r"s08_vectorized-cuda-fp32 did not start at 300x200x100.*grid.*: error 98"):
        start(*matrices, Extras())


def test_another_gpu_than_the_current_one(library, monkeypatch):
    now = SimpleNamespace(index=1)

    class Device:
        def __init__(self, index) -> None:
            self.index = index

        def __enter__(self):
            self.before, now.index = now.index, self.index

        def __exit__(self, *_):
            now.index = self.before

    monkeypatch.setattr(torch.cuda, "current_device", lambda: now.index)
    monkeypatch.setattr(torch.cuda, "device", Device)
    start, _, matrices = _prepared("s08", Problem(300, 200, 100))
    start(*matrices, Extras())
    assert len(library.given) == 1 and now.index == 1
