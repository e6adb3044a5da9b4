"""What a kernel that nobody launches may be launched with: arguments of its template and blocks, to be tried."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from experiments.check.cuda import launch
from experiments.check.cuda.expressions import evaluate, split
from experiments.check.cuda.roles import SIZES
from experiments.check.cuda.signature import Parameter, Signature
from experiments.records.request import UsageError

Template: TypeAlias = list[tuple[Parameter, str]]

WARP = 32
_SIDES = ((16, 16), (32, 32), (32, 8), (8, 8))  # usual blocks, of kernels that count threads along x and y
_LINES = (256, 128, 512, 1024, 64)  # and along x alone
# What a number is by its name: the side of a block's, of a warp's or of a thread's tile. Y counts rows, X columns.
_TILE = re.compile(
    r"^k?_?(block|tile|threadblock|cta|b|warp|w|thread|t)(?:_?(?:size|tile|dim|items|work))*_?([mnkxy])$", re.I
)
_LEVELS = {"b": "B", "block": "B", "tile": "B", "threadblock": "B", "cta": "B", "w": "W", "warp": "W"}
_USUAL = {"BM": 128, "BN": 128, "BK": 16, "WM": 64, "WN": 64, "WK": 16, "TM": 8, "TN": 8, "TK": 1}


def given(chosen: Signature, text: str) -> Template:
    """Each parameter of the template with its argument: --template's, else its default, else the size of its name.

    Raises UsageError where one has none of these.
    """
    texts = split(text, angles=True)
    parameters = chosen.template
    if len(texts) > len(parameters):
        raise UsageError(f"--template has {len(texts)} arguments and {chosen.name} takes {len(parameters)}")
    found = []
    for index, parameter in enumerate(parameters):
        named = parameter.name.upper() if parameter.name.upper() in SIZES else ""
        named = "float" if parameter.type in ("typename", "class") else named
        one = texts[index] if index < len(texts) else parameter.default or named
        if not one:
            wanted = ", ".join(f"{p.type} {p.name}" for p in parameters)
            raise UsageError(
                f"{chosen.name} is a template of <{wanted}>: pass all of them, as in --template 'float,32'"
            )
        found.append((parameter, one))
    return found


def templates(chosen: Signature, known: Mapping[str, int], texts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Arguments for the kernel's template: as `texts` of its project have them, of constants so called, usual ones."""
    parameters = chosen.template
    for text in texts:
        for inside in re.findall(rf"\b{chosen.name}\s*<([^<>;{{}}]+)>", text):
            if given := _evaluated(split(inside), parameters, known):
                yield given
    sides = {found: known.get(p.name, _USUAL[found]) for p in parameters if (found := _tile_of(p.name))}
    known = dict(known)
    for parameter in parameters:  # beside sides of tiles, a size is that of the block
        if parameter.name not in known and re.search(r"thread|block_?(?:size|dim)$", parameter.name, re.I) and sides:
            known[parameter.name] = _threads(sides)
    flags = ("true", "false") if any("bool" in parameter.type for parameter in parameters) else ("",)
    for flag in flags:
        values = [_argument(parameter, known, flag) for parameter in parameters]
        if all(values):
            yield tuple(values)


def _evaluated(given: Sequence[str], parameters: Sequence[Parameter], known: Mapping[str, int]) -> tuple[str, ...]:
    """The arguments as numbers and types; none where one means nothing here."""
    found = []
    for parameter, text in zip(parameters, given, strict=False):
        if re.search(r"\b(?:typename|class|bool)\b", parameter.type):
            found.append(text)
            continue
        try:
            found.append(str(evaluate(text, known)))
        except UsageError:
            return ()
    found += [parameter.default for parameter in parameters[len(found) :]]
    return tuple(found) if all(found) else ()


def _argument(parameter: Parameter, known: Mapping[str, int], flag: str) -> str:
    name = parameter.name
    if parameter.default:
        return parameter.default
    if parameter.type in ("typename", "class"):
        return "float"
    if "bool" in parameter.type:
        return flag
    if name.upper() in ("M", "N", "K"):
        return name.upper()
    if name in known:
        return str(known[name])
    if found := _tile_of(name):
        return str(_USUAL[found])
    if re.search(r"stage", name, re.I):
        return "3"
    return "16" if re.search(r"block|tile|size|dim|width", name, re.I) else ""


def _tile_of(name: str) -> str:
    """`BM` of BLOCK_SIZE_M, BM and ThreadblockM, `TN` of THREAD_SIZE_X; empty where it is no side of a tile."""
    match = _TILE.match(name)
    if not match:
        return ""
    axis = {"X": "N", "Y": "M"}.get(match[2].upper(), match[2].upper())
    return _LEVELS.get(match[1].lower(), "T") + axis


def blocks(chosen: Signature, source: str, names: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Blocks to try, what the source says first. source: the file without what the kernel does not need."""
    found: list[tuple[int, ...]] = []
    bounds = re.search(rf"__launch_bounds__\s*\(([^,()]+)[^()]*\)\s*(?:void\s+)?{chosen.name}\b", source)
    for text in ([bounds[1]] if bounds else []) + [name for name in names if re.search(r"threads", name, re.I)]:
        try:
            found.append((evaluate(text, names),))
        except UsageError:
            continue
    sides = {known: value for name, value in names.items() if (known := _tile_of(name))}
    if "threadIdx.y" in source:  # in a function that it calls, it may be
        columns, rows = (sides.get("B" + axis, 0) // (sides.get("T" + axis) or 1) for axis in "NM")
        found += [(columns, rows), *_squares(chosen.body, names), *_SIDES]
    else:
        found += [(_threads(sides),), *((threads,) for threads in _LINES)]
    return [block for block in dict.fromkeys(found) if 0 < math.prod(block) <= launch.MOST_THREADS]


def _threads(sides: Mapping[str, int]) -> int:
    """Of a block whose tile is divided among warps, if these have a tile, or among threads."""
    part, each = ("W", WARP) if {"WM", "WN"} <= sides.keys() and "TM" not in sides else ("T", 1)
    return each * math.prod(sides.get("B" + axis, 0) // (sides.get(part + axis) or 1) for axis in "MN")


def _squares(body: str, names: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Blocks of as many threads on each side as all arrays in shared memory are long."""
    lengths = set(re.findall(r"\[\s*(\w+)\s*\]", " ".join(re.findall(r"__shared__([^;]*);", body))))
    for length in lengths if len(lengths) == 1 else ():
        side = int(length) if length.isdigit() else names.get(length, 0)
        yield side, side
