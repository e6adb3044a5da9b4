"""What a fault detector reports: a finding names the line, the block, the two threads, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core.events import KernelInfo
from gemm_ref.ptx.core.lanes import Lanes, coordinates
from gemm_ref.ptx.core.memory import GlobalMemory, Tensor
from gemm_ref.ptx.text.parser import Instruction

RACE = "race"  # two threads, one of them writes, and no barrier between
EARLY = "async copy read before its wait"
UNWRITTEN = "memory read before it was written"
SKIPPED = "barrier that threads skip"
MIXED = "barrier that two groups share"
ENDED = "shared memory of a block that may have ended"
TWICE = "written by two threads"
MISSED = "never written"
APART = "barriers on two sides of a branch"
KINDS = (RACE, EARLY, UNWRITTEN, SKIPPED, MIXED, ENDED, TWICE, MISSED, APART)
NOTES = (APART,)  # what every GPU since Volta does as meant, though CUDA does not promise it: no faults

Make = Callable[[], dict]  # the fields of a finding that its two instructions do not give


@dataclass(frozen=True)
class Finding:
    """One fault, told by the first thread that showed it. Coordinates are (x, y, z); None where there is no other."""

    kind: str  # one of KINDS
    file: str
    line: int
    other_file: str | None  # where the other thread did its part
    other_line: int | None
    block: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    other_block: tuple[int, int, int] | None
    other_thread: tuple[int, int, int] | None
    text: str
    count: int = 1  # how often: threads, or elements of memory that each touched

    def __str__(self) -> str:
        return self.text if self.count == 1 else f"{self.text} ({self.count} times)"


class Findings:
    """Findings in the order in which they were made, one for each kind, line and other line."""

    def __init__(self) -> None:
        self._found: dict[tuple, Finding] = {}

    def __iter__(self):
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self, kind: str, here: Instruction, there: Instruction | None, count: int, make: Callable[[], dict]
    ) -> None:
        """Count a fault; one that is new is made."""
        other = (there.file, there.line) if there else (None, None)
        key = (kind, here.file, here.line, *other)
        if key in self._found:
            self._found[key] = replace(self._found[key], count=self._found[key].count + count)
        else:
            blank = dict.fromkeys(("block", "thread", "other_block", "other_thread"))
            self._found[key] = Finding(kind, here.file, here.line, *other, **{**blank, **make(), "count": count})


class Scene:
    """The launch that is looked at: who its threads are, and what its memory is called."""

    def __init__(self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory) -> None:
        self.kernel, self.launch, self.memory = kernel, launch, memory
        self.instructions: list[Instruction] = []
        self._numbers: dict[int, int] = {}
        self._whether: dict[Callable[[Instruction], bool], np.ndarray] = {}
        layout = kernel.static_shared
        names = {variable.name: variable.source_name for variable in kernel.entry.variables}
        self._arrays = sorted((offset, names[name]) for name, offset in layout.offsets.items())
        self._arrays += [(layout.size, names[name]) for name in kernel.dynamic_shared]

    def number(self, instruction: Instruction) -> int:
        """A number for an instruction, from 0."""
        if id(instruction) not in self._numbers:
            self._numbers[id(instruction)] = len(self.instructions)
            self.instructions.append(instruction)
        return self._numbers[id(instruction)]

    def whether(self, holds: Callable[[Instruction], bool]) -> np.ndarray:
        """Of each instruction that has a number, whether this holds."""
        found = self._whether.get(holds)
        if found is None or found.size < len(self.instructions):
            found = self._whether[holds] = np.array([holds(each) for each in self.instructions], bool)
        return found

    def who(self, thread: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Block and thread of a number in the whole grid."""
        block, thread = divmod(int(thread), self.launch.threads)
        return coordinates(block, self.launch.grid), coordinates(thread, self.launch.block)

    def threads(self, machine: Lanes, lanes: np.ndarray) -> np.ndarray:
        """The numbers in the whole grid of a machine's lanes."""
        return machine.block_of_lane[lanes] * machine.launch.threads + machine.thread_of_lane[lanes]

    def name_other(self, thread: int, beside: int) -> str:
        """A number in the whole grid as `thread (1, 0, 0)`, with its block where that is not also the other's."""
        block, name = self.who(thread)
        return f"thread {name}" if block == self.who(beside)[0] else f"block {block} thread {name}"

    def told(self, here: Instruction, thread: int, other: int | None, text: str) -> dict:
        """The fields of a finding: what a thread did `here`, and who else had a part; numbers in the whole grid."""
        block, name = self.who(thread)
        found = {"block": block, "thread": name, "text": f"{place(here)}: block {block} thread {name} {text}"}
        if other is not None:
            found["other_block"], found["other_thread"] = self.who(other)
        return found

    def shared_name(self, byte: int) -> str:
        """`byte 132 of a_smem`."""
        offset, name = max(((o, n) for o, n in self._arrays if o <= byte), default=(0, "shared memory"))
        return f"byte {byte - offset} of {name}"

    def global_name(self, tensor: Tensor, byte: int) -> str:
        """`C[3, 5]`."""
        index = byte // tensor.owner.element_size()
        places: list[int] = []
        for size in reversed(tensor.owner.shape):
            places.insert(0, index % size)
            index //= size
        return f"{tensor.name}[{', '.join(map(str, places))}]"


def place(instruction: Instruction) -> str:
    """`file:line: text`, and whose call brought in a line of a header."""
    return instruction.place + _caller(instruction)


def place_from(instruction: Instruction, here: Instruction) -> str:
    """Where an instruction is, for a reader who knows where `here` is."""
    if instruction.file == here.file:
        return f"line {instruction.line}"
    return f"{instruction.file}:{instruction.line}{_caller(instruction)}"


def _caller(instruction: Instruction) -> str:
    elsewhere = instruction.caller and not instruction.caller.startswith(instruction.file)
    return f" (called at {instruction.caller})" if elsewhere else ""
