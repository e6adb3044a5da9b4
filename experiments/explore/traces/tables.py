"""From steps as they were seen to the tables of a trace, in which everything that recurs stands once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

import numpy as np

from experiments.explore.traces.observe import ObservedStep
from experiments.explore.traces.origin import Ids
from experiments.explore.traces.record import NOWHERE, Array, Operation, Steps
from gemm_ref.ptx.text.parser import Instruction


class _Table:
    """Arrays by number; equal ones have one."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._numbers: dict[tuple, int] = {}

    def number(self, array: np.ndarray) -> int:
        key = (array.shape, array.tobytes())
        if key not in self._numbers:
            self._numbers[key] = len(self.arrays)
            self.arrays.append(array)
        return self._numbers[key]


class Tables:
    """Takes steps one by one; `steps` and the tables that these refer to are the result."""

    def __init__(self, file: str, ids: Ids, depth: int, arrays: Sequence[Array]) -> None:
        """file: that defines the kernel; depth: elements of K in a slice; arrays: of both spaces."""
        self._file, self._ids, self._depth, self._arrays = PurePosixPath(file).name, ids, depth, arrays
        self._patterns, self._counts, self._origins = _Table(), _Table(), _Table()
        self._operations: dict[Operation, int] = {}
        self._rows: list[tuple[int, ...]] = []

    @property
    def steps(self) -> Steps:
        return Steps(*(np.array(column, np.int32) for column in zip(*self._rows, strict=True)))

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(self._operations)

    @property
    def patterns(self) -> tuple[np.ndarray, ...]:
        return tuple(self._patterns.arrays)

    @property
    def counts(self) -> np.ndarray:
        return np.stack(self._counts.arrays)

    @property
    def origins(self) -> tuple[np.ndarray, ...]:
        return tuple(self._origins.arrays)

    def add(self, seen: ObservedStep) -> None:
        array, ids = self._array(seen), seen.ids
        touched = _ids_at(array, seen) if array and array.space == "global" else ids
        base, pattern = self._relative(seen.offsets, self._patterns)
        nothing = np.full((len(seen.offsets), 1), NOWHERE)
        first, origin = (
            self._relative(nothing if ids is None else ids, self._origins) if writes_shared(seen) else (0, NOWHERE)
        )
        counts = NOWHERE if seen.counts is None else self._counts.number(seen.counts.astype(np.int32))
        operation = self._operation(seen, array)
        slice_ = NOWHERE if touched is None else self._slice(touched)
        about = (operation, slice_, seen.times, base, pattern, counts, first, origin)
        self._rows.append((*about, seen.done, seen.thread, seen.block, seen.mbarrier))

    def _operation(self, seen: ObservedStep, array: Array | None) -> int:
        instruction = seen.instruction
        name = array.name if array else seen.array
        place = f"{instruction.file}:{instruction.line}"
        about = (self._line(instruction), place, instruction.name, seen.kind, seen.space, name, seen.size)
        return self._operations.setdefault(Operation(*about), len(self._operations))

    def _line(self, instruction: Instruction) -> int:
        """The line of the kernel's file where an instruction is, or where the innermost call is that leads to it."""
        places = (f"{instruction.file}:{instruction.line}", *instruction.callers)
        lines = (line for file, _, line in (place.rpartition(":") for place in places) if file == self._file)
        return int(next(lines, 0))

    def _array(self, seen: ObservedStep) -> Array | None:
        if seen.space != "shared":
            return next((a for a in self._arrays if a.space == seen.space and a.name == seen.array), None)
        low, high = int(seen.offsets[seen.active].min()), int(seen.offsets.max()) + seen.size
        inside = (a for a in self._arrays if a.space == "shared" and a.offset <= low and high <= a.offset + a.bytes)
        return next(inside, None)

    def _slice(self, touched: np.ndarray) -> int:
        """The first slice of K that has one of these elements of A or B."""
        ids, k, n = self._ids, self._ids.problem.k, self._ids.problem.n
        of_a = touched[(touched >= 0) & (touched < ids.first["B"])]
        of_b = touched[(touched >= ids.first["B"]) & (touched < ids.first["C"])] - ids.first["B"]
        depths = np.concatenate([of_a % k, of_b // n % k])
        return int(depths.min()) // self._depth if depths.size else NOWHERE

    def _relative(self, values: np.ndarray, table: _Table) -> tuple[int, int]:
        """The smallest of some numbers, and the number in the table of what is left of them; NOWHERE stays."""
        there = values != NOWHERE
        first = int(values[there].min()) if there.any() else 0
        return first, table.number(np.where(there, values - first, NOWHERE).astype(np.int32))


def writes_shared(seen: ObservedStep) -> bool:
    """Whether a step leaves something in shared memory."""
    return seen.kind in ("store", "async store", "bulk load") and seen.space == "shared"


def staged_bytes(steps: Iterable[ObservedStep], ids: Ids, shared_bytes: int) -> int:
    """Of a block's shared memory, the bytes that hold elements of A or B at some time."""
    held = np.zeros(shared_bytes, bool)
    for seen in steps:
        if writes_shared(seen) and seen.ids is not None:
            width = seen.size // seen.ids.shape[1]
            places = seen.offsets[:, None] + width * np.arange(seen.ids.shape[1])
            there = places[(seen.ids != NOWHERE) & (seen.ids < ids.first["C"])]
            held[there[:, None] + np.arange(width)] = True
    return int(held.sum())


def _ids_at(array: Array, seen: ObservedStep) -> np.ndarray | None:
    """The ids of the elements of a matrix that a step accesses; None where they have none."""
    if array.first_id == NOWHERE:
        return None
    places = seen.offsets[seen.active][:, None] // array.element_bytes
    elements = places + np.arange(max(1, seen.size // array.element_bytes))
    if array.by_columns:
        elements = elements % array.rows * array.columns + elements // array.rows
    return array.first_id + elements
