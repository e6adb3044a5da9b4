"""nvdisasm's text, read into kernels, and a kernel cut into basic blocks.

The text is that of `tools.disassemble`, which says of each instruction which line of the PTX it was made from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gemm_ref.sass.control import ControlCode, controls

_KERNEL = re.compile(r"^\.text\.(\S+):")
_PTX_LINE = re.compile(r'//## File "\.nv_debug_ptx_txt", line (\d+)')
_LABEL = re.compile(r"^(\.L\w+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:(@!?\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_TABLE = re.compile(r"BRANCH_TARGETS ([\w.,]+)")  # a comment on a jump by a table: where it may go

_ENDS = ("EXIT", "RET", "KILL")  # leave the kernel, or go back to where a function was called
_UNKNOWN = ("BRX", "BRXU", "JMP", "JMX", "JMXU")  # go to places that the text need not name


@dataclass(frozen=True)
class Instruction:
    """One line of machine code: `@!P0 LDG.E.128 R4, desc[UR8][R2.64]`."""

    opcode: str  # with its suffixes: "LDG.E.128"
    operands: str = ""
    guard: str = ""  # "@!P0"; empty where all threads execute it
    ptx_line: int = 0  # of the PTX that it was made from; 0 where the cubin does not say
    control: ControlCode | None = None  # what the scheduler is told, where it was read from the cubin

    @property
    def name(self) -> str:
        """The opcode without suffixes."""
        return self.opcode.split(".", 1)[0]

    @property
    def never(self) -> bool:
        """Whether its guard never holds: `@!PT LDS RZ, [RZ]` stands three times before an LDGSTS from sm_90 on."""
        return self.guard in ("@!PT", "@!UPT")

    @property
    def target(self) -> str:
        """The label that it names; empty if it names none."""
        found = _TARGET.search(self.operands)
        return found[1] if found else ""

    @property
    def table(self) -> tuple[str, ...]:
        """The labels that a jump by a table may go to; empty where the text does not name them."""
        found = _TABLE.search(self.operands)
        return tuple(found[1].split(",")) if found else ()


@dataclass(frozen=True)
class SassKernel:
    """The instructions of one kernel, and the index of the instruction that each label stands before."""

    name: str
    code: tuple[Instruction, ...]
    labels: dict[str, int]


@dataclass(frozen=True)
class Block:
    """Instructions that are executed one after the other, and the indices of the blocks that may come next."""

    code: tuple[Instruction, ...]
    successors: tuple[int, ...]


def controlled(kernel: SassKernel, cubin: bytes) -> SassKernel:
    """Returns the kernel with the control code of each instruction, read from the cubin that it is of."""
    code = zip(kernel.code, controls(cubin, kernel.name), strict=False)  # behind the code there is filling
    return replace(kernel, code=tuple(replace(instruction, control=control) for instruction, control in code))


def parse(text: str) -> list[SassKernel]:
    """The kernels in nvdisasm's text, in its order."""
    kernels: list[tuple[str, list[Instruction], dict[str, int]]] = []
    ptx_line = 0
    for line in text.splitlines():
        if kernel := _KERNEL.match(line):
            kernels.append((kernel[1], [], {}))
            ptx_line = 0
        elif place := _PTX_LINE.search(line):
            ptx_line = int(place[1])
        elif not kernels:
            continue
        elif label := _LABEL.match(line):
            kernels[-1][2][label[1]] = len(kernels[-1][1])
        elif instruction := _INSTRUCTION.match(line):
            guard, opcode, operands = instruction.groups(default="")
            kernels[-1][1].append(Instruction(opcode, operands, guard, ptx_line))
    return [SassKernel(name, tuple(code), labels) for name, code, labels in kernels]


def blocks(kernel: SassKernel) -> list[Block]:
    """The basic blocks of a kernel in the order of the text; the first is where it starts.

    Raises ValueError for an instruction whose successors cannot be told from the text.
    """
    next_indices = _next_indices(kernel)
    size = len(kernel.code)
    starts = {0, *(index for index in kernel.labels.values() if index < size)}
    starts |= {index + 1 for index, after in enumerate(next_indices) if after != (index + 1,) and index + 1 < size}
    ordered = sorted(starts)
    number = {start: i for i, start in enumerate(ordered)}
    cut = []
    for start, end in zip(ordered, [*ordered[1:], size], strict=True):
        after = tuple(number[index] for index in next_indices[end - 1] if index < size)
        cut.append(Block(kernel.code[start:end], after))
    return cut


def _next_indices(kernel: SassKernel) -> list[tuple[int, ...]]:
    """For each instruction the indices of those that may be executed after it."""
    found: list[tuple[int, ...]] = []
    meeting: dict[str, int] = {}  # barrier register -> where the threads that BSYNC waits for go on together
    for index, instruction in enumerate(kernel.code):
        name, operands = instruction.name, instruction.operands
        if name in _UNKNOWN and not instruction.table:
            raise ValueError(f"{kernel.name}: {instruction.opcode} {operands} jumps to a place that cannot be followed")
        sometimes = (index + 1,) if instruction.guard else ()
        if name == "BSSY":
            meeting[operands.split(",")[0]] = kernel.labels[instruction.target]
        if name in _UNKNOWN:
            found.append((*dict.fromkeys(kernel.labels[label] for label in instruction.table), *sometimes))
        elif name == "BRA":
            # A condition is a guard, an operand (BRA.U UP0, `(.L_x_1)), or both; without one it is always taken.
            conditional = instruction.guard or not operands.startswith("`")
            found.append((kernel.labels[instruction.target], *((index + 1,) if conditional else ())))
        elif name == "BSYNC":
            found.append((meeting[operands], *sometimes))
        elif name in _ENDS:
            found.append(sometimes)
        else:
            found.append((index + 1,))
    return found
