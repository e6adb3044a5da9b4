"""`call` (PTX ISA, 9.7.12.6): functions of the module, and those of CUDA's runtime that modules only declare.

`core.calls` holds the return addresses of lanes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.calls import Room
from gemm_ref.ptx.core.decode import Decoder, expect
from gemm_ref.ptx.core.machine import Control, Machine, Mask
from gemm_ref.ptx.core.memory import CODE_WINDOW, LOCAL_WINDOW
from gemm_ref.ptx.text.dtypes import DTYPES, UNSIGNED, per_lane
from gemm_ref.ptx.text.errors import AssertFailed, MemoryFault, Unsupported
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


# What a function makes of its arguments, an element for each lane that calls it: what it gives back, if anything.
Builtin = Callable[[Machine, np.ndarray, list[np.ndarray]], np.ndarray | None]


def _assert_fail(machine: Machine, lanes: np.ndarray, arguments: list[np.ndarray]) -> None:
    """What `assert` calls: expression, file, line, function and the size of a character."""
    text = machine.memory.text
    expression, file, line, function = (int(argument[0]) for argument in arguments[:4])
    who = machine.describe_first(lanes)
    others = f" and {lanes.sum() - 1} others" if lanes.sum() > 1 else ""
    name = text(file).rsplit("/", 1)[-1]
    raise AssertFailed(f"{name}:{line}: assert({text(expression)}) fails for {who}{others}, in {text(function)}")


_FORMAT = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t)?([diouxXeEfFgGaAcsp%])")
_LONG = ("l", "ll", "j", "z", "t")


class _Values:
    """What a lane gave `printf` behind the format: each value lies at a multiple of its size."""

    def __init__(self, data: np.ndarray, text: Callable[[int], str]) -> None:
        self._data, self._at, self._text = data, 0, text

    def _take(self, kind: str) -> int | float:
        dtype = DTYPES[kind]
        first = -(-self._at // dtype.itemsize) * dtype.itemsize
        self._at = first + dtype.itemsize
        return np.frombuffer(self._data.tobytes(), np.uint8)[first : self._at].copy().view(dtype)[0].item()

    def convert(self, found: re.Match) -> str:
        """One conversion of a format, as C's printf writes it; of `%a` the number as `%g` does."""
        flags, width, precision, size, kind = found.groups()
        if kind == "%":
            return "%"
        width, precision = (str(self._take("s32")) if part == "*" else part for part in (width, precision))
        value: int | float | str
        if kind in "sp":
            address = int(self._take("u64"))
            value, kind = (self._text(address) if kind == "s" else hex(address)), "s"
        elif kind in "eEfFgGaA":
            value, kind = self._take("f64"), kind.translate(str.maketrans("aA", "gG"))
        else:
            value = self._take(f"{'s' if kind in 'di' else 'u'}{64 if size in _LONG else 32}")
            value = int(value) & 255 if kind == "c" else value
        return f"%{flags}{width or ''}{'' if precision is None else '.' + precision}{kind}" % value


def _print(machine: Machine, lanes: np.ndarray, arguments: list[np.ndarray]) -> np.ndarray:
    """`vprintf`: a format, and where the values lie; the number of them is given back. Lanes print in their order."""
    local, text, counts = machine.blocks("local")[0], machine.memory.text, []
    for lane, form, place in zip(np.flatnonzero(lanes), *arguments, strict=True):
        places = np.full(machine.lanes, int(place) - LOCAL_WINDOW if place else local.size, np.int64)
        first = int(local.index(places, 1)[lane])
        values = _Values(local.view(1)[first : first + local.size - int(places[lane])], text)
        machine.print(_FORMAT.sub(values.convert, text(int(form))))
        counts.append(len(_FORMAT.findall(text(int(form)))))
    return np.array(counts, np.int32)


def _allocate(machine: Machine, lanes: np.ndarray, arguments: list[np.ndarray]) -> np.ndarray:
    """`malloc`: a null pointer where the heap is full."""
    return np.array([machine.memory.allocate(int(size)) for size in arguments[0]], np.uint64)


def _free(machine: Machine, lanes: np.ndarray, arguments: list[np.ndarray]) -> None:
    """`free`: what the heap has given is not given again."""


BUILTINS: dict[str, Builtin] = {"__assertfail": _assert_fail, "vprintf": _print, "malloc": _allocate, "free": _free}
