"""`call` (PTX ISA, 9.7.12.6): functions of the module, and those that CUDA's runtime brings along.

`core.calls` has where lanes return to.
"""

from __future__ import annotations

import functools

import numpy as np

from gemm_ref.ptx.core.calls import Room
from gemm_ref.ptx.core.decode import Decoder, expect
from gemm_ref.ptx.core.machine import Control, Machine, Mask
from gemm_ref.ptx.core.memory import CODE_WINDOW
from gemm_ref.ptx.isa.runtime import BUILTINS, Builtin
from gemm_ref.ptx.text.dtypes import DTYPES, UNSIGNED, per_lane
from gemm_ref.ptx.text.errors import MemoryFault, Unsupported
from gemm_ref.ptx.text.operands import Operand, Symbol, Vector
from gemm_ref.ptx.text.parser import Instruction


def call(decoder: Decoder, instruction: Instruction) -> Control:
    """`call`: by name, or by address through a table; functions that call themselves; printf, assert, malloc, free."""
    at = next(i for i, operand in enumerate(instruction.operands) if not isinstance(operand, Vector))
    target = decoder.named(instruction.operands[at])
    gives, takes = _rooms(decoder, instruction.operands[:at]), _rooms(decoder, instruction.operands[at + 1 :])
    if isinstance(target, Symbol) and target.name not in decoder.kernel.functions:
        if target.name not in BUILTINS:
            raise Unsupported(f"the reference GPU has no function {target.name}, and the module does not define it")
        return _call_builtin(BUILTINS[target.name], gives, takes)
    functions = [f for f in decoder.kernel.functions.values() if f.entry.name == getattr(target, "name", "")]
    read = decoder.source(target, DTYPES["u64"])

    @functools.cache
    def linked() -> dict[int, tuple | None]:  # when all of the kernel is decoded, and so has its registers
        return {f.first: _link(decoder, f, gives, takes) for f in functions or decoder.kernel.functions.values()}

    def step(machine: Machine, mask: Mask, place: int) -> int:
        lanes = machine.lanes_of(mask)
        targets = per_lane(read(machine), machine.lanes).astype(np.int64) - CODE_WINDOW
        for function in np.unique(targets[lanes]).tolist():
            some = lanes & (targets == function)
            if (how := linked().get(function)) is None:
                lane = int(np.argmax(some))
                raise MemoryFault(
                    f"{instruction.place}: {machine.describe_lane(lane)} calls what is no function with these arguments"
                )
            if not machine.calls.enter(some, place + 1, *how):
                raise MemoryFault(f"{instruction.place}: functions call themselves so often that a thread's stack ends")
        return machine.schedule.branch_each(lanes, place + 1, targets)

    return Control(step)


def _rooms(decoder: Decoder, operands: tuple[Operand, ...]) -> list[Room]:
    """The variables in parentheses."""
    lists = [operand for operand in operands if isinstance(operand, Vector)]
    return [decoder.room(expect(item, Symbol).name) for some in lists for item in some.items]


def _link(decoder: Decoder, function: Decoder, gives: list[Room], takes: list[Room]) -> tuple | None:
    """What `Calls.enter` is told of a call of this function; None where it takes or gives something else."""
    formals = [[function.room(v.name) for v in some] for some in (function.entry.takes, function.entry.gives)]
    if [len(some) for some in formals] != [len(takes), len(gives)]:
        return None
    again = decoder.calls_itself and function.calls_itself
    keeps = (
        [slot for name, slot in decoder.slots.items() if name.endswith(f" of {decoder.entry.name}")] if again else []
    )
    arguments, results = list(zip(takes, formals[0], strict=True)), list(zip(formals[1], gives, strict=True))
    return arguments, results, keeps, decoder.kernel.frame_bytes if again else 0


def _call_builtin(builtin: Builtin, gives: list[Room], takes: list[Room]) -> Control:
    def step(machine: Machine, mask: Mask, place: int) -> int:
        lanes = machine.lanes_of(mask)
        if lanes.any():
            values = [machine.calls.values(lanes, room).copy().view(UNSIGNED[room.size])[:, 0] for room in takes]
            result = builtin(machine, lanes, values)
            if result is not None and gives:
                machine.calls.set(lanes, gives[0], result.view(np.uint8).reshape(result.size, -1))
        return place + 1

    return Control(step)
