"""Whole numbers from what a user writes: `cdiv(N, 32)`, `4 * (BM + BN) * BK`. Read with `ast`, never executed.

And the other way round: the expression in M, N and K for numbers that are known at some sizes, as of a grid.
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from experiments.check.cuda.syntax import split
from experiments.records.request import UsageError
from gemm_ref import Problem, cdiv

_FUNCTIONS: Mapping[str, Callable[..., int]] = MappingProxyType({"cdiv": cdiv, "min": min, "max": max})
_OPERATORS = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.floordiv,  # as in C, for the positive numbers that sizes are
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.LShift: operator.lshift,
        ast.RShift: operator.rshift,
    }
)
_LARGEST_TILE = 1024
_ROUNDEST_FIRST = sorted(range(1, _LARGEST_TILE + 1), key=lambda tile: (-(tile & -tile), tile))
_TILES = (1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
_LARGEST = 1 << 62  # nothing that a launch is made of is larger; also keeps a shift from filling the memory


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Returns the value of numbers, `names`, + - * / % << >>, cdiv, min and max. Raises UsageError for all else."""
    try:
        return _value(_parsed(text.strip()), names)
    except SyntaxError as error:
        raise UsageError(f"{text!r} is not an expression: write something like cdiv(N, 32)") from error
    except ZeroDivisionError as error:
        raise UsageError(f"{text!r} divides by zero") from error
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from error


@functools.lru_cache(maxsize=1024)  # a launch is computed anew for each size
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def constants(source: str, known: Mapping[str, int]) -> dict[str, int]:
    """Returns the `#define`s and `const int`s of one value, and `known`, which takes precedence."""
    macro = r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*(?://.*|/\*.*)?$"
    pattern = macro + r"|\bconst(?:expr)?\s+(?:static\s+)?(?:unsigned\s+)?int\s+([^;]+);"
    pattern += r"|(?:\bint|\bsize_t|\bunsigned)\s+(\w+\s*=\s*\d+)\s*[,>]"  # what a template has by default
    found: dict[str, int] = {}
    twice = set()
    for macro_name, text, *declared in re.findall(pattern, source, re.M):
        for name, value in [(macro_name, text)] if macro_name else definitions("".join(declared)):
            try:
                number = evaluate(value, found | dict(known))
            except UsageError:
                continue  # a macro with arguments, a type, an index: nothing that a launch is made of
            if found.setdefault(name, number) != number:
                twice.add(name)
    return {name: value for name, value in found.items() if name not in twice} | dict(known)


def definitions(text: str) -> list[tuple[str, str]]:
    """Returns `BM = 128, BN = 64` as pairs."""
    pairs = (part.partition("=") for part in split(text))
    return [(name.strip(), value) for name, sign, value in pairs if sign]


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"{name} has no value here; there are {', '.join(names)}, and numbers")
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            left, right = _value(node.left, names), _value(node.right, names)
            if isinstance(op, ast.LShift | ast.RShift) and not 0 <= right < 63:
                raise ValueError(f"a shift by {right}")
            return _checked(_OPERATORS[type(op)](left, right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            values = [_value(argument, names) for argument in arguments]
            try:
                return _checked(_FUNCTIONS[name](*values))
            except TypeError as error:
                raise ValueError(f"{name} does not take {len(values)} numbers") from error
    raise ValueError(f"{ast.unparse(node)!r} is not understood: there are + - * / % << >>, cdiv(a, b), min and max")


def _checked(value: int) -> int:
    if abs(value) > _LARGEST:
        raise ValueError("its value is too large")
    return value


def numbers(defines: Iterable[str]) -> dict[str, int]:
    """Returns the whole numbers that `NAME=VALUE` definitions set."""
    pairs = (define.partition("=") for define in defines)
    return {name.strip(): int(value) for name, _, value in pairs if re.fullmatch(r"\s*-?\d+\s*", value)}


def fit(values: Mapping[Problem, int], axis: int) -> str | None:
    """Returns the simplest expression with these values; None where there is none. `axis`: of a grid, x is 0."""
    if len(set(values.values())) == 1:
        return str(next(iter(values.values())))
    named = [({"M": p.m, "N": p.n, "K": p.k}, value) for p, value in values.items()]
    candidates = _candidates(values, axis)
    return next((text for text in candidates if all(evaluate(text, names) == value for names, value in named)), None)


def fit_one_size(value: int, size: int, name: str, step: int) -> str | None:
    """Returns the expression of one size for `value`: divided by `step`, or by the roundest number if that is 0."""
    if value == 1 and size > _LARGEST_TILE:
        return None
    if step and size // step == value != cdiv(size, step):
        return f"{name} / {step}"
    tiles = (tile for tile in _ROUNDEST_FIRST if cdiv(size, tile) == value and step in (0, tile))
    tile = next(tiles, 0)
    return f"cdiv({name}, {tile})" if tile else None


def _candidates(values: Mapping[Problem, int], axis: int) -> Iterator[str]:
    """Expressions with the value of the largest problem."""
    problem, value = max(values.items(), key=lambda item: item[0].m * item[0].n * item[0].k)
    sizes = {"N": problem.n, "M": problem.m, "K": problem.k}
    order = ("N", "M", "K") if axis != 1 else ("M", "N", "K")
    for name, tile in itertools.product(order, _ROUNDEST_FIRST):
        if cdiv(sizes[name], tile) == value:
            yield f"cdiv({name}, {tile})"
        if sizes[name] // tile == value:
            yield f"{name} / {tile}"
    for name in order:  # a multiple of a size: shared memory, or several blocks for a tile
        if value % sizes[name] == 0:
            yield f"{value // sizes[name]} * {name}"
        for tile in _TILES:
            blocks = cdiv(sizes[name], tile)
            if value % blocks == 0:
                yield f"{value // blocks} * cdiv({name}, {tile})"
    for rows, columns in itertools.product(_TILES, repeat=2):
        if cdiv(problem.m, rows) * cdiv(problem.n, columns) == value:
            yield f"cdiv(M, {rows}) * cdiv(N, {columns})"
    yield from (f"cdiv(M * N, {tile})" for tile in _ROUNDEST_FIRST if cdiv(problem.m * problem.n, tile) == value)
