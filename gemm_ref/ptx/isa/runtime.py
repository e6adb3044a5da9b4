"""The functions that CUDA's runtime brings along, and modules only declare: printf, assert, malloc and free."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gemm_ref.ptx.core.machine import Machine
from gemm_ref.ptx.core.memory import LOCAL_WINDOW
from gemm_ref.ptx.text.dtypes import DTYPES
from gemm_ref.ptx.text.errors import AssertFailed

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
