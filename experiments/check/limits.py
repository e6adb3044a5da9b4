"""How long a kernel may run: instructions of one run, and the processor time of a check."""

from __future__ import annotations

import contextvars
import math
import os

from gemm_ref import ptx

MAX_INSTRUCTIONS = 300_000  # of a batch of blocks: some hundred times what these sizes take a sound kernel
_INSTRUCTIONS_PER_LOOK = 256  # at the clock


class OutOfTime(ptx.PtxError):
    """The check has used its processor time; nothing follows for the kernel."""


def used_s() -> float:
    """Returns the seconds of a core that this process and its compilers have used."""
    return sum(os.times()[:4])


deadline_s = contextvars.ContextVar("deadline_s", default=math.inf)  # of `used_s`: a run past it raises OutOfTime


class InstructionLimit(ptx.Observer):
    """Stops a kernel that does not end by itself."""

    def __init__(self, limit: int = 0) -> None:
        self._limit = self._left = limit or MAX_INSTRUCTIONS

    def on_instruction(self, instruction, mask, machine) -> None:
        self._left -= 1
        if self._left % _INSTRUCTIONS_PER_LOOK == 0 and used_s() > deadline_s.get():
            raise OutOfTime(f"{instruction.place}: the check has used its processor time")
        if self._left < 0:
            after = f"still running after {self._limit} instructions"
            raise ptx.EndlessLoop(f"{instruction.place}: {after}: does the loop around this line end?")
