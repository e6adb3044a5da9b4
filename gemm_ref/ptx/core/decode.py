"""From a parsed kernel to operations that a machine executes: operands become readers and writers of registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gemm_ref.ptx.core.context import Control, Execute, Machine, Mask, Read, Run, Write
from gemm_ref.ptx.core.coordinates import SPECIAL_REGISTERS
from gemm_ref.ptx.core.memory import PARAMETER_SPACING, lay_out
from gemm_ref.ptx.text.dtypes import DTYPES, SIGNED, UNSIGNED, Value, is_signed
from gemm_ref.ptx.text.errors import ParseError, UndefinedRegister, Unsupported
from gemm_ref.ptx.text.parser import (
    TENSOR_MAP,
    Address,
    Entry,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Symbol,
    items_of,
)

T = TypeVar("T")
# Makes of an instruction what it does. Raises Unsupported for a form that the reference GPU lacks, ParseError for
# operands that make no sense.
Builder = Callable[["Decoder", Instruction], Execute | Control]


@dataclass(frozen=True)
class Operation:
    """One instruction, ready to run."""

    instruction: Instruction
    guard: int | None  # register slot of the guard predicate
    negated: bool
    step: Execute | Control
    run: Run | None = None  # what begins here and can be computed at once


class Decoder:
    """Knows one kernel's registers, parameters and variables, and turns operands into closures."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.slots: dict[str, int] = {}
        # Registers that a guarded instruction writes: where its guard held for no lane they are legally unwritten, and
        # read as all ones (NaN), so that using one shows.
        self.guarded = {
            self.slot(name) for instruction in entry.instructions if instruction.guard for name in _written(instruction)
        }
        self.static_shared, self.dynamic_shared = lay_out(entry.variables, "shared")
        self.local, _ = lay_out(entry.variables, "local")
        self.offsets = {**self.static_shared.offsets, **self.local.offsets}

    def slot(self, name: str) -> int:
        """The place of a register in the machine's register file."""
        return self.slots.setdefault(name, len(self.slots))

    def register(self, slot: int) -> str:
        """The name of the register in a place."""
        return list(self.slots)[slot]

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
            return self._symbol(operand.name, dtype)
        raise ParseError(f"operand {operand} of {self.entry.name} is not a value")

    def _register(self, register: Register, dtype: np.dtype | None) -> Read:
        """A reader of a register as `dtype`, or as whatever was last written to it where that is None."""
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

    def _symbol(self, name: str, dtype: np.dtype) -> Read:
        if name in self.offsets:
            offset = _constant(self.offsets[name], dtype)
            return lambda machine: offset
        if name in self.dynamic_shared:
            start = _constant(self.static_shared.size, dtype)
            return lambda machine: start
        if name in (parameters := [name for name, _ in self.entry.parameters]):
            place = _constant(parameters.index(name) * PARAMETER_SPACING, dtype)
            return lambda machine: place
        if any(v.name == name and v.space in ("global", "const") for v in self.entry.variables):
            return lambda machine: _constant(machine.symbols[name], dtype)
        raise ParseError(f"{name} is not declared in {self.entry.name}")

    def destination(self, operand: Operand) -> Write:
        """A writer of a register: lanes outside the mask keep what they had."""
        operand = self.named(operand)
        if not isinstance(operand, Register):
            raise ParseError(f"operand {operand} of {self.entry.name} is not a register")
        slot, width = self.slot(operand.name), self.dtype_of(operand).itemsize

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

    def parameter(self, operand: Operand, dtype: np.dtype) -> Read:
        """A reader of a kernel parameter as `dtype`. Raises Unsupported for a read inside one."""
        address = expect(operand, Address)
        names = [name for name, _ in self.entry.parameters]
        if not isinstance(address.base, Symbol) or address.base.name not in names or address.offset:
            raise Unsupported(f"{self.entry.name} reads parameter memory in a way the reference GPU does not support")
        index = names.index(address.base.name)
        if self.entry.parameters[index][1] == TENSOR_MAP:
            raise Unsupported(f"{self.entry.name} reads the bytes of the tensor map {address.base.name}")
        if DTYPES[self.entry.parameters[index][1]].itemsize < dtype.itemsize:
            raise Unsupported(f"{self.entry.name} reads past parameter {address.base.name}")
        return lambda machine: _recast(machine.parameters[index], dtype)


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
