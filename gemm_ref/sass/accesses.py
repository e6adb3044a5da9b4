"""What ptxas made of the memory accesses of PTX, read from nvdisasm's listing of machine code.

The listing says for each machine instruction which line of the PTX text it was made from. ptxas keeps an access,
unrolls the loop around it (several machine instructions from one line), or fuses it with neighbours (one wider
instruction, on the line of one of them; the others' lines have none). It also adds accesses of its own to local
memory, where registers do not suffice: spills, which belong to no PTX access.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from gemm_ref.sass.listing import SassKernel, parse
from gemm_ref.sass.mix import bits


@dataclass(frozen=True)
class MachineAccess:
    """A memory instruction of the machine code."""

    name: str  # with its modifiers, as in `LDS.128`
    size: int  # bytes a lane; of ldmatrix and stmatrix, a lane's row


@dataclass(frozen=True)
class MachineCode:
    """The memory instructions of one kernel."""

    accesses: Mapping[int, tuple[MachineAccess, ...]]  # by the line of the PTX text that each was made from
    spills: int  # instructions that access local memory


_GLOBAL_OR_SHARED = {"LDG", "STG", "LDS", "STS", "LDGSTS", "LD", "ST", "ATOM", "ATOMG", "ATOMS", "RED"}
_ROWS = {"LDSM", "STSM"}
_LOCAL = {"LDL", "STL"}


def read(text: str) -> dict[str, MachineCode]:
    """The memory accesses of the kernels in what `tools.disassemble` gives, by the kernels' names.

    Raises ValueError where instructions have no PTX line: the cubin was then made without `-lineinfo`.
    """
    return {kernel.name: _accesses(kernel) for kernel in parse(text)}


def _accesses(kernel: SassKernel) -> MachineCode:
    made: dict[int, list[MachineAccess]] = defaultdict(list)
    spills = 0
    for instruction in kernel.code:
        if instruction.never:
            continue
        if instruction.name in _LOCAL:
            spills += 1
        elif instruction.name in _GLOBAL_OR_SHARED | _ROWS:
            if not instruction.ptx_line:
                raise ValueError(f"{kernel.name}: {instruction.opcode} has no line of PTX: compile with -lineinfo")
            size = 16 if instruction.name in _ROWS else bits(instruction) // 8
            made[instruction.ptx_line].append(MachineAccess(instruction.opcode, size))
    return MachineCode({line: tuple(accesses) for line, accesses in made.items()}, spills)
