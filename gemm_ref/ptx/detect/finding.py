"""What a fault detector reports: a finding names the source line, the block, the two threads, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core.events import KernelInfo
from gemm_ref.ptx.core.lanes import coordinates
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
NOTES = (APART,)  # no faults: CUDA does not promise it, but every GPU since Volta does what was meant
Coordinates = tuple[int, int, int]  # x, y, z


@dataclass(frozen=True)
class Finding:
    """One fault, as the first thread that showed it; coordinates are (x, y, z), or None where there is no thread."""

    kind: str  # one of KINDS
    file: str
    line: int
    other_file: str | None  # where the other thread took part
    other_line: int | None
    block: Coordinates | None
    thread: Coordinates | None
    other_block: Coordinates | None
    other_thread: Coordinates | None
    text: str
    count: int = 1  # threads, or elements of memory that they accessed

    def __str__(self) -> str:
        return self.text if self.count == 1 else f"{self.text} ({self.count} times)"


class Scene:
    """The launch that is watched: the coordinates of its threads, the names of its memory, and what was found in it."""

    def __init__(
        self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory, findings: dict[tuple, Finding]
    ) -> None:
        """findings: one for each kind, line and other line, in the order in which they were made."""
        self.kernel, self.launch, self.memory = kernel, launch, memory
        self.instructions: list[Instruction] = []
        self._findings = findings
        self._numbers: dict[int, int] = {}
        self._selected: dict[Callable[[Instruction], bool], np.ndarray] = {}
        layout = kernel.static_shared
        names = {variable.name: variable.source_name for variable in kernel.entry.variables}
        self._arrays = sorted((offset, names[name]) for name, offset in layout.offsets.items())
        self._arrays += [(layout.size, names[name]) for name in kernel.dynamic_shared]

    def report(
        self,
        kind: str,
        here: Instruction,
        thread: int | None,
        text: str,
        other: int | None = None,
        there: Instruction | None = None,
        count: int = 1,
    ) -> None:
        """Report what a thread did `here`, and which other thread took part `there`; a known finding is counted.

        Threads are linear numbers in the grid.
        """
        other_file, other_line = (there.file, there.line) if there else (None, None)
        key = kind, here.file, here.line, other_file, other_line
        if key in self._findings:
            self._findings[key] = replace(self._findings[key], count=self._findings[key].count + count)
            return
        block, name = self.coordinates_of(thread)
        text = f"{here.origin}: {'' if thread is None else f'block {block} thread {name} '}{text}"
        places = block, name, *self.coordinates_of(other)
        self._findings[key] = Finding(*key, *places, text, count)

    def number(self, instruction: Instruction) -> int:
        """Return the number of an instruction in `instructions`."""
        if id(instruction) not in self._numbers:
            self._numbers[id(instruction)] = len(self.instructions)
            self.instructions.append(instruction)
        return self._numbers[id(instruction)]

    def test(self, predicate: Callable[[Instruction], bool]) -> np.ndarray:
        """Return whether a predicate holds, for each instruction that has a number."""
        cached = self._selected.get(predicate)
        if cached is None or cached.size < len(self.instructions):
            cached = self._selected[predicate] = np.array([predicate(one) for one in self.instructions], bool)
        return cached

    def coordinates_of(self, thread: int | None) -> tuple[Coordinates | None, Coordinates | None]:
        """Return the coordinates of the block and the thread with a linear number in the grid."""
        if thread is None:
            return None, None
        block, thread = divmod(int(thread), self.launch.threads)
        return coordinates(block, self.launch.grid), coordinates(thread, self.launch.block)

    def describe_thread(self, thread: int, reader: int) -> str:
        """Return `thread (1, 0, 0)`, with its block unless that is also the block of the thread `reader`."""
        block, name = self.coordinates_of(thread)
        return f"thread {name}" if block == self.coordinates_of(reader)[0] else f"block {block} thread {name}"

    def describe_shared(self, byte: int) -> str:
        """Return `byte 132 of a_smem`."""
        offset, name = max(((o, n) for o, n in self._arrays if o <= byte), default=(0, "shared memory"))
        return f"byte {byte - offset} of {name}"

    def describe_global(self, tensor: Tensor, byte: int) -> str:
        """Return `C[3, 5]`."""
        places = np.unravel_index(byte // tensor.owner.element_size(), tuple(tensor.owner.shape))
        return f"{tensor.name}[{', '.join(map(str, places))}]"
