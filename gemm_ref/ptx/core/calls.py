"""Calls of functions (PTX ISA, 9.7.12): where each lane returns to, and what it finds there again.

A function's registers and local variables are its own, so a call saves none. Only functions that may call themselves,
over others too, are different: what a lane has in their registers is kept until it is back, and their local variables
are further on by `depth` bytes, in the thread's stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.ptx.core.memory import STACK_BYTES, PerOwner
from gemm_ref.ptx.text.dtypes import Value

_NOBODY = -1


@dataclass(frozen=True)
class Room:
    """A variable of a thread's local memory."""

    offset: int  # bytes
    size: int
    stacked: bool  # of a function that may call itself: its stack's depth is added


@dataclass
class _Frame:
    """A call that some lanes have made together."""

    onward: int  # the place at which they go on
    waiting: np.ndarray  # the lanes that are not back yet
    before: np.ndarray  # of each lane: the frame that it was in
    saved: dict[int, Value | None]  # registers by slot
    stack: int  # bytes by which their stacks have grown
    results: Sequence[tuple[Room, Room]]  # what the function gives back, and where its caller wants it


class Calls:
    """The calls of one machine that have not returned."""

    def __init__(self, local: PerOwner, lanes: int, registers: list[Value | None]) -> None:
        self._registers = registers
        self._local = local.data[: lanes * local.stride].reshape(lanes, local.stride)
        self._frames: dict[int, _Frame] = {}
        self._frame = np.full(lanes, _NOBODY, np.int64)  # of each lane
        self.depth = np.zeros(lanes, np.int64)  # bytes of its stack that its callers use

    def enter(
        self,
        lanes: np.ndarray,
        onward: int,
        arguments: Sequence[tuple[Room, Room]],
        results: Sequence[tuple[Room, Room]],
        keeps: Sequence[int],
        stack: int,
    ) -> bool:
        """These lanes call a function, with the caller's values of its arguments: false where a stack is too small.

        keeps: the slots of registers that the function may use as well; stack: bytes of the stack that it leaves alone.
        """
        values = [self.values(lanes, actual) for actual, _ in arguments]
        number = next(n for n in range(len(self._frames) + 1) if n not in self._frames)
        saved = {slot: self._registers[slot] for slot in keeps}
        self._frames[number] = _Frame(onward, lanes.copy(), self._frame.copy(), saved, stack, results)
        self._frame[lanes] = number
        self.depth[lanes] += stack
        if (self.depth + stack > STACK_BYTES).any():
            return False
        for (_, formal), value in zip(arguments, values, strict=True):
            self.set(lanes, formal, value)
        return True

    def give_back(self, lanes: np.ndarray) -> np.ndarray:
        """These lanes return; of each lane, the place at which it goes on."""
        targets = np.zeros(lanes.size, np.int64)
        for number in np.unique(self._frame[lanes]).tolist():
            frame = self._frames[number]
            back = lanes & (self._frame == number)
            values = [self.values(back, formal) for formal, _ in frame.results]
            self.depth[back] -= frame.stack
            for (_, actual), value in zip(frame.results, values, strict=True):
                self.set(back, actual, value)
            for slot, kept in frame.saved.items():
                now = self._registers[slot]
                if kept is not None and now is not None:
                    self._registers[slot] = np.where(back, kept, now.view(kept.dtype))
            targets[back] = frame.onward
            self._frame[back] = frame.before[back]
            frame.waiting &= ~back
            if not frame.waiting.any():
                del self._frames[number]
        return targets

    def values(self, lanes: np.ndarray, room: Room) -> np.ndarray:
        """(lanes of the mask, bytes) of a variable."""
        return self._local[self._where(lanes, room)]

    def set(self, lanes: np.ndarray, room: Room, values: np.ndarray) -> None:
        """The inverse of `values`."""
        self._local[self._where(lanes, room)] = values

    def _where(self, lanes: np.ndarray, room: Room) -> tuple[np.ndarray, np.ndarray]:
        rows = np.flatnonzero(lanes)
        first = room.offset + (self.depth[rows] if room.stacked else np.zeros(rows.size, np.int64))
        return rows[:, None], first[:, None] + np.arange(room.size)
