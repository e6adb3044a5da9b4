"""`mov`, `cvta` (PTX ISA, 9.7.9), and instructions that change no value: hints, fences, pacing."""

from __future__ import annotations

import numpy as np

from gemm_ref.ptx.core.decode import Decoder, dtype_named, integer, match_form, require_form
from gemm_ref.ptx.core.machine import Execute, Machine, Mask
from gemm_ref.ptx.core.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW
from gemm_ref.ptx.text.dtypes import DTYPES, UNSIGNED, Value
from gemm_ref.ptx.text.errors import ParseError
from gemm_ref.ptx.text.operands import Vector
from gemm_ref.ptx.text.parser import Instruction


def move(decoder: Decoder, instruction: Instruction) -> Execute:
    """`mov`: a register, an immediate or an address; with a vector on one side, packing or unpacking its bits."""
    dtype = dtype_named(instruction)
    require_form(len(instruction.parts) == 2, instruction)
    target, source = instruction.operands
    if isinstance(target, Vector):
        read = decoder.source(source, UNSIGNED[dtype.itemsize])
        writes = [decoder.destination(item) for item in target.items]

        def unpack(machine: Machine, mask: Mask) -> None:
            for part, write in zip(_split_words(read(machine), len(writes)), writes, strict=True):
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
    """Split an unsigned integer into `count` equal parts, the lowest first."""
    part = UNSIGNED[value.dtype.itemsize // count]
    return [(value >> value.dtype.type(i * 8 * part.itemsize)).astype(part) for i in range(count)]


def _join_words(parts: list[Value]) -> Value:
    """Join parts: the inverse of `_split_words`."""
    bits = 8 * parts[0].dtype.itemsize
    whole = UNSIGNED[parts[0].dtype.itemsize * len(parts)].type
    return sum((part.astype(whole) << whole(i * bits) for i, part in enumerate(parts)), start=whole(0))


# The start of each state space in the generic address space.
_WINDOWS = {"global": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}


def convert_address(decoder: Decoder, instruction: Instruction) -> Execute:
    """`cvta`: also `.to`, between a generic address and one in global, shared, local, const or parameter memory."""
    parts = instruction.parts
    windows = _WINDOWS | {"const": 0, "shared::cta": SHARED_WINDOW, "shared::cluster": SHARED_WINDOW}
    space = next((part for part in parts[1:] if part in windows), "")
    require_form(space in windows and parts[-1] == "u64", instruction)
    window = np.uint64(windows[space])
    read, write = decoder.source(instruction.operands[1], DTYPES["u64"]), decoder.destination(instruction.operands[0])
    if "to" in parts:
        return lambda machine, mask: write(machine, read(machine) - window, mask)
    return lambda machine, mask: write(machine, read(machine) + window, mask)


def is_space(decoder: Decoder, instruction: Instruction) -> Execute:
    """`isspacep`: whether a generic address is one in global, shared, local or parameter memory."""
    space = instruction.parts[1].split("::")[0]
    require_form(space in _WINDOWS and len(instruction.parts) == 2, instruction)
    read, write = decoder.source(instruction.operands[1], DTYPES["u64"]), decoder.destination(instruction.operands[0])
    first = _WINDOWS[space]
    end = min([start for start in _WINDOWS.values() if start > first], default=PARAMETER_WINDOW << 1)

    def execute(machine: Machine, mask: Mask) -> None:
        address = read(machine)
        write(machine, (address >= np.uint64(first)) & (address < np.uint64(end)), mask)

    return execute


def nothing(decoder: Decoder, instruction: Instruction) -> Execute:
    """Ordering, caching and pacing: every access is in order in lockstep, and time and caches are not modelled."""
    return lambda machine, mask: None


def sleep(decoder: Decoder, instruction: Instruction) -> Execute:
    """`nanosleep`: time is not modelled, but a loop with it waits for others, which have their turn."""

    def execute(machine: Machine, mask: Mask) -> None:
        machine.schedule.polling.looked = True

    return execute


def cache_policy(decoder: Decoder, instruction: Instruction) -> Execute:
    """`createpolicy`: a cache hint, which has no effect on values."""
    write = decoder.destination(instruction.operands[0])
    return lambda machine, mask: write(machine, np.uint64(0), mask)


def set_registers(decoder: Decoder, instruction: Instruction) -> Execute:
    """`setmaxnreg`: `.inc .dec`, how many registers a warp's threads have, which nobody runs out of here."""
    count = integer(instruction.operands[0])
    match_form(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32", instruction)
    if count % 8 or not 24 <= count <= 256:
        raise ParseError(f"{instruction.place}: setmaxnreg takes a multiple of 8 from 24 to 256")
    return nothing(decoder, instruction)
