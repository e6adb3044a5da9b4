"""A Python file's host code in a cage: here what its function is and returns, there the function itself.

Each launch comes back as PTX, arguments and memory, and runs on the reference GPU of this process, which alone sees it;
the memory goes back to the function as the kernel left it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from triton.runtime.cache import triton_key

import gemm_ref
from experiments.check import cage
from experiments.check.cage import Cage
from experiments.check.cage.channel import Answer
from experiments.check.python import functions, operands, project
from experiments.check.python.host import HostCall, open_host
from experiments.check.python.module import short
from experiments.check.python.stand_in import MODELS, Model, provide_command
from experiments.check.subject import Options, Scales, read_source
from gemm_ref import build, ptx
from gemm_ref.inputs import LINE
from triton_kernels import without_gpu
from triton_kernels.reference_gpu import Started

WITHOUT_TMA = (8, 9)  # the last of a GPU on which Triton makes ordinary accesses of a kernel's own descriptors
_MAX_LAUNCHES, _MAX_BLOCKS = 1 << 10, 1 << 24  # in a call, and in a launch: far more than the sizes of a check take
_FAILURES: dict[str, type[Exception]] = {each.__name__: each for each in (ValueError, TypeError)}


@dataclass
class _State:
    """What changes from call to call."""

    without_tma: bool = False  # kernels are compiled for a GPU that has no TMA
    selected: dict[str, dict[str, str]] = field(default_factory=dict)  # of kernels whose tuners failed: their values
    kernels: list[str] = field(default_factory=list)  # the PTX of what was launched


@dataclass(frozen=True)
class CagedCall:
    """The function of a file that launches; it is called in a cage."""

    cage: Cage = field(repr=False)
    path: Path
    options: Options
    name: str
    text: str  # the call, in a line
    roles: frozenset[str]
    parameters: frozenset[str]
    factors: tuple[str, ...]  # parameters that are passed ones
    is_kernel: bool  # no function of the file launches it on matrices that it is passed
    is_guess: bool  # the file does not launch that kernel at all
    square: bool
    has_columns: bool  # the tiles of a row of C may come along the first axis of the grid
    left_out: tuple[str, ...]  # the lines of statements that were not executed, and why
    by_columns: bool = False
    state: _State = field(default_factory=_State)

    @property
    def takes_vector(self) -> bool:
        return functions.VECTOR in self.roles

    @property
    def fills_c(self) -> bool:
        """Whether it writes into a C that is passed, and does not allocate one."""
        return "C" in self.roles

    @property
    def constants(self) -> tuple[str, ...]:
        """The names of -D."""
        return tuple(each.partition("=")[0] for each in self.options.define)

    @property
    def model(self) -> Model:
        """The GPU that it is told it has."""
        return MODELS[self.options.like]

    def run(
        self, form: operands.Form, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scales: Scales, dry: bool = False
    ) -> tuple[torch.Tensor, list[Started]]:
        """Calls the function on CPU tensors; returns C as it is stored, and what was launched. dry: nothing runs.

        Raises UsageError for an error of the function, and the first error of a launch.
        """
        failed: list[Exception] = []
        counted = itertools.count(1)

        def answer(data: Any, blobs: list[bytes]) -> tuple[str, object]:
            with self.cage.checked():
                kernel, launch, values, names, storages = self._read_launch(data, blobs)
            try:
                if next(counted) > _MAX_LAUNCHES or math.prod(launch.grid) > _MAX_BLOCKS:
                    raise ValueError(f"it launches more than {_MAX_LAUNCHES} kernels, or {_MAX_BLOCKS} blocks at once")
                loaded = replace(ptx.load(kernel), cubin=functools.cache(lambda: self._assemble(data["kernel"])))
                ptx.run(loaded, launch, values, names=names)
            except ptx.PtxError as error:
                failed.append(error)
                return "fault", str(error)
            except (ValueError, TypeError) as error:
                return type(error).__name__, str(error)
            return "ran", _changes(storages, blobs[len(blobs) - len(storages) :])

        memory = Memory()
        views = [memory.add(x) for x in (a, b, c)]
        how = (form, self.by_columns, self.state.without_tma, scales, dry)
        try:
            data, blobs = self.cage.call(_run, how, views, memory.bases, memory.contents(), answer=answer)
        finally:
            if failed:
                raise failed[0]
        with self.cage.checked():
            *contents, made = blobs[: len(data["changed"]) + 1]
            for index, content in zip(data["changed"], contents, strict=True):
                memory.write(index, content)
            for name, values in data["selected"].items():
                self.state.selected[name] = {key: str(value) for key, value in values.items()}
            texts = blobs[len(data["changed"]) + 1 :]
            started = [_read_started(each, text) for each, text in zip(data["started"], texts, strict=True)]
            return c if data["is_c"] else view(place([made], [0]), data["made"]), started
        raise AssertionError

    def open_here(self) -> HostCall:
        """Returns the function itself, of a file that is trusted, in this process: a GPU does not work in a fork."""
        host = open_host(self.path, self.options, build.CACHE / "triton")
        return host.by_columns() if self.by_columns else host

    def _read_launch(self, data: Any, blobs: list[bytes]) -> tuple[str, gemm_ref.Launch, list, list[str], list]:
        """Returns the PTX, the launch, its arguments with their names, and the storages that these lie in."""
        if data["kernel"] == len(self.state.kernels):
            self.state.kernels.append(blobs.pop(0).decode())
        storages = place(blobs, data["bases"])
        launch = gemm_ref.Launch(_three(data["grid"]), _three(data["block"]), int(data["shared"]))
        values = [_read_value(storages, *value) for value in data["values"]]
        return self.state.kernels[data["kernel"]], launch, values, list(map(str, data["names"])), storages

    def _assemble(self, kernel: int) -> bytes:
        return self.cage.call(_cubin, kernel)[1][0]


def open_caged(path: Path, options: Options) -> CagedCall:
    """Returns the function of the file that launches, in a cage of its own. Raises UsageError."""
    folder = build.CACHE / "checked" / build.digest(path.resolve(), read_source(path))
    with build.writing_cache():
        folder.mkdir(parents=True, exist_ok=True)
    provide_command(MODELS[options.like])
    triton_key()  # before the fork: Triton hashes its own library, 0.4 s, once in the process that asks first
    own = Cage(f"the code of {path.name}", folder, project.readable(path))
    data = own.call(_open, path, options, folder)[0]
    with own.checked():
        return CagedCall(
            cage=own,
            path=path,
            options=options,
            name=str(data["name"]),
            text=str(data["text"]),
            roles=frozenset(map(str, data["roles"])),
            parameters=frozenset(map(str, data["parameters"])),
            factors=tuple(map(str, data["factors"])),
            is_kernel=bool(data["is_kernel"]),
            is_guess=bool(data["is_guess"]),
            square=bool(data["square"]),
            has_columns=bool(data["has_columns"]),
            left_out=tuple(map(str, data["left_out"])),
        )
    raise AssertionError


def _three(axes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = map(operator.index, axes)
    return x, y, z


def _read_started(data: Any, ttir: bytes) -> Started:
    constants = {str(name): value for name, value in data["constants"].items()}
    foreign = tuple(map(str, data["foreign"]))
    return Started(str(data["kernel"]), constants, _three(data["grid"]), int(data["shared"]), ttir.decode(), foreign)


def _read_value(storages: Sequence[torch.Tensor], kind: str, *parts: Any) -> Any:
    """Returns an argument of a launch, as `_value` describes it."""
    if kind == "tensor":
        return view(storages, parts[0])
    if kind == "pointers":
        return ptx.Pointers(tuple(view(storages, each) for each in parts[0]), tuple(map(str, parts[1])))
    if kind == "map":
        tensor, box, swizzle, sizes, strides, to_tf32 = parts
        return ptx.TensorMap(view(storages, tensor), box, swizzle, sizes, strides, bool(to_tf32))
    if type(parts[0]) not in (int, float):
        raise ValueError(f"{kind} {parts[0]}")
    return parts[0]


# --- memory, as both sides send it -----------------------------------------------------------------------------------


class Memory:
    """The storages that tensors lie in, each once."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}

    @property
    def bases(self) -> list[int]:
        """Where each begins in a cache line, which kernels are compiled and counted by."""
        return [address % LINE for address in self._storages]

    def add(self, x: torch.Tensor) -> list:
        """Returns a tensor as data: its storage, type, shape, strides and first element."""
        storage = x.untyped_storage()
        if storage.device.type != "cpu":
            raise ValueError(f"a tensor of {tuple(x.shape)} is not on the CPU, but on {storage.device}")
        self._storages.setdefault(storage.data_ptr(), storage)
        number = list(self._storages).index(storage.data_ptr())
        return [number, str(x.dtype).rpartition(".")[2], list(x.shape), list(x.stride()), x.storage_offset()]

    def contents(self) -> list[bytes]:
        return [ctypes.string_at(address, storage.nbytes()) for address, storage in self._storages.items()]

    def write(self, number: int, content: bytes) -> None:
        address, storage = list(self._storages.items())[number]
        if storage.nbytes() != len(content):
            raise ValueError(f"{len(content)} bytes for {storage.nbytes()}")
        ctypes.memmove(address, content, len(content))


def place(contents: Sequence[bytes], bases: Sequence[int]) -> list[torch.Tensor]:
    """Returns each content as bytes in memory of its own, which begins at that place of a cache line."""
    found = []
    for content, base in zip(contents, bases, strict=True):
        room = np.empty(len(content) + 2 * LINE, np.uint8)
        first = (operator.index(base) - room.ctypes.data) % LINE
        room[first : first + len(content)] = np.frombuffer(content, np.uint8)
        found.append(torch.from_numpy(room[first : first + len(content)]))
    return found


def view(storages: Sequence[torch.Tensor], data: Sequence[Any]) -> torch.Tensor:
    """Returns the tensor that `Memory.add` has described. Raises RuntimeError where it leaves its storage."""
    number, dtype, shape, strides, offset = data
    if not isinstance(kind := getattr(torch, dtype), torch.dtype):
        raise ValueError(f"{dtype} is no type")
    return storages[number].view(kind).as_strided(shape, strides, offset)


def _changes(storages: Sequence[torch.Tensor], before: Sequence[bytes]) -> list[bytes | None]:
    after = [each.numpy().tobytes() for each in storages]
    return [now if now != then else None for now, then in zip(after, before, strict=True)]


# --- in the cage -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sent:
    """A kernel of the cage, which is decoded by whoever runs it."""

    text: str
    cubin: Callable[[], bytes] = bytes


_host: HostCall | None = None
_kernels: dict[str, _Sent] = {}


def _open(path: Path, options: Options, folder: Path) -> Answer:
    global _host
    for own in (build, without_gpu):
        vars(own)["CACHE"] = folder  # the only one that may be written to
    ptx.load, ptx.run = _Sent, _launch  # type: ignore[assignment]
    _host = open_host(path, options, folder)
    launcher, reasons = _host.launcher, _host.module.reasons
    return {
        "name": launcher.name,
        "text": str(launcher),
        "roles": sorted(launcher.roles),
        "parameters": [each.name for each in launcher.arguments],
        "factors": [each.name for each in launcher.arguments if each.role in functions.FACTORS],
        "is_kernel": launcher.is_kernel,
        "is_guess": launcher.is_guess,
        "square": launcher.square,
        "has_columns": launcher.by_columns is not None,
        "left_out": [f"line {each.line} ({short(each.why)})" for each in reasons],
    }, []


def _run(
    how: tuple[operands.Form, bool, bool, Scales, bool], views: list, bases: list[int], contents: list[bytes]
) -> Answer:
    """Calls the function; returns what it has changed and launched, and C if it is another one."""
    assert _host
    form, by_columns, without_tma, scales, dry = how
    host = _host.by_columns() if by_columns else _host
    if without_tma:
        host.stand_in.compiled_for = WITHOUT_TMA
    storages = place(contents, bases)
    a, b, c = (view(storages, each) for each in views)
    made, started = host.run(form, a, b, c, scales, dry)
    is_c = made.untyped_storage().data_ptr() == c.untyped_storage().data_ptr()
    memory = Memory()
    about = None if is_c else memory.add(made := made.contiguous().clone())
    changes = _changes(storages, contents)
    selected = {each.name: each.selected for each in host.module.untuned if each.selected}
    data = {
        "is_c": is_c,
        "made": about,
        "changed": [number for number, content in enumerate(changes) if content is not None],
        "selected": {name: {key: repr(value) for key, value in values.items()} for name, values in selected.items()},
        "started": [
            {
                "kernel": each.kernel,
                "constants": {name: _plain(value) for name, value in each.constants.items()},
                "grid": [int(axis) for axis in each.grid],
                "shared": each.shared_bytes,
                "foreign": each.foreign,
            }
            for each in started
        ],
    }
    own = memory.contents() or [b""]
    changed = [content for content in changes if content is not None]
    return data, changed + own + [each.ttir.encode() for each in started]


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str) else None


def _cubin(number: int) -> Answer:
    return None, [list(_kernels.values())[number].cubin()]


def _launch(kernel: _Sent, launch: gemm_ref.Launch, args: Sequence[Any], *_: object, names: Sequence[str] = ()) -> None:
    """Has a launch run outside, in the place of `ptx.run`."""
    memory, blobs = Memory(), []
    values = [_value(memory, each) for each in args]
    if kernel.text not in _kernels:
        _kernels[kernel.text] = kernel
        blobs.append(kernel.text.encode())
    data = {
        "kernel": list(_kernels).index(kernel.text),
        "grid": [operator.index(axis) for axis in launch.grid],
        "block": launch.block,
        "shared": launch.shared_bytes,
        "values": values,
        "names": list(names),
        "bases": memory.bases,
    }
    outcome, reply = cage.ask(data, blobs + memory.contents())
    if outcome != "ran":
        raise _FAILURES.get(outcome, ptx.PtxError)(reply)
    for number, content in enumerate(reply):
        if content is not None:
            memory.write(number, content)


def _value(memory: Memory, value: Any) -> list:
    """An argument as data."""
    if isinstance(value, torch.Tensor):
        return ["tensor", memory.add(value)]
    if isinstance(value, ptx.Pointers):
        return ["pointers", [memory.add(each) for each in value.tensors], list(value.names)]
    if isinstance(value, ptx.TensorMap):
        about = list(value.box), value.swizzle, list(value.sizes), list(value.strides), value.to_tf32
        return ["map", memory.add(value.tensor), *about]
    if isinstance(value, np.number):
        value = value.item()
    if not isinstance(value, int | float):
        raise ValueError(f"a kernel takes tensors and numbers, and was given a {type(value).__name__}")
    return ["number", int(value) if isinstance(value, int) else float(value)]
