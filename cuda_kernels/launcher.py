"""Launching a rung's shared library on a GPU: what its C launcher is given, once for all calls that are alike."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import replace

import torch

from cuda_kernels import source, tensor_map
from gemm_ref.build import open_library
from gemm_ref.call import Launcher, Plan
from gemm_ref.call.streams import flags_for, stream_of
from gemm_ref.epilogue import Extras
from gemm_ref.launch import Launch
from gemm_ref.operands import pairs_with_padding
from gemm_ref.operands.split import Split

LEAST_FOR_EARLY = (9, 0)  # the compute capability from which on a kernel can start before its predecessor has ended
MOST_SHAPES = 32  # that a launcher caches, where they hold addresses


class _LaunchShape(ctypes.Structure):
    """`LaunchShape` of include/launch.cuh."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("raises_limit", ctypes.c_uint),
        ("partials", ctypes.c_void_p),
        ("flags", ctypes.c_void_p),
        ("shared_tiles", ctypes.c_int),
        ("then", ctypes.c_void_p),
        ("tensor_maps", ctypes.c_void_p),
        ("scales", ctypes.c_void_p * 2),
        ("bias", ctypes.c_void_p),
        ("addend", ctypes.c_void_p),
        ("addend_step", ctypes.c_int),
        ("alpha", ctypes.c_float),
        ("beta", ctypes.c_float),
        ("exponents", ctypes.c_void_p * 2),
        ("early", ctypes.c_uint),
        ("cluster", ctypes.c_uint),
    ]

    @classmethod
    def of(cls, launch: Launch) -> _LaunchShape:
        axes = ctypes.c_uint * 3
        blocks = axes(*launch.grid), axes(*launch.block)
        return cls(*blocks, launch.shared_bytes, raises_limit=True, early=launch.early, cluster=launch.cluster[0])


def prepare(plan: Plan, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, rules: tuple[str, ...] = ()) -> Launcher:
    """The launcher of a rung for tensors on a GPU (`gemm_ref.call.Prepare`); rules: of `rewritten.RULES`.

    Raises `gemm_ref.build.BuildError` without a compiler.
    """
    if not plan.implementation.stage.tma:
        return AddressLauncher(plan, c.device, plan.problem.m, plan.problem.n, rules)
    boxed, rows, columns = tensor_map.operands(plan, a, b, c)
    kind = PartsLauncher if plan.split else MapsLauncher
    return kind(plan, c.device, rows, columns, rules, tensor_map.for_gpu(boxed))


class AddressLauncher:
    """Starts a kernel that reads its matrices by their addresses, on their GPU and on its current stream.

    Several threads and streams may use one: what differs between two launches is never written into what they share.
    A call raises RuntimeError if the launch fails.
    """

    def __init__(self, plan: Plan, device: torch.device, rows: int, columns: int, rules: tuple[str, ...] = ()) -> None:
        capability = torch.cuda.get_device_capability(device)
        self._plan, self._index = plan, device.index
        self._launch = plan.launch if capability >= LEAST_FOR_EARLY else _in_turn(plan.launch)
        self._sizes = rows, columns, plan.problem.k
        library = open_library(source.library(plan.implementation, capability, rules))
        self._function, self._describe_error = library.launch, library.describe_error
        sizes, shape = [ctypes.c_int] * 3, ctypes.POINTER(_LaunchShape)
        self._function.argtypes = [*[ctypes.c_void_p] * 3, *sizes, shape, ctypes.c_void_p]
        self._describe_error.restype = ctypes.c_char_p
        self._shape_at = functools.lru_cache(maxsize=MOST_SHAPES)(self._make_shape)
        self._shape = None if self._launch.partials or plan.implementation.stage.tma else self._make_shape(0, 0)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras) -> None:
        if self._shape is not None:  # nothing of it differs between launches
            return self._start(a, b, c, self._shape)
        partials, flags = self._allocate(c)
        self._start(a, b, c, self._shape_at(_address(partials), _address(flags)))

    def _allocate(self, c: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Partial sums and flags for one launch; None where it has none."""
        count, flags = self._launch.partials, self._launch.flags
        partials = c.new_empty(count, dtype=torch.float32) if count else None
        return partials, flags_for(flags, self._index, stream_of(self._index)) if flags else None

    def _make_shape(self, partials: int, flags: int, *more: float) -> _LaunchShape:
        """What the C launcher is given beside matrices and sizes; all that differs between launches is an argument."""
        shape = _LaunchShape.of(self._launch)
        shape.partials, shape.flags, shape.shared_tiles = partials, flags, self._launch.shared_tiles
        if self._launch.then is not None:
            shape.second = _LaunchShape.of(self._launch.then)  # it lives as long as what points to it
            shape.then = ctypes.addressof(shape.second)
        return shape

    def _start(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, shape: _LaunchShape) -> None:
        if torch.cuda.current_device() != self._index:
            with torch.cuda.device(self._index):
                return self._start(a, b, c, shape)
        stream = stream_of(self._index)
        error = self._function(a.data_ptr(), b.data_ptr(), c.data_ptr(), *self._sizes, shape, stream)
        if error:
            reason, plan = self._describe_error(error).decode(), self._plan
            raise RuntimeError(f"{plan.implementation} did not start at {plan.problem} with {self._launch}: {reason}")
        shape.raises_limit = False  # the kernel keeps the limit; to set it again takes the host a microsecond


class MapsLauncher(AddressLauncher):
    """Starts a kernel whose matrices the TMA unit copies, with tensor maps of these."""

    def __init__(
        self, plan: Plan, device: torch.device, rows: int, columns: int, rules: tuple[str, ...],
        maps_at: Callable[..., ctypes.Array],
    ) -> None:  # fmt: skip
        super().__init__(plan, device, rows, columns, rules)
        self._maps_at, self._transpose_c = maps_at, plan.implementation.transpose_c
        self._has_epilogue = bool(plan.implementation.epilogue)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras) -> None:
        left, right = (b, a) if self._transpose_c else (a, b)
        partials, flags = self._allocate(c)
        matrices = left.data_ptr(), right.data_ptr(), c.data_ptr()
        more = _address(extras.scale_a), _address(extras.scale_b), *(_of_epilogue(extras) if self._has_epilogue else ())
        self._start(a, b, c, self._shape_at(_address(partials), _address(flags), *matrices, *more))

    def _make_shape(self, partials: int, flags: int, *more: float) -> _LaunchShape:
        shape = super()._make_shape(partials, flags)
        shape.maps = self._maps_at(*more[:3])  # they live as long as what points to them
        shape.tensor_maps = ctypes.addressof(shape.maps)
        self._fill(shape, more[3:])
        return shape

    def _fill(self, shape: _LaunchShape, more: tuple[float, ...]) -> None:
        shape.scales[:] = more[:2]
        if epilogue := more[2:]:
            shape.bias, shape.addend, shape.addend_step, shape.alpha, shape.beta = epilogue


class PartsLauncher(MapsLauncher):
    """Starts a kernel that multiplies the parts of its operands."""

    def __call__(self, a: Split, b: Split, c: torch.Tensor, extras: Extras) -> None:
        left, right = (b, a) if self._transpose_c else (a, b)
        partials, flags = self._allocate(c)
        matrices = left.parts.data_ptr(), right.parts.data_ptr(), c.data_ptr()
        exponents = a.exponents.data_ptr(), b.exponents.data_ptr()
        shape = self._shape_at(_address(partials), _address(flags), *matrices, *exponents)
        self._start(a.matrix, b.matrix, c, shape)

    def _fill(self, shape: _LaunchShape, more: tuple[float, ...]) -> None:
        shape.exponents[:] = more


def _in_turn(launch: Launch) -> Launch:
    """The launch for a GPU on which no kernel starts early."""
    return replace(launch, early=False, then=None if launch.then is None else _in_turn(launch.then))


def _address(x: torch.Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _of_epilogue(extras: Extras) -> tuple[float, ...]:
    """The last five fields of a shape."""
    step = 0 if extras.c is None else pairs_with_padding(extras.c).shape[1]
    return _address(extras.bias), _address(extras.c), step, extras.alpha, extras.beta or 0.0
