"""Arguments of a kernel's template, and blocks, as the source has them or as is common: candidates to try."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from experiments.check.cuda import launch
from experiments.check.cuda.expressions import evaluate, split
from experiments.check.cuda.roles import SIZES, role_of
from experiments.check.cuda.syntax import Parameter, Signature
from experiments.records.request import UsageError

Template: TypeAlias = tuple[tuple[Parameter, str], ...]

WARP = 32
_SQUARE_BLOCKS = ((16, 16), (32, 32), (32, 8), (8, 8))  # common ones of kernels that count threads along x and y
_LINE_BLOCKS = (256, 128, 512, 1024, 64, 32)  # and along x alone
# A number's meaning by its name: the side of a block's, of a warp's or of a thread's tile. Y counts rows, X columns.
_TILE = re.compile(
    r"^k?_?(block|tile|threadblock|cta|b|warp|w|thread|t)(?:_?(?:size|tile|dim|items|work))*_?([mnkxy])$", re.I
)
_LEVELS = {"b": "B", "block": "B", "tile": "B", "threadblock": "B", "cta": "B", "w": "W", "warp": "W"}
_COMMON = {"BM": 128, "BN": 128, "BK": 16, "WM": 64, "WN": 64, "WK": 16, "TM": 8, "TN": 8, "TK": 1}
_ONE_ELEMENT = {"BM": 32, "BN": 32, "BK": 32}  # where a thread has one element, since no parameter is its tile


def specified(signature: Signature, text: str) -> Template:
    """Returns each parameter of the template with its argument: --template's, else its default, else a common one.

    Raises UsageError where one has none of these.
    """
    texts, parameters = split(text, angles=True), signature.template
    if len(texts) > len(parameters):
        raise UsageError(f"--template has {len(texts)} arguments and {signature.name} takes {len(parameters)}")
    values = fill(parameters, texts, lambda parameter: _argument(parameter, {}, "false", "float"))
    if parameters and not values:
        wanted = ", ".join(f"{p.type} {p.name}" for p in parameters)
        raise UsageError(f"{signature.name} is a template of <{wanted}>: pass all of them, as in --template 'float,32'")
    return tuple(zip(parameters, values, strict=True))


def instances(
    name: str, parameters: Sequence[Parameter], known: Mapping[str, int], texts: Iterable[str]
) -> Iterator[tuple[str, ...]]:
    """Yields the arguments that `texts` of a project have for a template; numbers, types and flags."""
    for inside in re.findall(rf"\b{name}\s*<([^<>;{{}}]+)>", "\n".join(texts)):
        pairs = zip(split(inside), parameters, strict=False)
        with contextlib.suppress(UsageError):  # an expression of unknown names
            values = [text if is_type(p) or "bool" in p.type else str(evaluate(text, known)) for text, p in pairs]
            if found := fill(parameters, values):
                yield found


def common(parameters: Sequence[Parameter], known: Mapping[str, int], element: str) -> Iterator[tuple[str, ...]]:
    """Yields arguments for a template: constants of the same names, or common values."""
    tiles = {p.name: found for p in parameters if (found := _tile_side(p.name))}
    if tiles and tiles.keys().isdisjoint(known) and {*tiles.values()} <= _ONE_ELEMENT.keys():
        yield from common(parameters, {name: _ONE_ELEMENT[side] for name, side in tiles.items()} | {**known}, element)
    sides = {side: known.get(name, _COMMON[side]) for name, side in tiles.items()}
    known = dict(known)
    for parameter in parameters:  # beside sides of tiles, a size is that of the block
        if parameter.name not in known and re.search(r"thread|block_?(?:size|dim)$", parameter.name, re.I) and sides:
            known[parameter.name] = _threads(sides)
    for flag in ("true", "false") if any("bool" in parameter.type for parameter in parameters) else ("",):
        if values := fill(parameters, (), functools.partial(_argument, known=known, flag=flag, element=element)):
            yield values


def explain_failure(instance: str, template: Template, error: UsageError) -> UsageError:
    """Returns the error of an instance whose arguments were guessed and which does not compile."""
    wanted = ", ".join(f"{parameter.type} {parameter.name}" for parameter, _ in template)
    return UsageError(f"{instance} was guessed, and does not compile: tell its <{wanted}> with --template\n{error}")


def fill(
    parameters: Sequence[Parameter], texts: Sequence[str], fallback: Callable[[Parameter], str] = lambda _: ""
) -> tuple[str, ...]:
    """Returns an argument for each parameter: of `texts`, its default, or the fallback; none where one is empty."""
    values: dict[str, str] = {}
    for parameter, text in zip(parameters, itertools.chain(texts, itertools.repeat("")), strict=False):
        text = text or parameter.default or fallback(parameter)
        values[parameter.name] = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: values.get(word[0], word[0]), text)
    return tuple(values.values()) if all(values.values()) else ()


def is_type(parameter: Parameter) -> bool:
    """Whether a template's parameter is a type, of a concept or of any kind, and no number."""
    return re.search(r"\b(?:bool|auto|unsigned|int|long|size_t|u?int\d+_t)\b", parameter.type) is None


def _argument(parameter: Parameter, known: Mapping[str, int], flag: str, element: str) -> str:
    name = parameter.name
    if is_type(parameter):
        return element
    if "bool" in parameter.type:
        return flag
    if role_of(name) in SIZES:
        return role_of(name)
    if name in known:
        return str(known[name])
    if side := _tile_side(name):
        return str(_COMMON[side])
    if re.search(r"stage", name, re.I):
        return "3"
    return "16" if re.search(r"block|tile|size|dim|width", name, re.I) else ""


def _tile_side(name: str) -> str:
    """`BM` of BLOCK_SIZE_M, BM and ThreadblockM, `TN` of THREAD_SIZE_X; empty where it is no side of a tile."""
    match = _TILE.match(name)
    if not match:
        return ""
    axis = {"X": "N", "Y": "M"}.get(match[2].upper(), match[2].upper())
    return _LEVELS.get(match[1].lower(), "T") + axis


def candidate_blocks(signature: Signature, source: str, names: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Returns blocks to try, those that the source suggests first. source: the file as far as the kernel needs it."""
    found: list[tuple[int, ...]] = []
    bounds = re.search(rf"__launch_bounds__\s*\(([^,()]+)[^()]*\)\s*(?:void\s+)?{signature.name}\b", source)
    for text in ([bounds[1]] if bounds else []) + [name for name in names if re.search(r"threads", name, re.I)]:
        with contextlib.suppress(UsageError):
            found.append((evaluate(text, names),))
    sides = {side: value for name, value in names.items() if (side := _tile_side(name))}
    if "threadIdx.y" in source:  # maybe in a function that the kernel calls
        columns, rows = (sides.get("B" + axis, 0) // (sides.get("T" + axis) or 1) for axis in "NM")
        arrays = [int(x) if x.isdigit() else names.get(x, 0) for x in launch.shared_array_sides(signature.body)]
        found += [(columns, rows), *([tuple(arrays)] if arrays else []), *_SQUARE_BLOCKS]
    else:
        found += [(_threads(sides),), *((threads,) for threads in _LINE_BLOCKS)]
    return [block for block in dict.fromkeys(found) if 0 < math.prod(block) <= launch.MAX_THREADS]


def _threads(sides: Mapping[str, int]) -> int:
    """The threads of a block whose tile is divided among warps, if these have a tile, or among threads."""
    part, each = ("W", WARP) if {"WM", "WN"} <= sides.keys() and "TM" not in sides else ("T", 1)
    return each * math.prod(sides.get("B" + axis, 0) // (sides.get(part + axis) or 1) for axis in "MN")
