"""What instructions and units may ask of the machine that runs them, and the types of what an instruction becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from gemm_ref.ptx.core.calls import Calls
from gemm_ref.ptx.core.events import Access, Lanes, Observer
from gemm_ref.ptx.core.memory import Block, Footprint
from gemm_ref.ptx.core.schedule import Schedule, Unit
from gemm_ref.ptx.text.dtypes import Value
from gemm_ref.ptx.text.parser import Instruction

U = TypeVar("U", bound=Unit)
Mask: TypeAlias = np.ndarray | None  # the lanes whose registers may change; None for all that are active


class InFlight(Protocol):
    """A register that a unit is about to write: it answers for it meanwhile, and the machine's own is None."""

    def read(self, name: str) -> Value:
        """What the executing lanes read of it; `name` is what messages call it."""

    def write(self, value: Value, mask: np.ndarray) -> None:
        """Some lanes write to it."""


class Machine(Lanes, Protocol):
    """Some thread blocks of a launch in lockstep, as instructions and units see them."""

    schedule: Schedule  # which lanes go on, and where
    calls: Calls  # of functions
    mask: Mask  # of the instruction being executed
    registers: list[Value | None]  # by slot
    in_flight: Mapping[int, InFlight]  # by slot
    parameters: Sequence[Any]  # a number each, bytes for what is passed by value, and for a tensor map its tile
    symbols: Mapping[str, int]  # the addresses of the module's variables
    observers: Sequence[Observer]

    def unit(self, kind: type[U]) -> U:
        """The machine's unit of this class."""

    def special(self, name: str) -> Value:
        """The value of a special register such as `%tid.x`."""

    def blocks(self, space: str) -> Sequence[Block]:
        """The memory blocks that an address of this state space may be in."""

    def footprint(self, addresses: Value) -> Footprint:
        """The addresses' footprint, measured once as long as the register is not written again."""

    def observe(self, access: Access) -> None:
        """Tell observers of it."""

    def print(self, text: str) -> None:
        """A thread prints."""

    def place(self) -> str:
        """Source line and text of the instruction being executed."""

    def lanes_of(self, mask: Mask) -> np.ndarray:
        """As `access_mask`, always as an array."""

    def living(self) -> np.ndarray:
        """The lanes that have not left."""


Read = Callable[[Machine], Value]
Write = Callable[[Machine, Value, Mask], None]
Execute = Callable[[Machine, Mask], None]  # an instruction after which the next one follows


@dataclass(frozen=True)
class Control:
    """An instruction that says which one follows, or makes lanes wait: from its place to the next."""

    step: Callable[[Machine, Mask, int], int]


class Run(Protocol):
    """Instructions one behind the other that can be computed at once."""

    @property
    def instructions(self) -> tuple[Instruction, ...]: ...

    def possible(self, machine: Machine) -> bool: ...

    def execute(self, machine: Machine) -> None: ...
