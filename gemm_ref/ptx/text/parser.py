"""The parser of PTX text: kernels, instructions with their operands, and the source line of each.

It covers the syntax of PTX ISA, chapters 4, 5 and 11, that nvcc and Triton write: entries, parameters, register and
memory declarations, labels, guards, vector operands, `.loc`. `isa` knows which instructions there are.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from gemm_ref.ptx.text.dtypes import DTYPES
from gemm_ref.ptx.text.errors import ParseError
from gemm_ref.ptx.text.operands import Immediate, Operand, Register, Symbol, Vector, read_operand, split_operands
from gemm_ref.ptx.text.places import Places


@dataclass(eq=False)
class Instruction:
    """One instruction: `@guard name operands`, with its source file and line."""

    name: str  # with all its modifiers, as in `ld.global.nc.f32`
    operands: tuple[Operand, ...]
    guard: Register | None
    guard_negated: bool
    text: str
    file: str
    line: int
    ptx_line: int = 0  # in the PTX text, from 1: the line in the line table of ptxas
    callers: tuple[str, ...] = ()  # `file:line` of the call that was inlined there, then of that one's caller, ...

    def __post_init__(self) -> None:
        self.parts = _parts_of(self.name)  # `["ld", "global", "nc", "f32"]`

    @property
    def caller(self) -> str:
        """The first of `callers` in another file, or else the first; empty if it was not inlined."""
        elsewhere = [caller for caller in self.callers if not caller.startswith(self.file)]
        return (elsewhere or [*self.callers, ""])[0]

    @property
    def place(self) -> str:
        """`file:line: text`, the start of every error message, with long lists of registers abbreviated."""
        text = _LONG_VECTOR.sub(r"{\1, ..., \2}", self.text)
        return f"{self.file}:{self.line}: {text}"

    @property
    def _call_site(self) -> str:
        """Which line of another file called the function that a header defines, in parentheses."""
        elsewhere = self.caller and not self.caller.startswith(self.file)
        return f" (called at {self.caller})" if elsewhere else ""

    @property
    def origin(self) -> str:
        """`place`, and the call site of a function in a header."""
        return self.place + self._call_site

    def line_seen_from(self, here: Instruction) -> str:
        """Return the line of the instruction, for a reader who knows the file of `here`."""
        return f"line {self.line}" if self.file == here.file else f"{self.file}:{self.line}{self._call_site}"


@functools.cache
def _parts_of(name: str) -> list[str]:
    return name.split(".")


@dataclass(frozen=True)
class Variable:
    """A declared memory variable; `size` in bytes, 0 for `extern` dynamic shared memory."""

    name: str
    space: str  # shared, local, global, const or param
    align: int
    size: int
    data: bytes = b""  # initial contents of a global or const variable
    addresses: tuple[tuple[int, Symbol], ...] = ()  # (byte offset, symbol) of addresses in the contents

    @property
    def source_name(self) -> str:
        """The name in the source: nvcc's mangled name ends with the length of that name and the name."""
        endings = re.findall(r"(?=E(\d+)([A-Za-z_]\w*)$)", self.name)
        return next((name for length, name in endings if int(length) == len(name)), self.name)


@dataclass
class Entry:
    """A kernel or a function as written: its parameters in order, registers, variables, instructions and labels."""

    name: str
    # Of a kernel: (name, type), the type without its dot, and `b8[24]` for 24 bytes by value.
    parameters: list[tuple[str, str]] = field(default_factory=list)
    # Of a function, in space `param`: its formal parameters and its results.
    formals: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    is_function: bool = False
    registers: dict[str, str] = field(default_factory=dict)  # name or `prefix<` -> type
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)  # `.branchtargets`, by the label before them
    cluster: tuple[int, int, int] | None = None  # blocks of a cluster along x, y and z, if the kernel declares it
    most_threads: int | None = None  # of a block, if the kernel declares it
    functions: list[Entry] = field(default_factory=list)  # that a kernel may call

    def register_type(self, name: str) -> str:
        """Return the declared type of a register. Raises ParseError for an undeclared one."""
        prefix = name.rstrip("0123456789") + "<"
        declared = self.registers.get(name) or self.registers.get(prefix)
        if declared is None:
            raise ParseError(f"register {name} of {self.name} is not declared")
        return declared

    def find_callees(self) -> tuple[set[str], bool]:
        """Return the functions that it calls by name, and whether it calls any by address."""
        calls = [instruction for instruction in self.instructions if instruction.parts[0] == "call"]
        targets = [next(o for o in call.operands if not isinstance(o, Vector)) for call in calls]
        names = {target.name for target in targets if isinstance(target, Symbol) and target.name not in self.registers}
        return names, len(names) < len({str(target) for target in targets})


MAP_BYTES = 128  # of a CUtensorMap
TENSOR_MAP = f"b8[{MAP_BYTES}]"  # the type of a parameter that is one

_HEADER = re.compile(
    r"\.(?:entry|func)\s+(?:\.noreturn\s+)?(?:\(([^)]*)\)\s*)?([\w$.]+)\s*(?:\(([^)]*)\))?([^{;]*)([{;])", re.S
)
_VARIABLE = re.compile(
    r"\.(shared|local|global|const|param)\s+(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?\.(\w+)\s+"
    r"(?:\.ptr[.\s\w]*\s)?([\w$.%]+)\s*((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.S,
)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)")
_BEGIN = re.compile(r"[^\s};]")  # of a statement
_LABEL = re.compile(r"([\w$%.]++)\s*:(?!:)")
_STATEMENT = re.compile(r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.S)
_LONG_VECTOR = re.compile(r"\{([^{},]+)(?:,[^{},]+){7,},\s*([^{},]+)\}")


class Module(Mapping[str, Entry]):
    """The kernels of a PTX module by name; each is parsed on first use, with the functions that it may call."""

    def __init__(self, text: str) -> None:
        uncommented = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.S)
        self._module, self._text = text, re.sub(r"//[^\n]*", "", uncommented)
        self._headers: dict[str, re.Match] = {}
        self._kernels, self._ends, outside, position = [], {}, [], 0
        for header in _HEADER.finditer(self._text):
            if header.start() < position or header[5] == ";":
                continue  # a declaration
            outside.append(self._text[position : header.start()])
            position = self._ends[header[2]] = _closing_brace(self._text, header.end())
            self._headers[header[2]] = header
            if header[0].startswith(".entry"):
                self._kernels.append(header[2])
        outside.append(self._text[position:])
        self._outside = "\n".join(outside)
        self._read: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __getitem__(self, name: str) -> Entry:
        """Raises KeyError for a name that no kernel has, and ParseError for text that is not PTX."""
        if name not in self._kernels:
            raise KeyError(name)
        return self._body(name)

    @functools.cached_property
    def _variables(self) -> list[Variable]:
        statements = re.findall(r"(\.(?:shared|global|const)\b[^;]*);", self._outside)
        return [_variable(statement) for statement in statements]

    def _body(self, name: str) -> Entry:
        if name not in self._read:
            header, ptx_line = self._headers[name], 1 + self._text.count("\n", 0, self._headers[name].end())
            entry = self._read[name] = Entry(name, is_function=name not in self._kernels)
            body = self._text[header.end() : self._ends[name]]
            if entry.is_function:
                entry.results, entry.formals = (
                    [_variable(part) for part in (text or "").split(",") if part.strip()]
                    for text in (header[1], header[3])
                )
                entry.variables = [*entry.results, *entry.formals]
            else:
                entry.parameters = _parameters(header[3] or "")
                entry.cluster = _dimensions(header[4], "reqnctapercluster")
                block = _dimensions(header[4], "maxntid", "reqntid")
                entry.most_threads = math.prod(block) if block else None
            _parse_body(entry, body, Places(self._module), ptx_line)
            if not entry.is_function:
                entry.variables = self._variables + entry.variables
                entry.functions = self._find_functions(entry)
        return self._read[name]

    def _find_functions(self, kernel: Entry) -> list[Entry]:
        """Return the functions that a kernel calls, directly or not; all of the module if any is called by address."""
        found: dict[str, Entry] = {}
        waiting = [kernel]
        while waiting:
            names, by_address = waiting.pop().find_callees()
            for name in self._headers if by_address else sorted(names):
                if name in self._headers and name not in self._kernels and name not in found:
                    found[name] = self._body(name)
                    waiting.append(found[name])
        return list(found.values())


def parse(text: str) -> Module:
    """Return the kernels of a PTX module by name. Raises ParseError for text that is not PTX as described above."""
    module = Module(text)
    if not module:
        raise ParseError("the text holds no kernel: no `.entry` was found")
    return module


def _closing_brace(text: str, start: int) -> int:
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    raise ParseError("a kernel's closing brace is missing: is the text cut off?")


def _parameters(text: str) -> list[tuple[str, str]]:
    """Return the parameters of a kernel, (name, type)."""
    parameters = []
    for declaration in filter(None, (part.strip() for part in text.split(","))):
        words = [word for word in declaration.split() if not re.fullmatch(r"\d+", word)]
        kind = next(word[1:] for word in words if word[1:] in DTYPES)
        name, _, size = words[-1].partition("[")
        parameters.append((name, f"{kind}[{size}" if size else kind))
    return parameters


def _dimensions(directives: str, *names: str) -> tuple[int, int, int] | None:
    """Return x, y and z of a directive `.name x, y, z` between parameters and body; None where there is none."""
    found = re.search(rf"\.(?:{'|'.join(names)})\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", directives)
    if found is None:
        return None
    x, y, z = (int(size or 1) for size in found.groups())
    return x, y, z


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
    values: list[int | np.floating] = []
    addresses = []
    for place, text in enumerate(initial.replace("{", " ").replace("}", " ").split(",") if initial else ()):
        operand = read_operand(re.sub(r"^generic\((.*)\)$", r"\1", text.strip()))
        if isinstance(operand, Symbol):
            addresses.append((place * width, operand))
        elif not isinstance(operand, Immediate):
            raise ParseError(f"initial value of {name} is not a list of numbers")
        values.append(operand.value if isinstance(operand, Immediate) else 0)
    data = np.array(values).astype(DTYPES[kind]).tobytes()
    return Variable(name, space, int(align or width), width * count, data, tuple(addresses))


def _parse_body(entry: Entry, body: str, places: Places, ptx_line: int) -> None:
    """Parse the statements between a kernel's braces, the first on `ptx_line`; inner braces only scope names."""
    position, counted = 0, 0
    while (begin := _BEGIN.search(body, position)) is not None:
        position = begin.start()
        if body[position] == "{":
            position += 1
            block = body[position : _closing_brace(body, position)]
            if (scoped := _rename_scoped(entry, block)) != block:
                body = body[:position] + scoped + body[position + len(block) :]
        elif begin[0] == "." and (after := places.read(body, position)):
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


def _rename_scoped(entry: Entry, block: str) -> str:
    """Rename what a block in braces declares if the kernel has the name already (inline assembly, twice)."""
    names = [n.strip() for declared in re.findall(r"\.reg\s*\.\w+\s+([^;]*);", block) for n in declared.split(",")]
    names += re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)", block)
    labels = re.findall(r"(?:^|[;{}\s])([A-Za-z_$][\w$]*)\s*:(?!:)", block)
    for name in {*names, *labels}:
        stem, counted, _ = name.partition("<")
        if name in entry.labels or stem + counted in entry.registers or any(v.name == name for v in entry.variables):
            fresh = f"{stem}$s{len(entry.instructions)}_"
            tail = r"(?=<?\d+\b)" if counted else r"(?![\w$])"
            block = fresh.join(re.split(rf"(?<![\w$%.]){re.escape(stem)}{tail}", block))
    return block


def _parse_statement(entry: Entry, text: str, places: Places, ptx_line: int) -> None:
    if not text.startswith("."):
        entry.instructions.append(_read_instruction(text, places, ptx_line))
    elif declared := _REGISTERS.match(text):
        for name in declared[2].split(","):
            entry.registers[re.sub(r"<\d+>", "<", name.strip())] = declared[1]
    elif text.startswith((".shared", ".local", ".param")):
        entry.variables.append(_variable(text))
    elif text.startswith(".branchtargets"):
        entry.tables[next(reversed(entry.labels))] = [name.strip() for name in text.split(maxsplit=1)[1].split(",")]
    elif not text.startswith((".pragma", ".callprototype", ".calltargets")):  # these are advice to ptxas
        raise ParseError(f"{places.file}:{places.line}: directive not understood: {text}")


def _read_instruction(text: str, places: Places, ptx_line: int) -> Instruction:
    match = _STATEMENT.fullmatch(text)
    if match is None:
        raise ParseError(f"{places.file}:{places.line}: instruction not understood: {text}")
    negated, guard, name, operands = match.groups()
    try:
        read = tuple([read_operand(part) for part in split_operands(operands)])
    except ParseError as error:
        raise ParseError(f"{places.file}:{places.line}: {text}: {error}") from None
    register, place = Register(guard) if guard else None, (places.file, places.line, ptx_line, places.callers)
    return Instruction(name, read, register, negated == "!", text, *place)
