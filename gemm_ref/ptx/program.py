"""`load` PTX text and `run` it: select the kernel, decode it once, and execute the grid in batches of blocks."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gemm_ref.launch import REFERENCE_SMS, Launch
from gemm_ref.ptx.core.coordinates import ENVIRONMENT, block_order, check_shape
from gemm_ref.ptx.core.decode import Decoder
from gemm_ref.ptx.core.events import Observer, selected_places, watching
from gemm_ref.ptx.core.machine import DecodedKernel, Machine, Operation
from gemm_ref.ptx.core.memory import GlobalMemory
from gemm_ref.ptx.isa.matrix.wgmma import unpack_after_waits
from gemm_ref.ptx.isa.numbers.fused import attach_runs, contract
from gemm_ref.ptx.isa.table import decode
from gemm_ref.ptx.text.dtypes import DTYPES, UNSIGNED
from gemm_ref.ptx.text.errors import LaunchFault, ParseError
from gemm_ref.ptx.text.parser import MAP_BYTES, TENSOR_MAP, parse
from gemm_ref.ptx.units.async_copies import AsyncCopies, BulkCopies
from gemm_ref.ptx.units.barriers import ClusterBarrier, Reductions
from gemm_ref.ptx.units.mbarriers import MBarriers
from gemm_ref.ptx.units.tensor_map import TensorMap
from gemm_ref.ptx.units.tile import Tile
from gemm_ref.ptx.units.warpgroups import Warpgroups
from gemm_ref.ptx.units.warps import Warps

UNITS = (MBarriers, Reductions, BulkCopies, ClusterBarrier, Warps, Warpgroups, AsyncCopies)  # of every machine
_THREADS_OF_AN_SM = 2048
# Lanes per batch: enough to hide NumPy's overhead per call, few enough for the cache.
BATCH_LANES = 1 << 16


@dataclass(frozen=True)
class Struct:
    """An argument passed by value: its fields as (offset in bytes, type such as `s32`, tensor or number).

    A pointer is a `u64` field with a tensor; a half is `Struct(((0, "f16", 1.5),))`. names: what messages call the
    tensors, by their offsets.
    """

    fields: tuple[tuple[int, str, torch.Tensor | int | float], ...]
    names: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Pointers:
    """An argument that points to an array of addresses, those of these tensors; names: what messages call them."""

    tensors: tuple[torch.Tensor, ...]
    names: tuple[str, ...]


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection in this context: it would traverse all new objects again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@functools.lru_cache(maxsize=64)  # each of some megabytes
@without_collection()
def load(text: str, entry: str | None = None) -> DecodedKernel:
    """Parse and decode PTX text; `entry` names the kernel where the module holds several.

    Raises ParseError for text that is not PTX, and Unsupported for an instruction the reference GPU lacks, naming
    it and its source line.
    """
    entries = _parse_cached(text)
    if entry is None and len(entries) > 1:
        raise ParseError(f"the module holds several kernels, name one: {', '.join(entries)}")
    if entry is not None and entry not in entries:
        raise ParseError(f"the module has no kernel {entry}; it has {', '.join(entries)}")
    chosen = entries[entry] if entry else next(iter(entries.values()))
    chosen = replace(chosen, instructions=unpack_after_waits(chosen))
    decoder = Decoder(chosen)
    operations: list[Operation] = []
    for part in (*decoder.functions.values(), decoder):
        operations += attach_runs(part, [decode(part, instruction) for instruction in contract(part.entry)])
    return DecodedKernel(
        entry=chosen,
        static_shared=decoder.static_shared,
        dynamic_shared=decoder.dynamic_shared,
        operations=tuple(operations),
        registers=tuple(decoder.slots),
        first=decoder.first,
        local_bytes=decoder.local_bytes,
        functions={name: decoder.code_address(name) for name in decoder.functions},
        instructions=tuple(operation.instruction for operation in operations),
        cooperates=any(ENVIRONMENT in operation.instruction.text for operation in operations),
    )


@functools.lru_cache(maxsize=256)
def entries(text: str, called: str | None = None) -> tuple[str, ...]:
    """Return the names of the kernels in PTX text, in its order; only those that the source calls `called`, if any.

    A name in PTX is the source's, or the source's with C++'s mangling around it: its length before it, and behind it
    template arguments or parameters. Raises ParseError for text that is not PTX.
    """
    return tuple(name for name in _parse_cached(text) if called is None or is_called(name, called))


def is_called(entry: str, name: str) -> bool:
    """Return whether `entry` in PTX is the kernel `name` of the source, or an instance of that template."""
    return name in (entry, demangled(entry))


def demangled(entry: str) -> str:
    """Return the function in a mangled name: `gemm` of `_ZN3lab4gemmILi8EEvPf`, which is `lab::gemm<8>(float*)`."""
    nested = entry.startswith("_ZN")
    name, rest = "", entry.removeprefix("_ZN" if nested else "_Z")
    while head := re.match(r"L?(\d+)", rest):
        last = head.end() + int(head[1])
        name, rest = rest[head.end() : last], rest[last:]
        if not nested:
            break
    return name


_parse_cached = functools.lru_cache(maxsize=8)(parse)  # a module's kernels are loaded one by one


def run(
    kernel: DecodedKernel,
    launch: Launch,
    args: Sequence[torch.Tensor | Pointers | TensorMap | tuple[TensorMap, ...] | Struct | int | float],
    observers: Sequence[Observer] = (),
    names: Sequence[str] = (),
) -> int:
    """Run a kernel over the whole grid; tensors are read and written in place.

    args: one for each parameter: contiguous CPU tensors for pointers, Pointers for a pointer to pointers, a TensorMap
    for a CUtensorMap, a tuple for an array of them, a Struct for what is passed by value. names: what messages call
    them. The observers of a `watched` around the call see it too.
    Returns the number of instructions executed (each once for a batch of blocks in lockstep). Raises PtxError at the
    first fault, naming the source line and the thread, and ValueError for arguments that do not fit the kernel.
    """
    entry = kernel.entry
    if len(args) != len(entry.parameters):
        raise ValueError(f"{kernel.name} takes {len(entry.parameters)} arguments and was given {len(args)}")
    memory = GlobalMemory()
    parameters: list[list[Tile] | np.generic | np.ndarray] = []
    for index, ((parameter, kind), value) in enumerate(zip(entry.parameters, args, strict=True)):
        name = names[index] if index < len(names) else f"tensor argument {index}"
        if not isinstance(value, _accepted_types(kind)) and not _are_maps(value, kind):
            raise ValueError(
                f"{kernel.name} takes for {parameter} (argument {index}) a {kind}, and was given a "
                f"{type(value).__name__}: a TensorMap is for a CUtensorMap, a Struct for other bytes by value"
            )
        if isinstance(value, TensorMap | tuple):
            parameters.append([_tile(memory, name, map_) for map_ in (value if isinstance(value, tuple) else (value,))])
        elif isinstance(value, Struct):
            parts = {offset: f"{name} + {offset}" for offset, *_ in value.fields} | dict(value.names)
            add = functools.partial(_add_part, memory, parts)
            parameters.append(np.frombuffer(argument_bytes(value, kind, add), np.uint8))
        elif isinstance(value, Pointers):
            addresses = [memory.add(each, x) for each, x in zip(value.names, value.tensors, strict=True)]
            parameters.append(_parameter_value(memory.add(name, torch.tensor(addresses)), kind))
        elif isinstance(value, torch.Tensor):
            parameters.append(_parameter_value(memory.add(name, value, name not in launch.partly), kind))
        else:
            parameters.append(_parameter_value(value, kind))
    symbols = _place_variables(kernel, memory)
    if kernel.cooperates:
        symbols[ENVIRONMENT] = _add_grid_barrier(kernel, launch, memory)
    launch = _set_cluster(kernel, launch)
    if entry.most_threads is not None and launch.threads > entry.most_threads:
        raise LaunchFault(
            f"a GPU refuses this launch: {kernel.name} is compiled for blocks of {entry.most_threads} threads at most "
            f"(__launch_bounds__), and is launched with {launch.threads}"
        )
    observers = (*observers, *watching())
    for observer in observers:
        observer.on_launch(kernel, launch, memory)
    blocks = block_order(launch)
    together = math.prod(launch.cluster)
    if places := selected_places():
        firsts = sorted({int(place * (blocks.size // together)) * together for place in places})
        blocks = np.concatenate([blocks[first : first + together] for first in firsts])
    batch = max(1, BATCH_LANES // (launch.threads * together)) * together
    batch = blocks.size if kernel.cooperates else batch
    executed = 0
    with np.errstate(all="ignore"):  # wrapping, NaN and Inf are what a GPU does
        for first in range(0, blocks.size, batch):
            some = blocks[first : first + batch]
            machine = Machine(kernel, launch, some, parameters, memory, symbols, observers, UNITS)
            machine.run()
            executed += machine.executed
    for observer in observers:
        observer.on_end()
    return executed


def _tile(memory: GlobalMemory, name: str, map_: TensorMap) -> Tile:
    memory.add(name, map_.memory())
    memory.tensors[-1].reached = map_.reached
    return Tile(map_, memory.tensors[-1])


def _set_cluster(kernel: DecodedKernel, launch: Launch) -> Launch:
    """Return the launch with the cluster that the kernel declares. Raises ValueError for a contradicting launch."""
    declared = kernel.entry.cluster
    if declared is not None and launch.cluster not in (declared, (1, 1, 1)):
        raise ValueError(f"{kernel.name} is compiled for clusters of {declared}, and launched with {launch.cluster}")
    launch = replace(launch, cluster=declared or launch.cluster)
    check_shape(launch)
    return launch


def _parameter_value(value: int | float, kind: str) -> np.generic:
    dtype = DTYPES[kind]
    if dtype.kind == "f":
        return dtype.type(value)
    unsigned = UNSIGNED[dtype.itemsize]
    return unsigned.type(int(value) & (1 << 8 * dtype.itemsize) - 1).view(dtype)


def _add_grid_barrier(kernel: DecodedKernel, launch: Launch, memory: GlobalMemory) -> int:
    """Add the memory of a grid's barrier (`this_grid().sync()`), and return its address.

    Raises ValueError for a grid of more blocks than a GPU holds at a time: its launch would fail.
    """
    most = REFERENCE_SMS * (_THREADS_OF_AN_SM // launch.threads)
    if math.prod(launch.grid) > most:
        raise ValueError(
            f"{kernel.name} waits for its whole grid, of which a GPU holds {most} blocks of {launch.threads} threads "
            f"at a time, and it was launched with {math.prod(launch.grid)}"
        )
    return memory.add("the grid's barrier", torch.zeros(64, dtype=torch.uint8), is_output=False)


def _are_maps(value: object, kind: str) -> bool:
    """Return whether a value is as many tensor maps as the parameter, an array of them, has."""
    return isinstance(value, tuple) and kind == f"b8[{MAP_BYTES * len(value)}]"


def _accepted_types(kind: str) -> Any:
    """Return the Python types of an argument for a parameter of this type."""
    if kind == TENSOR_MAP:
        return TensorMap, Struct
    return (Struct,) if kind.endswith("]") else (torch.Tensor, Pointers, int, float, np.number)


def argument_bytes(
    value: torch.Tensor | Struct | int | float, kind: str, address_of: Callable[[torch.Tensor, int], int]
) -> bytes:
    """Return an argument as a kernel finds it in its parameters, of this type in PTX.

    address_of: returns the address of a tensor, which is called with its offset in a struct, too. Raises ValueError for
    a field outside of its struct.
    """
    if isinstance(value, Struct):
        size = int(kind.rstrip("]").partition("[")[2])
        data = bytearray(size)
        for offset, field, part in value.fields:
            number = address_of(part, offset) if isinstance(part, torch.Tensor) else part
            bits = _parameter_value(number, field).tobytes()
            if not 0 <= offset <= size - len(bits):
                raise ValueError(f"a struct has {size} bytes: a {field} at byte {offset} is outside")
            data[offset : offset + len(bits)] = bits
        return bytes(data)
    return _parameter_value(address_of(value, 0) if isinstance(value, torch.Tensor) else value, kind).tobytes()


def _add_part(memory: GlobalMemory, names: Mapping[int, str], x: torch.Tensor, offset: int) -> int:
    return memory.add(names[offset], x)


def _place_variables(kernel: DecodedKernel, memory: GlobalMemory) -> dict[str, int]:
    """Place the module's variables with their initial values, and return their addresses."""
    variables = [variable for variable in kernel.entry.variables if variable.space in ("global", "const")]
    contents = [bytearray(variable.data.ljust(variable.size, b"\0")) for variable in variables]
    tensors = [torch.frombuffer(data, dtype=torch.uint8) for data in contents]
    symbols = {v.name: memory.add(v.name, data, is_output=False) for v, data in zip(variables, tensors, strict=True)}
    for variable, data in zip(variables, contents, strict=True):
        for at, symbol in variable.addresses:
            # 0: a function that this kernel does not reach
            address = kernel.functions.get(symbol.name) or symbols.get(symbol.name, 0) + symbol.offset
            data[at : at + 8] = address.to_bytes(8, "little")
    return symbols
