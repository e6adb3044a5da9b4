"""Whole numbers from what a user writes: `cdiv(N, 32)`, `4 * (BM + BN) * BK`. Read with `ast`, never executed."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from experiments.records.request import UsageError
from gemm_ref import cdiv

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
_LARGEST = 1 << 62  # nothing that a launch is made of is larger; also keeps a shift from filling the memory


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """The value of an expression of whole numbers, `names`, + - * / % << >>, cdiv, min and max.

    Raises UsageError for anything else, naming what there is.
    """
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


def split(text: str, angles: bool = False) -> list[str]:
    """The parts of `text` at the commas that stand outside brackets; `angles` are brackets in C++'s templates."""
    opening, closing = ("([{<", ")]}>") if angles else ("([{", ")]}")
    parts, depth = [""], 0
    for character in text:
        depth += (character in opening) - (character in closing)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def constants(source: str, known: Mapping[str, int]) -> dict[str, int]:
    """What a CUDA source calls by name: its `#define`s and `const int`s of one value, and `known`, which goes first.

    A name that is defined twice with different values means nothing here, and is left out.
    """
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
    """`BM = 128, BN = 64` as pairs."""
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
    """What each `NAME=VALUE` defines, of those whose value is a whole number."""
    pairs = (define.partition("=") for define in defines)
    return {name.strip(): int(value) for name, _, value in pairs if re.fullmatch(r"\s*-?\d+\s*", value)}
