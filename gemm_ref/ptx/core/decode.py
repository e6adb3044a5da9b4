"""Decoding: operands become closures that read and write registers (PTX ISA, 6, instruction operands).

A kernel and the functions that it calls share one register file and one local memory, which the decoder lays out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from gemm_ref.launch import round_up
from gemm_ref.ptx.core.calls import LocalVariable
from gemm_ref.ptx.core.coordinates import SPECIAL_REGISTERS
from gemm_ref.ptx.core.machine import Control, Execute, Machine, Mask, Read, Write
from gemm_ref.ptx.core.memory import (
    CODE_WINDOW,
    PARAMETER_SPACING,
    SHARED_BASE,
    STACK_BYTES,
    MemoryLayout,
    arrange,
)
from gemm_ref.ptx.text.dtypes import DTYPES, SIGNED, UNSIGNED, Value, is_signed
from gemm_ref.ptx.text.errors import ParseError, UndefinedRegister, Unsupported
from gemm_ref.ptx.text.operands import Address, Immediate, Negated, Operand, Register, Symbol, items_of
from gemm_ref.ptx.text.parser import Entry, Instruction

T = TypeVar("T")
_LOCAL = "local", "param"  # parameters of functions are per-thread memory too
# Builds what executes an instruction. Raises Unsupported for a form that the reference GPU does not have, and
# ParseError for invalid operands.
Builder = Callable[["Decoder", Instruction], Execute | Control]


class Decoder:
    """The registers, parameters and variables of a kernel or function; turns its operands into closures."""

    local: MemoryLayout
    stack = 0  # the byte of local memory at which a thread's stack begins, in frames of `frame_bytes`

    def __init__(self, entry: Entry, kernel: Decoder | None = None) -> None:
        """kernel: the decoder of the kernel, for a function; it owns the register file and the memory."""
        self.entry = entry
        self.kernel = kernel or self
        self.slots: dict[str, int] = {} if kernel is None else kernel.slots
        self.first = 0  # the place of its first instruction in the program
        self._readers: dict[tuple[str, np.dtype | None], Read] = {}  # a cache: most registers are read many times
        self._writers: dict[str, Write] = {}
        # Registers that a guarded instruction writes: where its guard held for no lane they are legally unwritten. They
        # read as all ones (NaN), so that a use of one is noticed.
        self.guarded = {
            self.slot(name) for instruction in entry.instructions if instruction.guard for name in _written(instruction)
        }
        if kernel is None:
            self.static_shared, self.dynamic_shared = arrange(entry.variables, "shared")
            self.functions = {function.name: Decoder(function, self) for function in entry.functions}
            for function in self.functions.values():  # before the kernel, so that lanes in them execute first
                function.first = self.first
                self.first += len(function.entry.instructions)
            self._arrange_local()

    @functools.cached_property
    def offsets(self) -> dict[str, int]:
        """Return the addresses of its variables in shared and local memory."""
        shared = {name: SHARED_BASE + offset for name, offset in self.kernel.static_shared.offsets.items()}
        return {**shared, **self.local.offsets}

    def _arrange_local(self) -> None:
        """Lay out local memory: the variables of the kernel and of each function, and a stack for recursive ones."""
        self.local, _ = arrange(self.entry.variables, *_LOCAL)
        size = self.local.size
        recursive = [f for f in self.functions.values() if f.is_recursive]
        for function in [*(f for f in self.functions.values() if not f.is_recursive), *recursive]:
            function.local, _ = arrange(function.entry.variables, *_LOCAL, first=round_up(size, 16))
            if function in recursive[:1]:
                self.stack = round_up(size, 16)
            size = function.local.size
        self.frame_bytes = round_up(size - self.stack, 16) if recursive else 0
        self.local_bytes = self.stack + STACK_BYTES if recursive else size

    def local_variable(self, name: str) -> LocalVariable:
        """Return a variable in local memory. Raises ParseError for an unknown name."""
        size = next((v.size for v in self.entry.variables if v.name == name and v.space in _LOCAL), None)
        if size is None:
            raise ParseError(f"{name} is not declared in {self.entry.name}")
        return LocalVariable(self.local.offsets[name], size, self.is_recursive)

    @functools.cached_property
    def is_recursive(self) -> bool:
        """Whether a call may lead back to it; a call by address may lead anywhere."""
        found: set[str] = set()
        waiting = [self.entry]
        while waiting:
            names, by_address = waiting.pop().find_callees()
            functions = self.kernel.entry.functions
            new = [f for f in functions if (by_address or f.name in names) and f.name not in found]
            found |= {function.name for function in new}
            waiting += new
        return self.entry.name in found

    def slot(self, name: str) -> int:
        """Return the slot of a register in the machine's register file."""
        if self.kernel is not self:
            name = f"{name} of {self.entry.name}"
        return self.slots.setdefault(name, len(self.slots))

    def guard(self, register: Register) -> int:
        """Return the slot of a guard. Raises ParseError if it is not a predicate."""
        if self.dtype_of(register) != np.bool_:
            raise ParseError(f"guard {register.name} of {self.entry.name} is not a predicate")
        return self.slot(register.name)

    def dtype_of(self, register: Register) -> np.dtype:
        """Return the declared type of a register, b-types as unsigned integers."""
        return DTYPES[self.entry.register_type(register.name)]

    def named(self, operand: Operand) -> Operand:
        """Return a register for a symbol that inline assembly has declared as one, without a percent sign."""
        if isinstance(operand, Symbol) and operand.name in self.entry.registers:
            return Register(operand.name)
        return operand

    def source(self, operand: Operand, dtype: np.dtype) -> Read:
        """Return a reader of an operand as `dtype`. Raises ParseError for an operand that cannot be read."""
        operand = self.named(operand)
        if isinstance(operand, Register):
            if operand.name in SPECIAL_REGISTERS:
                return lambda machine: _recast(machine.special(operand.name), dtype)
            return self._register(operand, dtype)
        if isinstance(operand, Negated):
            read = self._register(operand.register, dtype)
            return lambda machine: ~read(machine)
        if isinstance(operand, Immediate):
            return _always(operand.value, dtype)
        if isinstance(operand, Symbol):
            return self._symbol(operand, dtype)
        raise ParseError(f"operand {operand} of {self.entry.name} is not a value")

    def _register(self, register: Register, dtype: np.dtype | None) -> Read:
        """Return a reader of a register as `dtype`; None stands for the type that was last written to it."""
        key = register.name, dtype
        if key not in self._readers:
            declared = self.dtype_of(register)
            if dtype and (declared.itemsize < dtype.itemsize or (declared == np.bool_) != (dtype == np.bool_)):
                raise ParseError(f"register {register.name} of type {declared} is read as {dtype}")
            self._readers[key] = functools.partial(_read, self.slot(register.name), dtype, self, register)
        return self._readers[key]

    def read_unwritten(self, machine: Machine, register: Register, dtype: np.dtype) -> Value:
        """Return a register to which nothing has been written. Raises UndefinedRegister if none may have been."""
        slot, name = self.slot(register.name), register.name
        if slot in machine.in_flight:
            return _recast(machine.in_flight[slot].read(name), dtype)
        if slot in self.guarded:
            return np.bool_(False) if dtype == np.bool_ else _recast(np.uint64(0xFFFFFFFFFFFFFFFF), dtype)
        raise UndefinedRegister(f"{machine.place()}: register {name} is read before anything was written to it")

    def _symbol(self, symbol: Symbol, dtype: np.dtype) -> Read:
        name, offset, kernel = symbol.name, symbol.offset, self.kernel
        if name in self.offsets:
            if self.is_recursive and name in self.local.offsets:
                below = np.int64(self.offsets[name] + offset)
                return lambda machine: (machine.calls.depth + below).astype(dtype)
            return _always(self.offsets[name] + offset, dtype)
        if name in kernel.dynamic_shared:
            return _always(SHARED_BASE + kernel.static_shared.size + offset, dtype)
        if name in (parameters := [name for name, _ in self.entry.parameters]):
            return _always(parameters.index(name) * PARAMETER_SPACING + offset, dtype)
        if name in kernel.functions:
            return lambda machine: _constant(kernel.code_address(name), dtype)
        if any(v.name == name and v.space in ("global", "const") for v in kernel.entry.variables):
            return lambda machine: _constant(machine.symbols[name] + offset, dtype)
        raise ParseError(f"{name} is not declared in {self.entry.name}")

    def code_address(self, name: str) -> int:
        """Return the address of a function."""
        return CODE_WINDOW + self.functions[name].first

    def destination(self, operand: Operand) -> Write:
        """Return a writer of a register: lanes outside the mask keep their value."""
        operand = self.named(operand)
        if operand is None:  # the sink `_`
            return lambda machine, value, mask: None
        if not isinstance(operand, Register):
            raise ParseError(f"operand {operand} of {self.entry.name} is not a register")
        if operand.name not in self._writers:
            width = self.dtype_of(operand).itemsize
            self._writers[operand.name] = functools.partial(_write, self.slot(operand.name), width)
        return self._writers[operand.name]

    def address(self, address: Address) -> Read:
        """Return a reader of the base of an address in bytes, without its offset.

        It returns the array of the register itself, by which the machine caches the footprint (`Machine.footprint`).
        """
        base = self.named(address.base)
        if isinstance(base, Register) and base.name not in SPECIAL_REGISTERS:
            return self._register(base, None)
        return self.source(base, DTYPES["u64"])

    def place(self, operand: Operand) -> Read:
        """Return a reader of an address operand with its offset."""
        address = expect(operand, Address)
        base, offset = self.address(address), address.offset

        def read(machine: Machine) -> Value:
            value = base(machine)
            return value + value.dtype.type(offset) if offset >= 0 else value - value.dtype.type(-offset)

        return read

    def parameter(self, address: Address, dtype: np.dtype) -> Read | None:
        """Return a reader of a kernel's parameter, or of a part of it, as `dtype`; None for another address.

        Raises ParseError for a read past the end of the parameter.
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


# What a Decoder makes of registers is a partial of one of these two: a closure is as fast, but of eight objects, all of
# which the garbage collector looks through (it took 28% of the time to load a kernel).


def _read(slot: int, dtype: np.dtype | None, decoder: Decoder, register: Register, machine: Machine) -> Value:
    """Return a register as `dtype`, or as it was written."""
    value = machine.registers[slot]
    if value is None:
        return decoder.read_unwritten(machine, register, dtype or decoder.dtype_of(register))
    return value if dtype is None or value.dtype == dtype else _recast(value, dtype)


def _write(slot: int, width: int, machine: Machine, value: Value, mask: Mask) -> None:
    """Write to a register of `width` bytes: lanes outside the mask keep their value."""
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


def bytes_of(parameter: Any) -> bytes:
    """Return the bytes of a parameter. Raises Unsupported for a tensor map."""
    if not isinstance(parameter, np.ndarray | np.generic):
        raise Unsupported("a kernel reads the bytes of a tensor map, which nobody but a GPU knows")
    return parameter.tobytes()


def _always(value: int | np.floating, dtype: np.dtype) -> Read:
    constant = _constant(value, dtype)
    return lambda machine: constant


def expect(operand: Operand, kind: type[T]) -> T:
    """Return an operand that must be of this kind. Raises ParseError for another."""
    if not isinstance(operand, kind):
        raise ParseError(f"operand {operand} is no {kind.__name__}")
    return operand


def integer(operand: Operand) -> int:
    """Return the value of an operand. Raises ParseError unless it is a literal integer."""
    value = expect(operand, Immediate).value
    if not isinstance(value, int):
        raise ParseError(f"operand {value} is not an integer")
    return value


def _written(instruction: Instruction) -> list[str]:
    """Return the registers in the destination of an instruction."""
    items = items_of(instruction.operands[0]) if instruction.operands else ()
    return [item.name for item in items if isinstance(item, Register)]


def require_form(known: bool, instruction: Instruction) -> None:
    """Raise Unsupported unless this form of an instruction is known."""
    if not known:
        raise Unsupported(f"{instruction.origin}: the reference GPU has no {instruction.name}")


def match_form(pattern: str | re.Pattern, instruction: Instruction) -> re.Match:
    """Return the match of an instruction's name. Raises Unsupported for a name that the pattern does not match."""
    match = re.fullmatch(pattern, instruction.name)
    require_form(match is not None, instruction)
    return cast(re.Match, match)


def dtype_named(instruction: Instruction) -> np.dtype:
    """Return the type at the end of an instruction's name. Raises Unsupported for an unknown one."""
    dtype = DTYPES.get(instruction.parts[-1])
    if dtype is None:
        raise Unsupported(f"the reference GPU has no {instruction.name} (type {instruction.parts[-1]})")
    return dtype


def _recast(value: Value, dtype: np.dtype) -> Value:
    """Return the low bits of a register, as another type."""
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
