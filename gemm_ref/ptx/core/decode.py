"""From a parsed kernel to operations that a machine executes: operands become readers and writers of registers."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from gemm_ref.ptx.core.calls import Room
from gemm_ref.ptx.core.coordinates import SPECIAL_REGISTERS
from gemm_ref.ptx.core.machine import Control, Execute, Machine, Mask, Read, Write
from gemm_ref.ptx.core.memory import CODE_WINDOW, PARAMETER_SPACING, STACK_BYTES, MemoryLayout, lay_out, round_up
from gemm_ref.ptx.text.dtypes import DTYPES, SIGNED, UNSIGNED, Value, is_signed
from gemm_ref.ptx.text.errors import ParseError, UndefinedRegister, Unsupported
from gemm_ref.ptx.text.operands import Address, Immediate, Negated, Operand, Register, Symbol, items_of
from gemm_ref.ptx.text.parser import Entry, Instruction

T = TypeVar("T")
_LOCAL = "local", "param"  # what functions are given and give back is a thread's own too
# Makes of an instruction what it does. Raises Unsupported for a form that the reference GPU lacks, ParseError for
# operands that make no sense.
Builder = Callable[["Decoder", Instruction], Execute | Control]


class Decoder:
    """Knows one kernel's or function's registers, parameters and variables, and turns operands into closures."""

    local: MemoryLayout
    stack = 0  # the byte of local memory at which threads' stacks begin, each frame of `frame_bytes`

    def __init__(self, entry: Entry, kernel: Decoder | None = None) -> None:
        """kernel: whose register file and memory a function uses."""
        self.entry = entry
        self.kernel = kernel or self
        self.slots: dict[str, int] = {} if kernel is None else kernel.slots
        self.first = 0  # the place of its first instruction in the program
        self._readers: dict[tuple[str, np.dtype | None], Read] = {}  # of registers: most are read many times
        self._writers: dict[str, Write] = {}
        # Registers that a guarded instruction writes: where its guard held for no lane they are legally unwritten, and
        # read as all ones (NaN), so that using one shows.
        self.guarded = {
            self.slot(name) for instruction in entry.instructions if instruction.guard for name in _written(instruction)
        }
        if kernel is None:
            self.static_shared, self.dynamic_shared = lay_out(entry.variables, "shared")
            self.functions = {function.name: Decoder(function, self) for function in entry.functions}
            for function in self.functions.values():  # which come before the kernel, so that lanes in them go first
                function.first = self.first
                self.first += len(function.entry.instructions)
            self._lay_out_local()

    @property
    def parts(self) -> list[Decoder]:
        """The functions, and the kernel itself behind them."""
        return [*self.functions.values(), self]

    @functools.cached_property
    def offsets(self) -> dict[str, int]:
        """Of its variables in shared and local memory."""
        return {**self.kernel.static_shared.offsets, **self.local.offsets}

    def _lay_out_local(self) -> None:
        """Local memory: the kernel's own variables and each function's; in the stack theirs that call themselves."""
        self.local, _ = lay_out(self.entry.variables, *_LOCAL)
        size = self.local.size
        again = [f for f in self.functions.values() if f.calls_itself]
        for function in [*(f for f in self.functions.values() if not f.calls_itself), *again]:
            function.local, _ = lay_out(function.entry.variables, *_LOCAL, first=round_up(size, 16))
            if function in again[:1]:
                self.stack = round_up(size, 16)
            size = function.local.size
        self.frame_bytes = round_up(size - self.stack, 16) if again else 0
        self.local_bytes = self.stack + STACK_BYTES if again else size

    def room(self, name: str) -> Room:
        """The place of a variable in local memory. Raises ParseError for a name that none has."""
        size = next((v.size for v in self.entry.variables if v.name == name and v.space in _LOCAL), None)
        if size is None:
            raise ParseError(f"{name} is not declared in {self.entry.name}")
        return Room(self.local.offsets[name], size, self.calls_itself)

    @functools.cached_property
    def calls_itself(self) -> bool:
        """Whether a call may lead back to it; one by address may lead anywhere."""
        found: set[str] = set()
        waiting = [self.entry]
        while waiting:
            names, by_address = waiting.pop().called()
            functions = self.kernel.entry.functions
            new = [f for f in functions if (by_address or f.name in names) and f.name not in found]
            found |= {function.name for function in new}
            waiting += new
        return self.entry.name in found

    def slot(self, name: str) -> int:
        """The place of a register in the machine's register file."""
        if self.kernel is not self:
            name = f"{name} of {self.entry.name}"
        return self.slots.setdefault(name, len(self.slots))

    def guard(self, register: Register) -> int:
        """The slot of a guard. Raises ParseError when it is not a predicate."""
        if self.dtype_of(register) != np.bool_:
            raise ParseError(f"guard {register.name} of {self.entry.name} is not a predicate")
        return self.slot(register.name)

    def dtype_of(self, register: Register) -> np.dtype:
        """The declared type of a register, b-types as unsigned integers."""
        return DTYPES[self.entry.register_type(register.name)]

    def named(self, operand: Operand) -> Operand:
        """Inline assembly declares registers without a percent sign: `p` is then a register, not a symbol."""
        if isinstance(operand, Symbol) and operand.name in self.entry.registers:
            return Register(operand.name)
        return operand

    def source(self, operand: Operand, dtype: np.dtype) -> Read:
        """A reader of an operand as `dtype`. Raises ParseError for an operand that cannot be read."""
        operand = self.named(operand)
        if isinstance(operand, Register):
            if operand.name in SPECIAL_REGISTERS:
                return lambda machine: _recast(machine.special(operand.name), dtype)
            return self._register(operand, dtype)
        if isinstance(operand, Negated):
            read = self._register(operand.register, dtype)
            return lambda machine: ~read(machine)
        if isinstance(operand, Immediate):
            constant = _constant(operand.value, dtype)
            return lambda machine: constant
        if isinstance(operand, Symbol):
            return self._symbol(operand, dtype)
        raise ParseError(f"operand {operand} of {self.entry.name} is not a value")

    def _register(self, register: Register, dtype: np.dtype | None) -> Read:
        """A reader of a register as `dtype`, or as whatever was last written to it where that is None."""
        key = register.name, dtype
        if key not in self._readers:
            self._readers[key] = self._reader(register, dtype)
        return self._readers[key]

    def _reader(self, register: Register, dtype: np.dtype | None) -> Read:
        declared = self.dtype_of(register)
        dtype_or_own = dtype or declared
        if declared.itemsize < dtype_or_own.itemsize or (declared == np.bool_) != (dtype_or_own == np.bool_):
            raise ParseError(f"register {register.name} of type {declared} is read as {dtype}")
        slot, name = self.slot(register.name), register.name

        def read(machine: Machine) -> Value:
            value = machine.registers[slot]
            if value is None and slot in machine.in_flight:
                return _recast(machine.in_flight[slot].read(name), dtype_or_own)
            if value is None and slot in self.guarded:
                return _recast(np.uint64(0xFFFFFFFFFFFFFFFF), dtype_or_own) if declared != np.bool_ else np.bool_(False)
            if value is None:
                raise UndefinedRegister(f"{machine.place()}: register {name} is read before anything was written to it")
            return value if dtype is None or value.dtype == dtype else _recast(value, dtype)

        return read

    def _symbol(self, symbol: Symbol, dtype: np.dtype) -> Read:
        name, beyond, kernel = symbol.name, symbol.offset, self.kernel
        if name in self.offsets:
            if self.calls_itself and name in self.local.offsets:
                below = np.int64(self.offsets[name] + beyond)
                return lambda machine: (machine.calls.depth + below).astype(dtype)
            return _always(self.offsets[name] + beyond, dtype)
        if name in kernel.dynamic_shared:
            return _always(kernel.static_shared.size + beyond, dtype)
        if name in (parameters := [name for name, _ in self.entry.parameters]):
            return _always(parameters.index(name) * PARAMETER_SPACING + beyond, dtype)
        if name in kernel.functions:
            return lambda machine: _constant(kernel.code_address(name), dtype)
        if any(v.name == name and v.space in ("global", "const") for v in kernel.entry.variables):
            return lambda machine: _constant(machine.symbols[name] + beyond, dtype)
        raise ParseError(f"{name} is not declared in {self.entry.name}")

    def code_address(self, name: str) -> int:
        """The address of a function."""
        return CODE_WINDOW + self.functions[name].first

    def destination(self, operand: Operand) -> Write:
        """A writer of a register: lanes outside the mask keep what they had."""
        operand = self.named(operand)
        if not isinstance(operand, Register):
            raise ParseError(f"operand {operand} of {self.entry.name} is not a register")
        if operand.name not in self._writers:
            self._writers[operand.name] = self._writer(operand)
        return self._writers[operand.name]

    def _writer(self, register: Register) -> Write:
        slot, width = self.slot(register.name), self.dtype_of(register).itemsize

        def write(machine: Machine, value: Value, mask: Mask) -> None:
            if value.dtype.itemsize < width:  # a narrow result is extended to its register by its own sign
                value = value.astype((SIGNED if is_signed(value.dtype) else UNSIGNED)[width])
            if mask is not None:
                old = machine.registers[slot]
                if old is None and slot in machine.in_flight:
                    machine.in_flight[slot].write(value, mask)
                    return
                if old is None:
                    old = value.dtype.type(0)
                elif old.dtype != value.dtype:
                    old = old.view(value.dtype)
                value = np.where(mask, value, old)
            machine.registers[slot] = value

        return write

    def address(self, address: Address) -> Read:
        """A reader of an address's base in bytes, without its offset: the register's own value, not a view.

        So that the machine knows it again, and measures its footprint once (`Machine.footprint`).
        """
        base = self.named(address.base)
        if isinstance(base, Register) and base.name not in SPECIAL_REGISTERS:
            return self._register(base, None)
        return self.source(base, DTYPES["u64"])

    def place(self, operand: Operand) -> Read:
        """A reader of an address operand with its offset."""
        address = expect(operand, Address)
        base, offset = self.address(address), address.offset

        def read(machine: Machine) -> Value:
            value = base(machine)
            return value + value.dtype.type(offset) if offset >= 0 else value - value.dtype.type(-offset)

        return read

    def parameter(self, address: Address, dtype: np.dtype) -> Read | None:
        """A reader of a kernel's parameter, or of a part of it, as `dtype`; None for an address that is in no name.

        Raises ParseError for a read past its end.
        """
        names = [name for name, _ in self.entry.parameters]
        if not isinstance(address.base, Symbol) or address.base.name not in names:
            return None
        index, offset = names.index(address.base.name), address.offset + address.base.offset
        kind, _, count = self.entry.parameters[index][1].rstrip("]").partition("[")
        size = DTYPES[kind].itemsize * int(count or 1)
        if not 0 <= offset <= size - dtype.itemsize:
            raise ParseError(f"{self.entry.name} reads past parameter {address.base.name}")
        if not count and not offset:
            return lambda machine: _recast(machine.parameters[index], dtype)
        where = slice(offset, offset + dtype.itemsize)
        return lambda machine: np.frombuffer(bytes_of(machine.parameters[index])[where], dtype)[0]


def bytes_of(parameter: Any) -> bytes:
    """What a parameter is in memory. Raises Unsupported for a tensor map."""
    if not isinstance(parameter, np.ndarray | np.generic):
        raise Unsupported("a kernel reads the bytes of a tensor map, which nobody but a GPU knows")
    return parameter.tobytes()


def _always(value: int, dtype: np.dtype) -> Read:
    constant = _constant(value, dtype)
    return lambda machine: constant


def expect(operand: Operand, kind: type[T]) -> T:
    """The operand as the one kind that may stand there. Raises ParseError for another."""
    if not isinstance(operand, kind):
        raise ParseError(f"operand {operand} is no {kind.__name__}")
    return operand


def integer(operand: Operand) -> int:
    """The number that an operand is. Raises ParseError where it is no literal integer."""
    value = expect(operand, Immediate).value
    if not isinstance(value, int):
        raise ParseError(f"operand {value} is not an integer")
    return value


def _written(instruction: Instruction) -> list[str]:
    """The registers in the place of an instruction's destination."""
    items = items_of(instruction.operands[0]) if instruction.operands else ()
    return [item.name for item in items if isinstance(item, Register)]


def require_form(known: bool, instruction: Instruction) -> None:
    """Raise Unsupported unless this form of an instruction is known."""
    if not known:
        raise Unsupported(f"{instruction.origin}: the reference GPU has no {instruction.name}")


def match_form(pattern: str | re.Pattern, instruction: Instruction) -> re.Match:
    """Return the match of an instruction's name. Raises Unsupported for a name that the pattern does not match."""
    match = re.fullmatch(pattern, instruction.name)
    if match is None:
        raise Unsupported(f"{instruction.origin}: the reference GPU has no {instruction.name}")
    return match


def dtype_named(instruction: Instruction) -> np.dtype:
    """The type at the end of an instruction's name. Raises Unsupported for one that is not here."""
    dtype = DTYPES.get(instruction.parts[-1])
    if dtype is None:
        raise Unsupported(f"the reference GPU has no {instruction.name} (type {instruction.parts[-1]})")
    return dtype


def _recast(value: Value, dtype: np.dtype) -> Value:
    """The low bits of a register, as another type."""
    if value.dtype.itemsize == dtype.itemsize:
        return value.view(dtype)
    whole = value.view(UNSIGNED[value.dtype.itemsize])
    return whole.astype(UNSIGNED[dtype.itemsize]).view(dtype)


def _constant(value: int | np.floating, dtype: np.dtype) -> np.generic:
    if isinstance(value, np.floating):
        return value if value.dtype == dtype else value.view(UNSIGNED[value.dtype.itemsize]).view(dtype)
    if dtype == np.bool_:
        return np.bool_(value)
    unsigned = UNSIGNED[dtype.itemsize]
    return unsigned.type(value & (1 << 8 * dtype.itemsize) - 1).view(dtype)
