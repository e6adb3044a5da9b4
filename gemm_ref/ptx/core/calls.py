"""Calls of functions (PTX ISA, 9.7.12.6): return addresses, arguments, and the stack of recursive functions.

Each function has registers and local variables of its own, so a call saves none. Only functions that may call
themselves, directly or through others, save the registers of a lane until it returns, and have their local variables in
the stack of the thread, `depth` bytes from its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.memory import STACK_BYTES, PerOwner
from gemm_ref.ptx.text.dtypes import Value

_NOBODY = -1


@dataclass(frozen=True)
class LocalVariable:
    """A variable in a thread's local memory."""

    offset: int  # bytes
    size: int
    stacked: bool  # of a recursive function: the depth of the stack is added


@dataclass
class _Frame:
    """A call that some lanes have made together."""

    onward: int  # the place to which they return
    absent: np.ndarray  # the lanes that have not returned yet
    before: np.ndarray  # of each lane: the frame of its caller
    saved: dict[int, Value | None]  # registers by slot
    stack: int  # bytes by which the call has grown their stacks
    results: Sequence[tuple[LocalVariable, LocalVariable]]  # of the function, and of its caller


class Calls:
    """The calls of one machine that have not returned."""

    def __init__(self, local: PerOwner, lanes: int, registers: list[Value | None]) -> None:
        self._registers = registers
        self._local = local.data[: lanes * local.stride].reshape(lanes, local.stride)
        self._frames: dict[int, _Frame] = {}
        self._frame = np.full(lanes, _NOBODY, np.int64)  # of each lane
        self.depth = np.zeros(lanes, np.int64)  # bytes of its stack that its callers occupy

    def enter(
        self,
        lanes: np.ndarray,
        onward: int,
        arguments: Sequence[tuple[LocalVariable, LocalVariable]],
        results: Sequence[tuple[LocalVariable, LocalVariable]],
        saves: Sequence[int],
        stack: int,
    ) -> bool:
        """Let these lanes call a function, with the values of the caller's arguments; false if a stack overflows.

        saves: the slots of registers that the function may use as well; stack: bytes of the stack that it leaves alone.
        """
        values = [self.read(lanes, actual) for actual, _ in arguments]
        number = next(n for n in range(len(self._frames) + 1) if n not in self._frames)
        saved = {slot: self._registers[slot] for slot in saves}
        self._frames[number] = _Frame(onward, lanes.copy(), self._frame.copy(), saved, stack, results)
        self._frame[lanes] = number
        self.depth[lanes] += stack
        if (self.depth + stack > STACK_BYTES).any():
            return False
        for (_, formal), value in zip(arguments, values, strict=True):
            self.write(lanes, formal, value)
        return True

    def return_from(self, lanes: np.ndarray) -> np.ndarray:
        """Let these lanes return, and return the place of each lane."""
        targets = np.zeros(lanes.size, np.int64)
        for number in np.unique(self._frame[lanes]).tolist():
            frame = self._frames[number]
            back = lanes & (self._frame == number)
            values = [self.read(back, formal) for formal, _ in frame.results]
            self.depth[back] -= frame.stack
            for (_, actual), value in zip(frame.results, values, strict=True):
                self.write(back, actual, value)
            for slot, saved in frame.saved.items():
                now = self._registers[slot]
                if saved is not None and now is not None:
                    self._registers[slot] = np.where(back, saved, now.view(saved.dtype))
            targets[back] = frame.onward
            self._frame[back] = frame.before[back]
            frame.absent &= ~back
            if not frame.absent.any():
                del self._frames[number]
        return targets

    def read(self, lanes: np.ndarray, variable: LocalVariable) -> np.ndarray:
        """Return a variable of some lanes: (lanes of the mask, bytes)."""
        return self._local[self._locate(lanes, variable)]

    def write(self, lanes: np.ndarray, variable: LocalVariable, values: np.ndarray) -> None:
        """Write a variable of some lanes: the inverse of `read`."""
        self._local[self._locate(lanes, variable)] = values

    def _locate(self, lanes: np.ndarray, variable: LocalVariable) -> tuple[np.ndarray, np.ndarray]:
        rows = np.flatnonzero(lanes)
        first = variable.offset + (self.depth[rows] if variable.stacked else np.zeros(rows.size, np.int64))
        return rows[:, None], first[:, None] + np.arange(variable.size)
