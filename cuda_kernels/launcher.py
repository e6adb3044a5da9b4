"""Launching a rung's shared library on a GPU: what its C launcher is given, once for all calls that are alike."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import replace

import torch

from cuda_kernels import source, tensor_map
from gemm_ref.build import open_library
from gemm_ref.call import Call
from gemm_ref.call.flags import flags_for
from gemm_ref.call.plan import Launcher, stream_of
from gemm_ref.epilogue import Extras
from gemm_ref.launch import Launch
from gemm_ref.operands import whole_pairs
from gemm_ref.operands.split import Split

LEAST_FOR_EARLY = (9, 0)  # the compute capability from which on a kernel can start before its predecessor has ended
MOST_SHAPES = 32  # that a launcher keeps, where they hold addresses


class _LaunchShape(ctypes.Structure):
    """`LaunchShape` of include/launch.cuh."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("asks", ctypes.c_uint),
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
        return cls(*blocks, launch.shared_bytes, asks=True, early=launch.early, cluster=launch.cluster[0])


def prepare(call: Call, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, rules: tuple[str, ...] = ()) -> Launcher:
    """The launcher of a rung for tensors on a GPU (`gemm_ref.call.plan.Prepare`); rules: of `rewritten.RULES`.

    It may be used by several threads and on several streams: what differs between two launches is never written into
    what they share. Raises `gemm_ref.build.BuildError` without a compiler, and the launcher RuntimeError if the launch
    fails.
    """
    launch = _in_turn(call.launch) if torch.cuda.get_device_capability(c.device) < LEAST_FOR_EARLY else call.launch
    if isinstance(a, Split):
        return _prepare_in_parts(call, launch, a, b, c, rules)
    if call.implementation.stage.tma:
        boxed, rows, columns = tensor_map.operands(call, a, b, c)
        turned, maps_at = boxed[0].matrix is not a, tensor_map.for_gpu(boxed)
        start, shape_at = _start(call, a.device, rows, columns, rules), _shape_with_maps(launch, maps_at)
        room_for, finishes = _room(launch, a.device.index), bool(call.implementation.epilogue)

        def launch_with_maps(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras) -> None:
            left, right = (b, a) if turned else (a, b)
            room, about = room_for(c), _of_epilogue(extras) if finishes else ()
            matrices = left.data_ptr(), right.data_ptr(), c.data_ptr()
            start(a, b, c, shape_at(*matrices, *_addresses(extras[:2]), *_addresses(room), *about))

        return launch_with_maps

    start = _start(call, a.device, call.problem.m, call.problem.n, rules)
    if launch.partials:
        shape_at, room_for = _shape_with_partials(launch), _room(launch, a.device.index)

        def launch_with_partials(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, extras: Extras) -> None:
            room = room_for(c)
            start(a, b, c, shape_at(*_addresses(room)))

        return launch_with_partials
    shape = _LaunchShape.of(launch)
    return lambda a, b, c, extras: start(a, b, c, shape)


def _prepare_in_parts(
    call: Call, launch: Launch, a: Split, b: Split, c: torch.Tensor, rules: tuple[str, ...]
) -> Launcher:
    boxed, rows, columns = tensor_map.operands(call, a, b, c)
    turned = call.implementation.transpose_c
    shape_at = _shape_with_maps(launch, tensor_map.for_gpu(boxed))
    start, room_for = _start(call, c.device, rows, columns, rules), _room(launch, c.device.index)

    def launch_in_parts(a: Split, b: Split, c: torch.Tensor, extras: Extras) -> None:
        left, right = (b, a) if turned else (a, b)
        room = room_for(c)
        matrices = left.parts.data_ptr(), right.parts.data_ptr(), c.data_ptr()
        lines = a.exponents.data_ptr(), b.exponents.data_ptr()
        start(a.whole, b.whole, c, shape_at(*matrices, 0, 0, *_addresses(room), *lines))

    return launch_in_parts


def _in_turn(launch: Launch) -> Launch:
    """The launch for a GPU on which no kernel starts early."""
    return replace(launch, early=False, then=None if launch.then is None else _in_turn(launch.then))


Room = tuple[torch.Tensor | None, torch.Tensor | None]


def _room(launch: Launch, device: int) -> Callable[[torch.Tensor], Room]:
    """What gives a launch its partial sums and its flags; None where it has none."""

    def room_for(c: torch.Tensor) -> Room:
        partials = c.new_empty(launch.partials, dtype=torch.float32) if launch.partials else None
        return partials, flags_for(launch.flags, device, stream_of(device)) if launch.flags else None

    return room_for


def _addresses(tensors: Room) -> tuple[int, ...]:
    return tuple(0 if x is None else x.data_ptr() for x in tensors)


def _of_epilogue(extras: Extras) -> tuple[float, ...]:
    """The last five fields of a shape."""
    step = 0 if extras.c is None else whole_pairs(extras.c).shape[1]
    return *_addresses((extras.bias, extras.c)), step, extras.alpha, extras.beta or 0.0


def _shape_with_partials(launch: Launch) -> Callable[[int, int], _LaunchShape]:
    @functools.lru_cache(maxsize=MOST_SHAPES)
    def shape_at(partials: int, flags: int) -> _LaunchShape:
        shape = _LaunchShape.of(launch)
        shape.partials, shape.flags = partials, flags
        if launch.then is not None:
            shape.kept = _LaunchShape.of(launch.then)  # it lives as long as what points to it
            shape.then = ctypes.addressof(shape.kept)
        return shape

    return shape_at


def _shape_with_maps(launch: Launch, maps_at: Callable[[int, int, int], ctypes.Array]) -> Callable[..., _LaunchShape]:
    @functools.lru_cache(maxsize=MOST_SHAPES)
    def shape_at(left: int, right: int, result: int, *more: float) -> _LaunchShape:
        shape, maps = _LaunchShape.of(launch), maps_at(left, right, result)
        shape.tensor_maps, shape.scales[:] = ctypes.addressof(maps), more[:2]
        shape.partials, shape.flags = more[2:4]
        if len(more) == 6:
            shape.exponents[:] = more[4:]
        elif of_epilogue := more[4:]:
            shape.bias, shape.addend, shape.addend_step, shape.alpha, shape.beta = of_epilogue
        shape.shared_tiles = launch.shared_tiles
        shape.kept = maps
        return shape

    return shape_at


def _start(call: Call, device: torch.device, rows: int, columns: int, rules: tuple[str, ...]) -> Callable[..., None]:
    """`start(a, b, c, shape)` calls the C launcher on the device and on its current stream."""
    implementation, problem, launch = call.implementation, call.problem, call.launch
    library = open_library(source.library(implementation, torch.cuda.get_device_capability(device), rules))
    function, describe_error = library.launch, library.describe_error
    sizes, shape = [ctypes.c_int] * 3, ctypes.POINTER(_LaunchShape)
    function.argtypes = [*[ctypes.c_void_p] * 3, *sizes, shape, ctypes.c_void_p]
    describe_error.restype = ctypes.c_char_p
    index, depth = device.index, problem.k

    def start(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, shape: _LaunchShape) -> None:
        if torch.cuda.current_device() != index:
            with torch.cuda.device(index):
                return start(a, b, c, shape)
        stream = stream_of(index)
        error = function(a.data_ptr(), b.data_ptr(), c.data_ptr(), rows, columns, depth, shape, stream)
        if error:
            reason = describe_error(error).decode()
            raise RuntimeError(f"{implementation} did not start at {problem} with {launch}: {reason}")
        shape.asks = False  # it has been answered; asking again takes the host a microsecond

    return start
