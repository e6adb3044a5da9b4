"""What a few blocks of a kernel execute and ask of memory, observed on the reference GPU, by line of the PTX."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from gemm_ref.clock.recorder import Recorder, is_asynchronous
from gemm_ref.launch import Launch
from gemm_ref.ptx.core.events import Access, BulkAccess, KernelInfo, Observer, Synchronisation
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.core.memory import GlobalMemory, Tensor
from gemm_ref.ptx.count.banks import line_passes
from gemm_ref.ptx.count.requests import of_warps, rows, served
from gemm_ref.ptx.count.sectors import SECTOR
from gemm_ref.ptx.text.parser import Instruction

LINE = 128  # bytes of a line of the L1 cache
_L1_BYTES = 228 * 1024  # of L1 and shared memory together


@dataclass
class Requests:
    """The sums of one line of PTX over all requests of warps."""

    number: int = 0
    served: int = 0  # wavefronts of shared memory, or lines of L1
    bytes: int = 0  # that L1 gives or takes: of whole sectors
    missed: int = 0  # bytes of sectors that L1 had to fetch, or that were stored
    misses: int = 0  # requests with any


@dataclass
class Sample:
    """One launch: what its first block, or cluster, did."""

    kernel: KernelInfo
    launch: Launch
    executed: dict[int, np.ndarray] = field(default_factory=dict)  # by line of PTX, of each warp
    shared: dict[int, Requests] = field(default_factory=lambda: defaultdict(Requests))
    globals: dict[int, Requests] = field(default_factory=lambda: defaultdict(Requests))
    sectors: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # that were loaded, by tensor
    sizes: dict[str, int] = field(default_factory=dict)  # bytes, by tensor
    recorder: Recorder | None = None  # of a kernel whose warps wait for tensor cores or the TMA unit


class Sampler(Observer):
    """Observes launches, of which only the first block runs: use it within `first_block`."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._l1: OrderedDict[int, None] = OrderedDict()
        self._tensors: list[Tensor] = []

    def on_launch(self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory) -> None:
        self.samples.append(Sample(kernel, launch))
        if is_asynchronous(kernel.entry):
            self.samples[-1].recorder = Recorder()
        self.samples[-1].sizes.update((tensor.name, tensor.size) for tensor in memory.tensors)
        self._l1.clear()
        self._tensors = memory.tensors

    def on_instruction(self, instruction: Instruction, mask: np.ndarray | None, machine: Lanes) -> None:
        executed = self.samples[-1].executed
        lanes = machine.access_mask(mask)
        warps = machine.launch.num_warps * (machine.lanes // machine.launch.threads)
        passes = np.ones(warps, int) if lanes is None else rows(lanes, machine, False).any(axis=1).astype(int)
        if self.samples[-1].recorder:
            self.samples[-1].recorder.execute(instruction, passes)
        before = executed.get(instruction.ptx_line)
        executed[instruction.ptx_line] = passes if before is None else before + passes

    def on_synchronisation(self, event: Synchronisation) -> None:
        if self.samples[-1].recorder:
            self.samples[-1].recorder.synchronise(event)

    def on_phase(self, barriers: list[tuple], machine: Lanes) -> None:
        if self.samples[-1].recorder:
            self.samples[-1].recorder.end_phases(barriers)

    def on_bulk(self, access: BulkAccess) -> None:
        sample = self.samples[-1]
        if sample.recorder and access.started and access.space == "shared":
            sample.recorder.copy(access, access.machine)
        elif access.kind == "load":
            self._touch(np.unique(access.addresses // SECTOR).tolist())

    def on_access(self, access: Access) -> None:
        if access.space not in ("shared", "global"):
            return
        sample, line = self.samples[-1], access.instruction.ptx_line
        addresses, active = of_warps(access)
        takes_part = active.any(axis=1)
        count = int(np.count_nonzero(takes_part))
        if access.space == "shared":
            sums = sample.shared[line]
            sums.number += count
            sums.served += int(served(access, addresses, active)[0].sum())
            return
        sums = sample.globals[line]
        sums.number += count
        if access.instruction.parts[0] == "cp":
            sample.shared[line].served += int(line_passes(addresses, active, access.size).sum())
        # Lists, because NumPy takes longer than Python for the 32 lanes of a warp.
        for sectors_of_lanes, lanes in zip((addresses // SECTOR).tolist(), active.tolist(), strict=True):
            sectors = sorted(set(compress(sectors_of_lanes, lanes)))
            if not sectors:
                continue
            sums.served += len({sector // (LINE // SECTOR) for sector in sectors})
            sums.bytes += len(sectors) * SECTOR
            if access.kind == "load":
                self._touch(sectors)
            missed = self._miss(sectors, access.kind) * SECTOR
            sums.missed += missed
            sums.misses += missed > 0

    def _touch(self, sectors: list[int]) -> None:
        """Note which sectors of which tensor are loaded: none of a copy that lies outside of it."""
        if not sectors:
            return
        first = sectors[0] * SECTOR
        for tensor in self._tensors:
            if tensor.first - SECTOR < first < tensor.first + tensor.size:
                self.samples[-1].sectors[tensor.name].update(sectors)
                return

    def _miss(self, sectors: list[int], kind: str) -> int:
        """How many of the sectors the L1 cache has not; all of a store, which it passes on."""
        if kind != "load":
            return len(sectors)
        cache, missed = self._l1, 0
        for sector in sectors:
            if sector in cache:
                cache.move_to_end(sector)
                continue
            missed += 1
            cache[sector] = None
            if len(cache) * SECTOR > _L1_BYTES:
                cache.popitem(last=False)
        return missed


def average(requests: Mapping[int, Requests], line: int, name: str) -> float:
    """A number of one line's requests, for one request; 0 where it made none."""
    found = requests.get(line)
    return getattr(found, name) / found.number if found and found.number else 0.0


def average_global(requests: Mapping[int, Requests], line: int, min_served: float) -> dict[str, Any]:
    """Fields of a `Step` for a request of a line to global memory: clocks of L1, bytes that miss it, and of a miss."""
    moved = average(requests, line, "bytes") / LINE
    fields = {"served": max(min_served, moved, average(requests, line, "served"))}
    found = requests.get(line)
    if found and found.misses:
        fields |= {"missed": found.missed / found.number, "unit": found.missed / found.misses}
    return fields
