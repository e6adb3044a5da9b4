"""Offsets into matrices that a Triton or Gluon kernel computes in 32 bits or fewer, from the compiler's first form.

Triton passes sizes and strides below 2^31 as i32, so `row * stride` is an i32 as well, and wraps once the matrix has
2^31 elements. `tt.addptr` extends its offset to 64 bits, which is too late then. A product counts whose one factor is a
size or a stride, and whose other factor is an index that grows with the matrix; so does a sum that a loop increases by
a stride, and an index that is cut to 16 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_LINE = re.compile(r"^\s*(?:(?P<results>%[^=]*?) = )?\"?(?P<op>[a-z_]+\.[\w.]+)\"?(?P<rest>.*)$")
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_PLACE = re.compile(r'^"([^"]+)":(\d+):\d+$')
# What hands an integer on, and what also computes with it; neither divides, so their results grow with it.
_SAME = {"splat", "broadcast", "expand_dims", "convert_layout", "reshape", "extsi", "extui", "trunci", "trans"}
_GROWS = _SAME | {"addi", "subi", "muli", "select"}
_INDICES = {"get_program_id", "load"}  # a range alone is no longer than a tile


@dataclass(frozen=True)
class Narrow:
    """An offset that wraps once the tensor of a parameter has 2^bits elements; of an index, once a side has as many."""

    parameter: str
    bits: int
    file: str
    line: int
    is_index: bool = False


@dataclass
class _Operation:
    name: str
    operands: list[str]
    type: str  # i32, or that of a tensor's elements
    location: str


@dataclass
class _Function:
    """A kernel in TTIR: each value's operation, and where values of loops and branches come from."""

    operations: dict[str, _Operation] = field(default_factory=dict)
    sources: dict[str, list[str]] = field(default_factory=dict)  # of loops' variables and of results of regions
    arguments: dict[str, str] = field(default_factory=dict)  # type, by value
    counters: set[str] = field(default_factory=set)
    locations: dict[str, str] = field(default_factory=dict)


def find_narrow(text: str) -> list[Narrow]:
    """Returns the first offset in 32 bits or fewer for each pointer parameter of a kernel; text: its TTIR."""
    kernel = _read(text)
    found: dict[tuple[str, bool], Narrow] = {}
    for operation in kernel.operations.values():
        if operation.name == "tt.addptr":
            for parameter in _roots(kernel, operation.operands[0]):
                for narrow, bits, is_index in _narrow(kernel, operation.operands[1], set()):
                    place = _place(kernel, narrow.location)
                    name = parameter.removeprefix("%")
                    found.setdefault((name, is_index), Narrow(name, bits, *place, is_index))
    return list(found.values())


def _read(text: str) -> _Function:
    kernel = _Function(locations=dict(_LOCATION.findall(text)))
    regions: list[tuple[list[str], list[str]]] = []  # the results and the variables of each that is open
    for line in text.splitlines():
        if "tt.func" in line:
            kernel.arguments |= dict(re.findall(r"(%[\w$.-]+): ([^\s,{)]+)", line))
            regions.append(([], []))
            continue
        match = _LINE.match(line)
        if match is None:
            if re.match(r"^\s*}\s*(loc|$)", line) and regions:
                regions.pop()
            continue
        rest, _, location = match["rest"].partition(" loc(")
        results = _results(match["results"] or "")
        name, operands = match["op"], _VALUE.findall(rest.partition(" : ")[0])
        if name == "scf.yield":
            outer, variables = regions[-1] if regions else ([], [])
            for targets in (outer, variables):
                for target, source in zip(targets, operands, strict=False):
                    kernel.sources.setdefault(target, []).append(source)
        elif rest.rstrip().endswith("{"):
            starts = dict(re.findall(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)", rest))
            if name == "scf.for":
                kernel.counters.add(operands[0])
                del starts[operands[0]]
            for variable, start in starts.items():
                kernel.sources.setdefault(variable, []).append(start)
            regions.append((results, list(starts)))
        for result in results:
            kernel.operations.setdefault(result, _Operation(name, operands, _element(rest), location.rstrip(")")))
    return kernel


def _results(text: str) -> list[str]:
    """`%a`, `%a, %b`, or `%a:2`, which is `%a#0` and `%a#1`."""
    name, _, count = text.partition(":")
    return [f"{name}#{i}" for i in range(int(count))] if count.strip().isdigit() else _VALUE.findall(text)


def _element(rest: str) -> str:
    """The type of a result's elements: the last that is named."""
    named = re.findall(r"i\d+(?=[>,\s]|$)", rest.partition(" : ")[2])
    return named[-1] if named else ""


def _inputs(kernel: _Function, value: str) -> list[str]:
    operation = kernel.operations.get(value)
    return kernel.sources.get(value, []) or (operation.operands if operation else [])


def _name(kernel: _Function, value: str) -> str:
    operation = kernel.operations.get(value)
    return operation.name.rpartition(".")[2] if operation and value not in kernel.sources else ""


def _roots(kernel: _Function, pointer: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The pointer parameters that a pointer comes from."""
    if pointer in kernel.arguments:
        return {pointer} if "ptr" in kernel.arguments[pointer] else set()
    if pointer in seen:
        return set()
    inputs = _inputs(kernel, pointer)
    inputs = inputs[:1] if _name(kernel, pointer) == "addptr" else inputs
    return set[str]().union(*(_roots(kernel, each, seen | {pointer}) for each in inputs))


def _narrow(kernel: _Function, value: str, seen: set[str]) -> Iterator[tuple[_Operation, int, bool]]:
    """Yields (operation, bits without the sign, whether it cuts an index) of what wraps on the way to an offset."""
    if value in seen:
        return
    seen.add(value)
    name, inputs = _name(kernel, value), _inputs(kernel, value)
    if value not in kernel.sources and name not in _GROWS:
        return
    if value not in kernel.sources:
        operation = kernel.operations[value]
        width = int(operation.type[1:] or 64) if operation.type else 64
        steps = [each for each in inputs if _is_size(kernel, each)]
        others = [each for each in inputs if each not in steps]
        if name == "muli" and width < 64 and steps and others and _is_index(kernel, others[0], set()):
            yield operation, width - 1, False
        elif name == "addi" and width < 64 and steps and any(each in kernel.sources for each in others):
            yield operation, width - 1, False
        elif name == "trunci" and width < 32 and _is_index(kernel, inputs[0], set()):
            yield operation, width - 1, True
    for each in inputs:
        yield from _narrow(kernel, each, seen)


def _is_size(kernel: _Function, value: str) -> bool:
    """Whether it is an integer parameter, or a constant multiple of one."""
    if value in kernel.arguments:
        return "ptr" not in kernel.arguments[value]
    name, inputs = _name(kernel, value), _inputs(kernel, value)
    if name == "muli":
        constants = [each for each in inputs if _name(kernel, each) == "constant"]
        return len(constants) == 1 and any(_is_size(kernel, each) for each in inputs if each not in constants)
    return name in _SAME and all(_is_size(kernel, each) for each in inputs[:1])


def _is_index(kernel: _Function, value: str, seen: set[str]) -> bool:
    """Whether it grows with the place in a matrix: with a program's number, a loop, or what was loaded."""
    if value in kernel.counters or value in kernel.sources or _name(kernel, value) in _INDICES:
        return True
    seen.add(value)
    return any(_is_index(kernel, each, seen) for each in _inputs(kernel, value) if each not in seen)


def _place(kernel: _Function, location: str, depth: int = 8) -> tuple[str, int]:
    """The file and the line of a location; of a function that was inlined its own."""
    text = kernel.locations.get(location, location)
    if place := _PLACE.match(text):
        return Path(place[1]).name, int(place[2])
    inner = re.search(r"#loc\d*", text)
    return _place(kernel, inner[0], depth - 1) if inner and depth else ("", 0)
