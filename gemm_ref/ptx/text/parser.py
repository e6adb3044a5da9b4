"""Read PTX text into kernels: instructions with their operands, and where each came from in the source.

Covers the syntax of PTX ISA chapters 4 and 5 that nvcc and Triton write: entries, parameters, register and
memory declarations, labels, guards, vector operands, `.loc`. Which instructions exist is not this file's concern.
"""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import dataclass, field

import numpy as np

from gemm_ref.ptx.text.dtypes import DTYPES
from gemm_ref.ptx.text.errors import ParseError
from gemm_ref.ptx.text.places import Places


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
    """A label or a variable's name; as an operand, the variable's address."""

    name: str


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, the offset in bytes."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True)
class TensorAddress:
    """`[map, {x, y, ...}]`: the address of a tensor map, and coordinates in its tensor, the innermost first."""

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
    """The items of a vector; an operand without braces is the only one."""
    return operand.items if isinstance(operand, Vector) else (operand,)


@dataclass(frozen=True)
class Instruction:
    """One instruction: `@guard name operands`, with its source file and line."""

    name: str  # with all its modifiers, as in `ld.global.nc.f32`
    operands: tuple[Operand, ...]
    guard: Register | None
    guard_negated: bool
    text: str
    file: str
    line: int
    ptx_line: int = 0  # in the PTX text itself, from 1: what ptxas calls the instruction in its line table
    callers: tuple[str, ...] = ()  # `file:line` into which that line's function was inlined, then that one's, ...

    @functools.cached_property
    def parts(self) -> list[str]:
        """The name at its dots: `["ld", "global", "nc", "f32"]`."""
        return self.name.split(".")

    @property
    def caller(self) -> str:
        """The first of `callers` in another file; of one in the same the first; empty where it was not inlined."""
        elsewhere = [caller for caller in self.callers if not caller.startswith(self.file)]
        return (elsewhere or [*self.callers, ""])[0]

    @property
    def place(self) -> str:
        """`file:line: text`, the start of every error message; of a long list of registers the first and last."""
        text = _LONG_VECTOR.sub(r"{\1, ..., \2}", self.text)
        return f"{self.file}:{self.line}: {text}"

    @property
    def origin(self) -> str:
        """`place`, and whose call brought in a line of a header."""
        elsewhere = self.caller and not self.caller.startswith(self.file)
        return f"{self.place} (called at {self.caller})" if elsewhere else self.place


@dataclass(frozen=True)
class Variable:
    """A declared memory variable; `size` in bytes, 0 for `extern` dynamic shared memory."""

    name: str
    space: str  # shared, local, global or const
    align: int
    size: int
    data: bytes = b""  # initial contents of a global or const variable

    @property
    def source_name(self) -> str:
        """Its name as the source has it: nvcc's ends with the length of that name and the name."""
        endings = re.findall(r"(?=E(\d+)([A-Za-z_]\w*)$)", self.name)
        return next((name for length, name in endings if int(length) == len(name)), self.name)


@dataclass
class Entry:
    """A kernel as written: its parameters in order, registers, variables, instructions and labels."""

    name: str
    # (name, type), the type without its dot; TENSOR_MAP for a CUtensorMap
    parameters: list[tuple[str, str]] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)  # name or `prefix<` -> type
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)  # `.branchtargets`, by the label before them
    cluster: tuple[int, int, int] | None = None  # blocks of a cluster along x, y and z, where the kernel says

    def register_type(self, name: str) -> str:
        """The declared type of a register. Raises ParseError when it was not declared."""
        prefix = name.rstrip("0123456789") + "<"
        declared = self.registers.get(name) or self.registers.get(prefix)
        if declared is None:
            raise ParseError(f"register {name} of {self.name} is not declared")
        return declared


TENSOR_MAP = "tensormap"  # the type of a parameter that is a CUtensorMap: 128 bytes, passed by value

_ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*\(([^)]*)\)([^{]*)\{", re.S)
_VARIABLE = re.compile(
    r"\.(shared|local|global|const)\s+(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$.%]+)"
    r"\s*((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.S,
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)")
_LABEL = re.compile(r"([\w$%.]+)\s*:(?!:)")
_STATEMENT = re.compile(r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.S)
_OPERANDS = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+")
_LONG_VECTOR = re.compile(r"\{([^{},]+)(?:,[^{},]+){7,},\s*([^{},]+)\}")
_NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]+|\d+)U?$")


def parse(text: str) -> dict[str, Entry]:
    """Every kernel of a PTX module, by name. Raises ParseError for text that is not PTX as described above."""
    module, text = text, _without_comments(text)
    entries, outside, position = {}, [], 0
    for header in _ENTRY.finditer(text):
        outside.append(text[position : header.start()])
        position = _closing_brace(text, header.end())
        entry = Entry(header[1], parameters=_parameters(header[2]), cluster=_cluster(header[3]))
        _parse_body(entry, text[header.end() : position], Places(module), 1 + text.count("\n", 0, header.end()))
        entries[entry.name] = entry
    outside.append(text[position:])
    if not entries:
        raise ParseError("the text holds no kernel: no `.entry` was found")
    shared_by_all = _module_variables("\n".join(outside))
    for entry in entries.values():
        entry.variables = shared_by_all + entry.variables
    return entries


def _without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def _closing_brace(text: str, start: int) -> int:
    depth = 1
    for brace in re.finditer(r"[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return start + brace.start()
    raise ParseError("a kernel's closing brace is missing: is the text cut off?")


def _parameters(text: str) -> list[tuple[str, str]]:
    parameters = []
    for declaration in filter(None, (part.strip() for part in text.split(","))):
        words = [word for word in declaration.split() if not re.fullmatch(r"\d+", word)]
        kind = next(word[1:] for word in words if word[1:] in DTYPES)
        name, _, size = words[-1].partition("[")
        if size and (kind, size) != ("b8", "128]"):
            raise ParseError(
                f"parameter {words[-1]} is passed by value as bytes, which the reference GPU supports only for a "
                "CUtensorMap of 128 bytes"
            )
        parameters.append((name, TENSOR_MAP if size else kind))
    return parameters


def _cluster(directives: str) -> tuple[int, int, int] | None:
    """The shape in `.reqnctapercluster x, y, z`, one of the directives between parameters and body."""
    found = re.search(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", directives)
    if found is None:
        return None
    x, y, z = (int(size or 1) for size in found.groups())
    return x, y, z


def _module_variables(text: str) -> list[Variable]:
    statements = re.findall(r"(\.(?:shared|global|const)\b[^;]*);", text)
    return [_variable(statement) for statement in statements]


def _variable(statement: str) -> Variable:
    match = _VARIABLE.match(statement.strip())
    if match is None:
        raise ParseError(f"declaration not understood: {statement.strip()}")
    space, align, kind, name, dimensions, initial = match.groups()
    if kind not in DTYPES:
        raise ParseError(f"declaration of unknown type .{kind}: {statement.strip()}")
    width = DTYPES[kind].itemsize
    count = 1
    for dimension in re.findall(r"\[(\d*)\]", dimensions):
        count *= int(dimension or 0)
    data = b""
    if initial is not None:
        immediates = [_immediate(value.strip()) for value in initial.strip(" {}\n").split(",")]
        values = [immediate.value for immediate in immediates if immediate is not None]
        if len(values) < len(immediates):
            raise ParseError(f"initial value of {name} is not a list of numbers")
        data = np.array(values).astype(DTYPES[kind]).tobytes()
    return Variable(name, space, int(align or width), width * count, data)


def _parse_body(entry: Entry, body: str, places: Places, ptx_line: int) -> None:
    """Walk the statements between the kernel's braces, the first on `ptx_line`; inner braces only scope names."""
    position, counted = 0, 0
    while True:
        while position < len(body) and (body[position].isspace() or body[position] in "{};"):
            position += 1
            if body[position - 1] == "{":
                end = _closing_brace(body, position)
                body = body[:position] + _scoped(entry, body[position:end]) + body[end:]
        if position == len(body):
            return
        if after := places.read(body, position):
            position = after
        elif label := _LABEL.match(body, position):
            entry.labels[label[1]] = len(entry.instructions)
            position = label.end()
        else:
            end = body.find(";", position)
            if end < 0:
                raise ParseError(f"statement without its semicolon: {body[position : position + 60].strip()}")
            ptx_line += body.count("\n", counted, position)
            counted = position
            _parse_statement(entry, " ".join(body[position:end].split()), places, ptx_line)
            position = end + 1


def _scoped(entry: Entry, block: str) -> str:
    """A block in braces, with names it declares that the kernel already has (inline assembly, twice) made new."""
    names = [n.strip() for declared in re.findall(r"\.reg\s+\.\w+\s+([^;]*);", block) for n in declared.split(",")]
    labels = re.findall(r"(?:^|[;{}\s])([A-Za-z_$][\w$]*)\s*:(?!:)", block)
    for name in {*names, *labels}:
        stem, counted, _ = name.partition("<")
        if name in entry.labels or stem + counted in entry.registers:
            fresh = f"{stem}$s{len(entry.instructions)}_"
            tail = r"(?=<?\d+\b)" if counted else r"(?![\w$])"
            block = fresh.join(re.split(rf"(?<![\w$%.]){re.escape(stem)}{tail}", block))
    return block


def _parse_statement(entry: Entry, text: str, places: Places, ptx_line: int) -> None:
    if declared := _REGISTERS.match(text):
        for name in declared[2].split(","):
            entry.registers[re.sub(r"<\d+>", "<", name.strip())] = declared[1]
    elif text.startswith((".shared", ".local")):
        entry.variables.append(_variable(text))
    elif text.startswith(".branchtargets"):
        entry.tables[next(reversed(entry.labels))] = [name.strip() for name in text.split(maxsplit=1)[1].split(",")]
    elif text.startswith(".pragma"):
        return  # advice to ptxas
    elif text.startswith("."):
        raise ParseError(f"{places.file}:{places.line}: directive not understood: {text}")
    else:
        match = _STATEMENT.fullmatch(text)
        if match is None:
            raise ParseError(f"{places.file}:{places.line}: instruction not understood: {text}")
        negated, guard, name, operands = match.groups()
        try:
            read = tuple(_operand(part) for part in _split(operands))
        except ParseError as error:
            raise ParseError(f"{places.file}:{places.line}: {text}: {error}") from None
        entry.instructions.append(
            Instruction(
                name=name,
                operands=read,
                guard=Register(guard) if guard else None,
                guard_negated=negated == "!",
                text=text,
                file=places.file,
                line=places.line,
                ptx_line=ptx_line,
                callers=places.callers,
            )
        )


def _split(text: str) -> list[str]:
    """Operands at their commas, those inside braces and brackets left whole."""
    return [part.strip() for part in _OPERANDS.findall(text) if part.strip()]


@functools.lru_cache(maxsize=4096)  # a kernel names each of its registers many times
def _operand(text: str) -> Operand:
    if text == "_":
        return None
    if text.startswith("{"):
        return Vector(tuple(_operand(part.strip()) for part in text.strip("{} ").split(",")))
    if text.startswith("["):
        return _bracketed(text)
    if "|" in text:
        first, _, second = text.partition("|")
        return Pair(_operand(first.strip()), _operand(second.strip()))
    if text.startswith("!"):
        return Negated(Register(text[1:].strip()))
    if text.startswith("%"):
        return Register(text)
    if (number := _immediate(text)) is not None:
        return number
    if re.fullmatch(r"[\w$.]+", text):
        return Symbol(text)
    raise ParseError(f"operand not understood: {text}")


def _bracketed(text: str) -> Address | TensorAddress:
    if tiled := re.fullmatch(r"\[\s*([^,{}]+?)\s*,\s*\{([^{}]*)\}\s*\]", text):
        return TensorAddress(_address(f"[{tiled[1]}]"), tuple(_operand(part.strip()) for part in tiled[2].split(",")))
    return _address(text)


def _address(text: str) -> Address:
    match = re.fullmatch(r"\[\s*([\w$%.]+)\s*(?:\+\s*(-?\w+))?\s*\]", text)
    base = _operand(match[1]) if match else None
    if match is None or not isinstance(base, Register | Symbol | Immediate):
        raise ParseError(f"address not understood: {text}")
    return Address(base, int(match[2] or "0", 0))


def _immediate(text: str) -> Immediate | None:
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
