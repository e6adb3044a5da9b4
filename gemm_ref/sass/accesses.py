"""What ptxas made of the memory accesses of PTX, read from nvdisasm's listing of machine code.

`nvdisasm -gp` says for each machine instruction which line of the PTX text it was made from. ptxas keeps an access,
unrolls the loop around it (several machine instructions from one line), or fuses it with neighbours (one wider
instruction, on the line of one of them; the others' lines have none). It also adds accesses of its own to local
memory, where registers do not suffice: spills, which belong to no PTX access.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

LISTING = ("nvdisasm", "-c", "-gp", "-ndf")  # what prints the listing of a cubin, before its path


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


_SECTION = re.compile(r"\.section\s+\.text\.([\w$.]+),")
_PLACE = re.compile(r'//## File "\.nv_debug_ptx_txt", line (\d+)')
_INSTRUCTION = re.compile(r"/\*[0-9a-f]+\*/\s+(?:@(!?\w+)\s+)?([A-Z][\w.]*)")
_NEVER = ("!PT", "!UPT")  # guards that never hold: `@!PT LDS RZ, [RZ]` stands before a copy from sm_90 on
_GLOBAL_OR_SHARED = {"LDG", "STG", "LDS", "STS", "LDGSTS", "LD", "ST", "ATOM", "ATOMG", "ATOMS", "RED"}
_ROWS = {"LDSM", "STSM"}
_LOCAL = {"LDL", "STL"}
_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


def read(listing: str) -> dict[str, MachineCode]:
    """The kernels in what `LISTING` prints, by name.

    Raises ValueError where instructions have no PTX line: the cubin was then made without `-lineinfo`.
    """
    accesses: dict[str, dict[int, list[MachineAccess]]] = {}
    spills: dict[str, int] = defaultdict(int)
    kernel, ptx_line = "", 0
    for text in listing.splitlines():
        if section := _SECTION.search(text):
            kernel, ptx_line = section[1], 0
            accesses[kernel] = defaultdict(list)
        elif place := _PLACE.search(text):
            ptx_line = int(place[1])
        elif (instruction := _INSTRUCTION.search(text)) and instruction[1] not in _NEVER:
            name, *modifiers = instruction[2].split(".")
            if name in _LOCAL:
                spills[kernel] += 1
            elif name in _GLOBAL_OR_SHARED or name in _ROWS:
                if not ptx_line:
                    raise ValueError(f"{kernel}: {text.strip()} has no PTX line: compile with -lineinfo")
                size = 16 if name in _ROWS else next((_SIZES[m] for m in modifiers if m in _SIZES), 4)
                accesses[kernel][ptx_line].append(MachineAccess(instruction[2], size))
    return {
        name: MachineCode({line: tuple(made) for line, made in lines.items()}, spills[name])
        for name, lines in accesses.items()
    }
