"""What the compiler tells the scheduler with each instruction, read from the bytes of a cubin.

From sm_70 on an instruction is 16 bytes, of which 21 bits are for the scheduler: Jia et al., 'Dissecting the NVIDIA
Volta GPU Architecture via Microbenchmarking', 2018, section 2.1. From the lowest of them, bit 105: clocks until the
warp's next instruction (4 bits), whether to stay with this warp (1), the counter that is one higher until the result is
there and the one until the operands have been read (3 bits each, 7 for none), counters that have to be 0 before it (6),
and what is kept for reuse, which nvdisasm prints (4).
"""

from __future__ import annotations

from dataclasses import dataclass

from gemm_ref.sass.sections import INSTRUCTION_BYTES, code_places

COUNTERS = 6  # of a warp
_FIRST = 105


@dataclass(frozen=True)
class ControlCode:
    """Of one instruction."""

    stall: int  # clocks until the warp's next one
    result: int  # the counter that holds until its result is there; COUNTERS or more for none
    operands: int  # and until its operands have been read
    waits: tuple[int, ...]  # the counters that have to be 0 before it


def controls(cubin: bytes, kernel: str) -> list[ControlCode]:
    """For the instructions of a kernel in the order of nvdisasm's text, and what fills up its section behind them.

    Raises ValueError for bytes that are no cubin, KeyError for a kernel that is not in it.
    """
    begin, length = code_places(cubin)[kernel]
    places = range(begin, begin + length, INSTRUCTION_BYTES)
    return [_control(cubin[place : place + INSTRUCTION_BYTES]) for place in places]


def _control(instruction: bytes) -> ControlCode:
    bits = int.from_bytes(instruction, "little") >> _FIRST
    waits = tuple(counter for counter in range(COUNTERS) if bits >> 11 + counter & 1)
    return ControlCode(bits & 15, bits >> 5 & 7, bits >> 8 & 7, waits)
