"""`call` (PTX ISA, 9.7.12.6): functions of the module, and those of CUDA's runtime that modules only declare.

`core.calls` holds the return addresses of lanes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np

from gemm_ref.launch import cdiv
from gemm_ref.ptx.core.calls import LocalVariable
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
    gives, takes = _variables(decoder, instruction.operands[:at]), _variables(decoder, instruction.operands[at + 1 :])
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
                who = machine.describe_first(some)
                raise MemoryFault(f"{instruction.place}: {who} calls what is no function with these arguments")
            if not machine.calls.enter(some, place + 1, *how):
                raise MemoryFault(f"{instruction.place}: functions call themselves so often that a thread's stack ends")
        return machine.schedule.branch_each(lanes, place + 1, targets)

    return Control(step)


def _variables(decoder: Decoder, operands: tuple[Operand, ...]) -> list[LocalVariable]:
    """Return the variables in parentheses."""
    lists = [operand for operand in operands if isinstance(operand, Vector)]
    return [decoder.local_variable(expect(item, Symbol).name) for some in lists for item in some.items]


def _link(decoder: Decoder, function: Decoder, gives: list[LocalVariable], takes: list[LocalVariable]) -> tuple | None:
    """Return the arguments of `Calls.enter` for a call of this function; None if its parameters are others."""
    formals = [
        [function.local_variable(v.name) for v in some] for some in (function.entry.formals, function.entry.results)
    ]
    if [len(some) for some in formals] != [len(takes), len(gives)]:
        return None
    recursive = decoder.is_recursive and function.is_recursive
    own = [slot for name, slot in decoder.slots.items() if name.endswith(f" of {decoder.entry.name}")]
    arguments, results = list(zip(takes, formals[0], strict=True)), list(zip(formals[1], gives, strict=True))
    return arguments, results, own if recursive else [], decoder.kernel.frame_bytes if recursive else 0


def _call_builtin(builtin: Builtin, gives: list[LocalVariable], takes: list[LocalVariable]) -> Control:
    def step(machine: Machine, mask: Mask, place: int) -> int:
        lanes = machine.lanes_of(mask)
        if lanes.any():
            values = [machine.calls.read(lanes, taken).copy().view(UNSIGNED[taken.size])[:, 0] for taken in takes]
            result = builtin(machine, lanes, values)
            if result is not None and gives:
                machine.calls.write(lanes, gives[0], result.view(np.uint8).reshape(result.size, -1))
        return place + 1

    return Control(step)


# From the arguments, an element for each lane that calls the function, to its result, if it has one.
Builtin = Callable[[Machine, np.ndarray, list[np.ndarray]], np.ndarray | None]


def _assert_fail(machine: Machine, lanes: np.ndarray, arguments: list[np.ndarray]) -> None:
    """`__assertfail`, which `assert` calls with expression, file, line, function and the size of a character."""
    text = machine.memory.text
    expression, file, line, function = (int(argument[0]) for argument in arguments[:4])
    who = machine.describe_first(lanes)
    others = f" and {lanes.sum() - 1} others" if lanes.sum() > 1 else ""
    name = text(file).rsplit("/", 1)[-1]
    raise AssertFailed(f"{name}:{line}: assert({text(expression)}) fails for {who}{others}, in {text(function)}")


_FORMAT = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t)?([diouxXeEfFgGaAcsp%])")
_LONG = ("l", "ll", "j", "z", "t")


class _Values:
    """The arguments of a lane's `printf` after the format: each is at a multiple of its size."""

    def __init__(self, data: np.ndarray, text: Callable[[int], str]) -> None:
        self._data, self._at, self._text = data, 0, text

    def _take(self, kind: str) -> int | float:
        dtype = DTYPES[kind]
        first = cdiv(self._at, dtype.itemsize) * dtype.itemsize
        self._at = first + dtype.itemsize
        return np.frombuffer(self._data.tobytes(), np.uint8)[first : self._at].copy().view(dtype)[0].item()

    def convert(self, found: re.Match) -> str:
        """Return one conversion of a format, as C's printf writes it; `%a` is written like `%g`."""
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
    """`vprintf` of a format and the address of its values; returns their number. Lanes print in order."""
    local, text, counts = machine.blocks("local")[0], machine.memory.text, []
    for lane, form, place in zip(np.flatnonzero(lanes), *arguments, strict=True):
        places = np.full(machine.lanes, int(place) - LOCAL_WINDOW if place else local.size, np.int64)
        first = int(local.index(places, 1)[lane])
        values = _Values(local.view(1)[first : first + local.size - int(places[lane])], text)
        machine.print(_FORMAT.sub(values.convert, text(int(form))))
        counts.append(len(_FORMAT.findall(text(int(form)))))
    return np.array(counts, np.int32)


def _allocate(machine: Machine, lanes: np.ndarray, arguments: list[np.ndarray]) -> np.ndarray:
    """`malloc`: a null pointer if the heap is full."""
    return np.array([machine.memory.allocate(int(size)) for size in arguments[0]], np.uint64)


def _free(machine: Machine, lanes: np.ndarray, arguments: list[np.ndarray]) -> None:
    """`free`: the heap does not reuse memory."""


BUILTINS: dict[str, Builtin] = {"__assertfail": _assert_fail, "vprintf": _print, "malloc": _allocate, "free": _free}
