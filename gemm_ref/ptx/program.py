"""`load` PTX text and `run` it: choosing the kernel, decoding it once, and walking the grid in batches of blocks."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from gemm_ref.launch import Launch
from gemm_ref.ptx.core.cluster import CLUSTER, block_order, check_shape
from gemm_ref.ptx.core.decode import Decoder, Execute, Operation, dtype_named
from gemm_ref.ptx.core.events import Observer, watching
from gemm_ref.ptx.core.machine import Machine
from gemm_ref.ptx.core.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, GlobalMemory
from gemm_ref.ptx.isa import bitwise, convert  # noqa: F401  they register their instructions
from gemm_ref.ptx.isa.arithmetic import comparison, function_for
from gemm_ref.ptx.isa.async_copy import async_copy
from gemm_ref.ptx.isa.bulk_copy import bulk_copy
from gemm_ref.ptx.isa.control import control_for
from gemm_ref.ptx.isa.fused import with_runs
from gemm_ref.ptx.isa.load_store import LOAD_STORE
from gemm_ref.ptx.isa.matrix import MATRIX
from gemm_ref.ptx.isa.mbarrier import MBARRIER
from gemm_ref.ptx.isa.mma import TENSOR_CORE
from gemm_ref.ptx.isa.warp import WARP
from gemm_ref.ptx.isa.wmma import WMMA
from gemm_ref.ptx.text.dtypes import DTYPES, UNSIGNED, Value
from gemm_ref.ptx.text.errors import ParseError, Unsupported
from gemm_ref.ptx.text.parser import TENSOR_MAP, Entry, Instruction, Pair, Vector, parse
from gemm_ref.ptx.units.tensor_map import TensorMap
from gemm_ref.ptx.units.tile import Tile

# Lanes that run at a time: long enough that NumPy's cost a call is small beside the work, short enough for the cache.
BATCH_LANES = 1 << 16


@dataclass(frozen=True)
class Kernel:
    """A decoded kernel."""

    entry: Entry
    operations: tuple[Operation, ...]
    decoder: Decoder
    cubin: Callable[[], bytes] | None = None  # gives the machine code made of the same PTX, where a package offers it

    @property
    def name(self) -> str:
        return self.entry.name


@functools.lru_cache(maxsize=256)
def load(text: str, entry: str | None = None) -> Kernel:
    """Parse and decode PTX text; `entry` names the kernel where the module holds several.

    Raises ParseError for text that is not PTX, and Unsupported for an instruction the reference GPU lacks, naming
    it and its source line.
    """
    entries = _parsed(text)
    if entry is None and len(entries) > 1:
        raise ParseError(f"the module holds several kernels, name one: {', '.join(entries)}")
    if entry is not None and entry not in entries:
        raise ParseError(f"the module has no kernel {entry}; it has {', '.join(entries)}")
    chosen = entries[entry] if entry else next(iter(entries.values()))
    decoder = Decoder(chosen)
    operations = [_decode(decoder, instruction) for instruction in chosen.instructions]
    return Kernel(chosen, with_runs(decoder, operations), decoder)


@functools.lru_cache(maxsize=256)
def entries(text: str, called: str | None = None) -> tuple[str, ...]:
    """The names of the kernels in PTX text, in its order; of those alone that the source calls `called`, if given.

    A name in PTX is the source's, or the source's with C++'s mangling around it: its length before it, and behind it
    template arguments or parameters. Raises ParseError for text that is not PTX.
    """
    return tuple(name for name in _parsed(text) if called is None or _is_called(name, called))


def _is_called(entry: str, name: str) -> bool:
    return entry == name or (
        entry.startswith("_Z") and re.search(rf"(?<!\d){len(name)}{name}(?=[EIPKfijmvh]|\d|$)", entry) is not None
    )


_parsed = functools.lru_cache(maxsize=16)(parse)  # a module's kernels are loaded one by one


def run(
    kernel: Kernel,
    launch: Launch,
    args: Sequence[torch.Tensor | TensorMap | int | float],
    observers: Sequence[Observer] = (),
    names: Sequence[str] = (),
) -> int:
    """Run a kernel over the whole grid; tensors are read and written in place.

    args: one for each parameter, contiguous CPU tensors for pointers and a TensorMap for a CUtensorMap. names: what
    messages call them. The observers of a `watched` around the call see it too.
    Returns the number of instructions executed (each once for a batch of blocks in lockstep). Raises PtxError at the
    first fault, naming the source line and the thread, and ValueError for arguments that do not fit the kernel.
    """
    entry = kernel.entry
    if len(args) != len(entry.parameters):
        raise ValueError(f"{kernel.name} takes {len(entry.parameters)} arguments and was given {len(args)}")
    memory = GlobalMemory()
    parameters = []
    for index, ((parameter, kind), value) in enumerate(zip(entry.parameters, args, strict=True)):
        name = names[index] if index < len(names) else f"tensor argument {index}"
        if isinstance(value, TensorMap) != (kind == TENSOR_MAP):
            given = f"a {type(value).__name__}, and it takes {'a' if kind == TENSOR_MAP else 'no'} TensorMap"
            raise ValueError(f"{kernel.name} was given for {parameter} (argument {index}) {given}")
        if isinstance(value, TensorMap):
            memory.add(name, value.memory())
            memory.tensors[-1].reached = value.reached
            parameters.append(Tile(value, memory.tensors[-1]))
            continue
        if isinstance(value, torch.Tensor):
            value = memory.add(name, value)
        parameters.append(_parameter(value, kind))
    symbols = {
        variable.name: memory.add(variable.name, _initial(variable))
        for variable in entry.variables
        if variable.space in ("global", "const")
    }
    launch = _with_cluster(kernel, launch)
    decoder = kernel.decoder
    observers = (*observers, *watching())
    for observer in observers:
        observer.on_launch(kernel, launch, memory)
    blocks = block_order(launch)
    together = math.prod(launch.cluster)
    batch = max(1, BATCH_LANES // (launch.threads * together)) * together
    executed = 0
    with np.errstate(all="ignore"):  # wrapping, NaN and Inf are what a GPU does
        for first in range(0, blocks.size, batch):
            machine = Machine(
                kernel.operations,
                len(decoder.slots),
                launch,
                blocks[first : first + batch],
                parameters,
                memory,
                symbols,
                decoder.static_shared.size + launch.shared_bytes,
                decoder.local.size,
                observers,
            )
            machine.run()
            executed += machine.executed
    for observer in observers:
        observer.on_end()
    return executed


def _with_cluster(kernel: Kernel, launch: Launch) -> Launch:
    """The launch with the cluster that the kernel itself says; raises ValueError for one that contradicts it."""
    declared = kernel.entry.cluster
    if declared is not None and launch.cluster not in (declared, (1, 1, 1)):
        raise ValueError(f"{kernel.name} is compiled for clusters of {declared}, and launched with {launch.cluster}")
    launch = replace(launch, cluster=declared or launch.cluster)
    check_shape(launch)
    return launch


def _parameter(value: int | float, kind: str) -> np.generic:
    dtype = DTYPES[kind]
    if dtype.kind == "f":
        return dtype.type(value)
    unsigned = UNSIGNED[dtype.itemsize]
    return unsigned.type(int(value) & (1 << 8 * dtype.itemsize) - 1).view(dtype)


def _initial(variable) -> torch.Tensor:
    return torch.frombuffer(bytearray(variable.data.ljust(variable.size, b"\0")), dtype=torch.uint8)


def _decode(decoder: Decoder, instruction: Instruction) -> Operation:
    try:
        guard = decoder.guard(instruction.guard) if instruction.guard else None
        control = control_for(decoder, instruction)
        execute = None if control else _execution(decoder, instruction)
    except (Unsupported, ParseError) as error:
        message = str(error)
        raise type(error)(message if instruction.place in message else f"{instruction.place}: {message}") from None
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise ParseError(f"{instruction.place}: operands not understood ({error})") from error
    return Operation(instruction, guard, instruction.guard_negated, execute, control)


def _execution(decoder: Decoder, instruction: Instruction) -> Execute:
    first = instruction.parts[0]
    if first == "cp" and instruction.parts[1:3] == ["async", "bulk"]:
        return bulk_copy(decoder, instruction)
    if first == "cp" and instruction.parts[1] == "async":
        return async_copy(decoder, instruction)
    build = _BUILDERS.get(first)
    return build(decoder, instruction) if build else _arithmetic(decoder, instruction)


def _arithmetic(decoder: Decoder, instruction: Instruction) -> Execute:
    function = function_for(instruction.name)
    write = decoder.destination(instruction.operands[0])
    reads = [decoder.source(o, t) for o, t in zip(instruction.operands[1:], function.sources, strict=True)]
    apply = function.apply
    if len(reads) == 2:
        one, two = reads
        return lambda machine, mask: write(machine, apply(one(machine), two(machine)), mask)
    if len(reads) == 3:
        one, two, three = reads
        return lambda machine, mask: write(machine, apply(one(machine), two(machine), three(machine)), mask)
    return lambda machine, mask: write(machine, apply(*[read(machine) for read in reads]), mask)


def _set_predicate(decoder: Decoder, instruction: Instruction) -> Execute:
    """`setp`: compare, then combine with a third predicate if there is one; the second result is the opposite."""
    parts, operands = instruction.parts, instruction.operands
    dtype = dtype_named(instruction)
    combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(parts[2])
    unknown = parts[2:-1] if combine is None else parts[3:-1]
    if unknown:
        raise Unsupported(f"the reference GPU has no {instruction.name}")
    compare = comparison(parts[1], dtype)
    pair = operands[0] if isinstance(operands[0], Pair) else Pair(operands[0], None)
    writes = [(p, decoder.destination(r)) for p, r in ((True, pair.first), (False, pair.second)) if r is not None]
    a, b = (decoder.source(operand, dtype) for operand in operands[1:3])
    third = decoder.source(operands[3], DTYPES["pred"]) if combine else None

    def execute(machine: Machine, mask: np.ndarray | None) -> None:
        result = compare(a(machine), b(machine))
        also = third(machine) if third else None  # read first: it may be one of the destinations
        for positive, write in writes:
            value = result if positive else ~result
            write(machine, combine(value, also) if combine else value, mask)

    return execute


def _move(decoder: Decoder, instruction: Instruction) -> Execute:
    """`mov`: a register, an immediate or an address; with a vector on one side, packing or unpacking its bits."""
    dtype = dtype_named(instruction)
    if len(instruction.parts) > 2:
        raise Unsupported(f"the reference GPU has no {instruction.name}")
    target, source = instruction.operands
    if isinstance(target, Vector):
        read = decoder.source(source, UNSIGNED[dtype.itemsize])
        writes = [None if item is None else decoder.destination(item) for item in target.items]

        def unpack(machine: Machine, mask: np.ndarray | None) -> None:
            for part, write in zip(_split_words(read(machine), len(writes)), writes, strict=True):
                if write is not None:
                    write(machine, part, mask)

        return unpack
    write = decoder.destination(target)
    if isinstance(source, Vector):
        part = UNSIGNED[dtype.itemsize // len(source.items)]
        reads = [decoder.source(item, part) for item in source.items]
        return lambda machine, mask: write(machine, _join_words([read(machine) for read in reads]), mask)
    read = decoder.source(source, dtype)
    return lambda machine, mask: write(machine, read(machine), mask)


def _split_words(value: Value, count: int) -> list[Value]:
    """`count` equal parts of an unsigned integer, the lowest first."""
    part = UNSIGNED[value.dtype.itemsize // count]
    return [(value >> value.dtype.type(i * 8 * part.itemsize)).astype(part) for i in range(count)]


def _join_words(parts: list[Value]) -> Value:
    """The inverse of `_split_words`."""
    bits = 8 * parts[0].dtype.itemsize
    whole = UNSIGNED[parts[0].dtype.itemsize * len(parts)].type
    return sum((part.astype(whole) << whole(i * bits) for i, part in enumerate(parts)), start=whole(0))


def _convert_address(decoder: Decoder, instruction: Instruction) -> Execute:
    """`cvta`: between an address in a state space and a generic one."""
    parts = instruction.parts
    space = next((p for p in parts[1:] if p.split("::")[0] in ("global", "shared", "local", "const", "param")), None)
    windows = {"param": PARAMETER_WINDOW, "shared::cluster": SHARED_WINDOW}
    windows |= {"global": 0, "const": 0, "shared": SHARED_WINDOW, "shared::cta": SHARED_WINDOW, "local": LOCAL_WINDOW}
    if space not in windows or parts[-1] != "u64":
        raise Unsupported(f"the reference GPU has no {instruction.name}")
    window = np.uint64(windows[space])
    read, write = decoder.source(instruction.operands[1], DTYPES["u64"]), decoder.destination(instruction.operands[0])
    if "to" in parts:
        return lambda machine, mask: write(machine, read(machine) - window, mask)
    return lambda machine, mask: write(machine, read(machine) + window, mask)


def _nothing(decoder: Decoder, instruction: Instruction) -> Execute:
    """Ordering, prefetching and pacing: in lockstep every access is already in order, and time is not modelled."""
    return lambda machine, mask: None


def _policy(decoder: Decoder, instruction: Instruction) -> Execute:
    """`createpolicy`: a cache hint, which has no effect on values."""
    write = decoder.destination(instruction.operands[0])
    return lambda machine, mask: write(machine, np.uint64(0), mask)


def _set_registers(decoder: Decoder, instruction: Instruction) -> Execute:
    """`setmaxnreg`: how many registers a warp's threads have, which nobody runs out of here; raises ParseError."""
    count = instruction.operands[0].value
    if instruction.name not in ("setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32"):
        raise Unsupported(f"{instruction.place}: the reference GPU has no {instruction.name}")
    if count % 8 or not 24 <= count <= 256:
        raise ParseError(f"{instruction.place}: setmaxnreg takes a multiple of 8 from 24 to 256")
    return _nothing(decoder, instruction)


_MOVES = {
    "setp": _set_predicate,
    "mov": _move,
    "cvta": _convert_address,
    "createpolicy": _policy,
    "setmaxnreg": _set_registers,
    **dict.fromkeys(("membar", "fence", "prefetch", "prefetchu", "nanosleep", "griddepcontrol"), _nothing),
}

# What is neither control flow, cp.async nor arithmetic.
_BUILDERS = {**LOAD_STORE, **MATRIX, **TENSOR_CORE, **WMMA, **WARP, **MBARRIER, **CLUSTER, **_MOVES}
