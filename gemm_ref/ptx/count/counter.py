"""Counts the memory requests and the arithmetic of a kernel, by source line and access, as written and as compiled.

    counter = ptx.Counter()
    with ptx.watched(counter):
        cuda_kernels.gemm(a, b, stage="s04")  # CPU tensors
    counter.counts()

A request is one memory instruction of one warp with at least one active lane. 'Written' counts the PTX. 'Compiled'
counts the machine code of ptxas: a widened access is counted with its width there, from the aligned address that the
wide access must have, and one that was fused into another is not counted. Neither models caches or time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gemm_ref.launch import Launch, cdiv
from gemm_ref.ptx.core.events import Access, KernelInfo, Observer
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.core.memory import GlobalMemory
from gemm_ref.ptx.count.banks import WORD, line_passes
from gemm_ref.ptx.count.counts import COMPILED, ONCE, WRITTEN, Count, flops_of, sort_key, unmatched_bytes
from gemm_ref.ptx.count.requests import of_warps, rows, served
from gemm_ref.ptx.count.sectors import SECTOR
from gemm_ref.ptx.text.parser import Instruction
from gemm_ref.sass import accesses

_MAX_SHARED = 1 << 20  # more than any GPU's shared memory


@dataclass
class _Sum:
    """The sums of one instruction, or of one source line."""

    numbers: dict[str, Any] = field(default_factory=lambda: defaultdict(int))  # by the fields of a Count
    # Where each lane's bytes begin, -1 for none, in the request that exceeds its ideal most; and by how much it does.
    worst: np.ndarray | None = None
    excess: int = -1  # wavefronts or sectors

    def add(self, numbers: Mapping[str, int], times: int = 1) -> None:
        """Add numbers, which occurred so many times."""
        for name, number in numbers.items():
            self.numbers[name] += times * number

    @property
    def offsets(self) -> tuple[int | None, ...]:
        """`worst` as a Count has it."""
        return () if self.worst is None else tuple(None if at < 0 else at for at in self.worst.tolist())


class Counter(Observer):
    """Counts every launch that it observes.

    disassemble: turns a cubin into text (`sass.tools.disassemble`); without it only the PTX is counted.
    """

    def __init__(self, disassemble: Callable[[bytes], str] | None = None) -> None:
        self._disassemble = disassemble
        self._views = (WRITTEN,) if disassemble is None else (WRITTEN, COMPILED)
        # (view, launch, line of the PTX, array, kind) -> what is counted there, and its numbers
        self._sums: dict[tuple[str, int, int, str, str], tuple[Count, _Sum]] = {}
        self._touched: dict[tuple[int, str, str], np.ndarray] = {}  # (launch, tensor, kind) -> which sectors
        self._shared: dict[range, str] = {}  # the launch's arrays in shared memory
        self._launch = 0
        self._code: Mapping[int, tuple[accesses.MachineAccess, ...]] = {}
        self._cp_async_sums: list[_Sum] = []  # the sums of the shared side of the last cp.async
        self._known: dict[tuple, tuple] = {}  # the pattern of a request -> its numbers
        self._spills: dict[int, int] = {}  # by launch

    @property
    def launches(self) -> int:
        """The number of kernels that have been launched so far."""
        return self._launch

    def counts(self) -> list[Count]:
        """Return all counts so far, by launch and line."""
        merged: dict[Count, _Sum] = {}
        for about, total in self._sums.values():
            for view in self._views if about.kind == "flop" else (about.view,):  # ptxas does not change arithmetic
                line = merged.setdefault(replace(about, view=view), _Sum())
                line.add(total.numbers)
                if total.excess >= line.excess:
                    line.excess, line.worst = total.excess, total.worst
        for (launch, array, kind), touched in self._touched.items():
            for view in self._views:
                about = Count(view, launch, "", 0, "", ONCE, array, kind, 0)
                merged[about] = _Sum({"sectors": int(touched.sum())})
        counts = [replace(about, offsets=total.offsets, **total.numbers) for about, total in merged.items()]
        unmatched = unmatched_bytes(counts)
        for i, count in enumerate(counts):
            if count.view == COMPILED:
                off, spills = unmatched[count.launch, count.space, count.kind], self._spills[count.launch]
                counts[i] = replace(count, unmatched=off, spills=spills)
        return sorted(counts, key=sort_key)

    def on_launch(self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory) -> None:
        self._launch += 1
        arrays = [(kernel.static_shared.offsets.get(v.name), v) for v in kernel.entry.variables]
        self._shared = {range(at, at + v.size): v.source_name for at, v in arrays if at is not None}
        if self._disassemble is None:
            return
        if kernel.cubin is None:
            raise ValueError(f"{kernel.name} has no machine code here: it can only be counted as written")
        code = accesses.read(self._disassemble(kernel.cubin()))[kernel.name]
        self._code = code.accesses
        self._spills[self._launch] = code.spills

    def on_instruction(self, instruction: Instruction, mask: np.ndarray | None, machine: Lanes) -> None:
        flop = flops_of(instruction.name)
        if not flop:
            return
        lanes = machine.access_mask(mask)
        if lanes is None:
            count, requests = machine.lanes, machine.lanes // machine.launch.threads * machine.launch.num_warps
        else:
            count = int(np.count_nonzero(lanes))
            requests = int(np.count_nonzero(rows(lanes, machine, False).any(axis=1)))
        total = self._sum(WRITTEN, instruction, instruction.name, "", "", "flop", 0)
        total.add({"requests": requests, "lanes": count, "flop": flop * count})

    def on_access(self, access: Access) -> None:
        instruction = access.instruction
        addresses, active = of_warps(access)
        touched = addresses[active]
        low, high = int(touched.min()), int(touched.max())
        if low < 0 or (access.space == "shared" and high > _MAX_SHARED):
            return  # out of bounds: the machine is about to stop
        array, first = self._touch(access, touched, low, high)
        copies = instruction.parts[0] == "cp" and access.space == "global"
        about = (access.space, array, "async load" if copies else access.kind)
        if copies and access.size >= WORD:  # its shared side was counted just before
            passes = int(line_passes(addresses, active, access.size).sum())
            for total in self._cp_async_sums:
                total.add({"wavefronts": passes, "ideal": passes})
        sums = [self._sum(WRITTEN, instruction, instruction.name, *about, access.size)]
        self._add(sums[0], access, addresses, active, first)
        if made := self._code.get(instruction.ptx_line):
            # Copies of an unrolled loop share its executions, so equal ones count as one. Of different widths on one
            # line nobody knows which served which execution: the widest is taken, and `unmatched` shows the error.
            wide = max(made, key=lambda one: one.size)
            total = self._sum(COMPILED, instruction, wide.name, *about, wide.size)
            for start in range(0, access.size, wide.size):  # once, unless it is narrower than what is written
                vectors = (addresses + start) // wide.size * wide.size
                self._add(total, replace(access, size=wide.size), vectors, active, first)
            sums.append(total)
        if access.kind == "async store":
            self._cp_async_sums = sums

    def _sum(self, view: str, instruction: Instruction, op: str, space: str, array: str, kind: str, size: int) -> _Sum:
        key = (view, self._launch, instruction.ptx_line, array, kind)
        if key not in self._sums:
            about = Count(view, self._launch, instruction.file, instruction.line, op, space, array, kind, size)
            self._sums[key] = (about, _Sum())
        return self._sums[key][1]

    def _add(self, total: _Sum, access: Access, addresses: np.ndarray, active: np.ndarray, first: int) -> None:
        """Add an access whose lanes' addresses, (W, 32), and width may be those of the machine code.

        first: the address at which what it accesses begins.
        """
        # To move all of a request by whole vectors only turns the banks round, by whole sectors changes no sector.
        step = max(access.size, WORD) if access.space == "shared" else SECTOR
        look = addresses - addresses[:, :1] // step * step
        if active.all() and (look == look[0]).all():
            key = (access.space, access.kind, access.instruction.parts[0], access.size, look[0].tobytes())
            if key not in self._known:
                self._known[key] = _measure(access, addresses[:1], active[:1])
            (numbers, excess, _), times, worst = self._known[key], len(addresses), -1
        else:
            (numbers, excess, worst), times = _measure(access, addresses, active), 1
        total.add(numbers, times)
        if excess >= max(0, total.excess):
            total.excess = excess
            total.worst = np.where(active[worst], addresses[worst] - first, -1)

    def _touch(self, access: Access, addresses: np.ndarray, low: int, high: int) -> tuple[str, int]:
        """Return the name and the first address of the array that is accessed; record the sectors of a tensor."""
        if access.space == "shared":
            return next((name for place, name in self._shared.items() if low in place and high in place), ""), 0
        for tensor in access.machine.memory.tensors if access.space == "global" else ():
            if tensor.holds(low, high, access.size):
                first, last = tensor.first // SECTOR, (tensor.first + tensor.size - 1) // SECTOR
                key = (self._launch, tensor.name, access.kind)
                self._touched.setdefault(key, np.zeros(last - first + 1, bool))[addresses // SECTOR - first] = True
                return tensor.name, tensor.first
        return "", 0


def _measure(access: Access, addresses: np.ndarray, active: np.ndarray) -> tuple[dict[str, int], int, int]:
    """Return the numbers of an access, by how much a request exceeds its ideal at most, and the last such request.

    The ideal of sectors is what as many contiguous bytes take, or what lanes that read the same bytes take if that is
    less; it is not summed.
    """
    takes_part = active.any(axis=1)
    numbers = {"requests": int(np.count_nonzero(takes_part)), "lanes": int(np.count_nonzero(active))}
    taken, ideal = served(access, addresses, active)
    if access.space == "shared":
        numbers |= {"wavefronts": int(taken.sum()), "ideal": int(ideal.sum())}
    else:
        numbers["sectors"] = int(taken.sum())
        ideal = np.minimum(taken, cdiv(active.sum(axis=1) * access.size, SECTOR))
    over = np.where(takes_part, taken - ideal, -1)
    worst = len(over) - 1 - int(np.argmax(over[::-1]))
    return numbers, int(over[worst]), worst
