"""The operands of PTX instructions, and their parser (PTX ISA, 4.5, constants, and 6, instruction operands)."""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.text.errors import ParseError


@dataclass(frozen=True)
class Register:
    """A register, or a special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal: an int, or a float given by its bits."""

    value: int | np.floating


@dataclass(frozen=True)
class Symbol:
    """The name of a label, function or variable; as an operand its address, plus an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, the offset in bytes."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True)
class TensorAddress:
    """`[map, {x, y, ...}]`: the address of a tensor map, and coordinates in its tensor, innermost first."""

    map: Address
    coordinates: tuple[Operand, ...]


@dataclass(frozen=True)
class Vector:
    """`{a, b, ...}`; None stands for the sink `_`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """`d|p`: two destinations; None stands for the sink `_`."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    """`!p`: a predicate operand, inverted."""

    register: Register


Operand = Register | Immediate | Symbol | Address | TensorAddress | Vector | Pair | Negated | None


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the items of a vector, or an operand without braces as the only item."""
    return operand.items if isinstance(operand, Vector) else (operand,)


_OPERANDS = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{\[(])+")
_BRACKET = re.compile(r"[{\[(]")
_NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]+|\d+)U?$")


def split_operands(text: str) -> list[str]:
    """Split operands at their commas, but not inside braces and brackets."""
    parts = _OPERANDS.findall(text) if _BRACKET.search(text) else text.split(",")
    return [part for found in parts if (part := found.strip())]


@functools.lru_cache(maxsize=4096)  # a kernel names each of its registers many times
def read_operand(text: str) -> Operand:
    """Parse one operand; braces and parentheses make a vector. Raises ParseError for other text."""
    if text == "_":
        return None
    if text.startswith(("{", "(")):
        return Vector(tuple(read_operand(part.strip()) for part in text.strip("{}() ").split(",")))
    if text.startswith("["):
        return _bracketed(text)
    if "|" in text:
        first, _, second = text.partition("|")
        return Pair(read_operand(first.strip()), read_operand(second.strip()))
    if text.startswith("!"):
        return Negated(Register(text[1:].strip()))
    if text.startswith("%"):
        return Register(text)
    if (number := read_immediate(text)) is not None:
        return number
    if named := re.fullmatch(r"([\w$.]+)(?:\s*\+\s*(\d+))?", text):
        return Symbol(named[1], int(named[2] or 0))
    raise ParseError(f"operand not understood: {text}")


def _bracketed(text: str) -> Address | TensorAddress:
    if tiled := re.fullmatch(r"\[\s*([^,{}]+?)\s*,\s*\{([^{}]*)\}\s*\]", text):
        return TensorAddress(
            _address(f"[{tiled[1]}]"), tuple(read_operand(part.strip()) for part in tiled[2].split(","))
        )
    return _address(text)


def _address(text: str) -> Address:
    match = re.fullmatch(r"\[\s*([\w$%.]+)\s*(?:\+?\s*(-?\w+))?\s*\]", text)
    base = read_operand(match[1]) if match else None
    if match is None or not isinstance(base, Register | Symbol | Immediate):
        raise ParseError(f"address not understood: {text}")
    return Address(base, int(match[2] or "0", 0))


def read_immediate(text: str) -> Immediate | None:
    """Parse a literal; None for other text."""
    if text == "WARP_SZ":
        return Immediate(32)
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Immediate(np.float32(struct.unpack(">f", bytes.fromhex(text[2:]))[0]))
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return Immediate(np.float64(struct.unpack(">d", bytes.fromhex(text[2:]))[0]))
    if _NUMBER.fullmatch(text):
        digits = text.rstrip("U")
        octal = re.fullmatch(r"(-?)0([0-7]+)", digits)
        return Immediate(int(octal[1] + octal[2], 8) if octal else int(digits, 0))
    if text in ("true", "false"):
        return Immediate(int(text == "true"))
    return None
