"""Counts what a kernel asks of memory, by source line and by access, as written and as compiled.

    counter = Counter()
    with ptx.observing(counter):
        cuda_kernels.gemm(a, b, stage="s04")  # CPU tensors
    counter.counts()

A request is one memory instruction of one warp, if any of its lanes takes part. 'Written' counts the PTX. 'Compiled'
counts what ptxas made of it: an access that it widened is counted at its width in the machine code, from the aligned
address that the wide access must have, and one that it fused into another is not counted. Neither knows caches or time.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gemm_ref.ptx import sass
from gemm_ref.ptx.banks import WORD, wavefronts
from gemm_ref.ptx.observe import Access, Observer
from gemm_ref.ptx.parser import Instruction
from gemm_ref.ptx.sectors import SECTOR, WARP, sectors
from gemm_ref.stage import Launch

if TYPE_CHECKING:
    from gemm_ref.ptx.machine import Machine
    from gemm_ref.ptx.program import Kernel

WRITTEN, COMPILED = "written", "compiled"
ONCE = "once"  # the space of a launch's distinct global sectors: each counted the first time it is touched
_FLOPS = {"fma": 2, "mad": 2, "add": 1, "sub": 1, "mul": 1}


@dataclass(frozen=True)
class Count:
    """One access, or kind of arithmetic, of one source line, summed over the launch."""

    view: str  # WRITTEN or COMPILED
    launch: int  # which of the kernels that were run, from 1
    file: str
    line: int
    op: str  # the instruction's name, in PTX or in machine code
    space: str  # global, shared, local, ONCE, or empty for arithmetic
    array: str  # what is accessed: a tensor's name, or that of a `__shared__` array; empty where it has none
    kind: str  # load, store, async store (the shared side of a cp.async), atomic; or flop
    size: int  # bytes a lane
    requests: int = 0  # instructions of a warp with any lane active
    lanes: int = 0
    sectors: int = 0  # of 32 bytes
    wavefronts: int = 0  # of shared memory
    ideal: int = 0  # wavefronts without bank conflicts
    flop: int = 0
    unmatched: int = 0  # compiled: bytes by which this launch's accesses of this space and kind differ from the written
    words: tuple[int | None, ...] = ()  # shared: each lane's first word in the request with most conflicts


@dataclass
class _Sum:
    """The numbers of a Count while it is added up."""

    numbers: dict[str, int] = field(default_factory=dict)
    words: tuple[int | None, ...] = ()
    excess: int = -1  # wavefronts over the ideal of the request that `words` show

    def add(self, **more: int) -> None:
        for name, value in more.items():
            self.numbers[name] = self.numbers.get(name, 0) + int(value)


class Counter(Observer):
    """Counts every launch that it observes; `disassemble` turns a cubin into `sass.LISTING`'s text.

    Without `disassemble`, only what is written is counted.
    """

    def __init__(self, disassemble: Callable[[bytes], str] | None = None) -> None:
        self._disassemble = disassemble
        self._sums: dict[Count, _Sum] = {}
        self._touched: dict[tuple[int, str, str], np.ndarray] = {}  # (launch, tensor, kind) -> which sectors
        self._shared: dict[range, str] = {}  # the launch's arrays in shared memory
        self._launch = 0
        self._code: Mapping[int, tuple[sass.MachineAccess, ...]] | None = None
        self.spills: list[int] = []  # of each launch, with `disassemble`: instructions that ptxas added to spill

    def counts(self) -> list[Count]:
        """Everything counted so far, in the order of launches and lines."""
        once = {key: int(touched.sum()) for key, touched in self._touched.items()}
        found = [replace(key, **total.numbers, words=total.words) for key, total in self._sums.items()]
        found += [
            Count(view, launch, "", 0, "", ONCE, array, kind, 0, sectors=number)
            for (launch, array, kind), number in once.items()
            for view in self._views()
        ]
        off = _differences(found)
        found = [
            replace(count, unmatched=off[count.launch, count.space, count.kind]) if count.view == COMPILED else count
            for count in found
        ]
        return sorted(found, key=lambda count: (count.launch, count.view != WRITTEN, count.file, count.line, count.op))

    def on_launch(self, kernel: Kernel, launch: Launch, cubin: Callable[[], bytes] | None) -> None:
        self._launch += 1
        arrays = [(kernel.decoder.static_shared.offsets.get(v.name), v) for v in kernel.entry.variables]
        self._shared = {range(at, at + v.size): _plain(v.name) for at, v in arrays if at is not None}
        if self._disassemble is None:
            return
        if cubin is None:
            raise ValueError(f"{kernel.name} was run without its machine code: it can only be counted as written")
        code = sass.read(self._disassemble(cubin()))[kernel.name]
        self._code = code.accesses
        self.spills.append(code.spills)

    def on_instruction(self, instruction: Instruction, mask: np.ndarray | None, machine: Machine) -> None:
        flop = flops_of(instruction.name)
        if not flop:
            return
        lanes = machine.access_mask(mask)
        if lanes is None:
            count, requests = machine.lanes, machine.lanes // machine.launch.threads * machine.launch.num_warps
        else:
            count, requests = np.count_nonzero(lanes), np.count_nonzero(_rows(lanes, machine, False).any(axis=1))
        for view in self._views():
            key = self._key(view, instruction, instruction.name, "", "", "flop", 0)
            self._sum(key).add(requests=requests, lanes=count, flop=flop * count)

    def on_access(self, access: Access) -> None:
        machine, instruction = access.machine, access.instruction
        lanes = np.ones(machine.lanes, bool) if access.lanes is None else access.lanes
        addresses = _rows(np.broadcast_to(access.addresses, machine.lanes), machine, 0)
        active = _rows(lanes, machine, False)
        array = self._touch(access, addresses[active])
        # to move all of a request by whole vectors turns the banks round; by whole sectors it changes nothing either
        step = access.size if access.space == "shared" else SECTOR
        addresses, active, times = _patterns(addresses, active, max(step, WORD))
        about = (access.space, array, access.kind)
        self._add(self._key(WRITTEN, instruction, instruction.name, *about, access.size), addresses, active, times)
        made = self._code.get(instruction.ptx_line) if self._code is not None else None
        if made:
            # Copies of an unrolled loop share its executions, so equal ones count as one. Of different widths on one
            # line nobody knows which served which execution: the widest is taken, and `unmatched` shows the error.
            wide = max(made, key=lambda one: one.size)
            key = self._key(COMPILED, instruction, wide.name, *about, wide.size)
            for start in range(0, access.size, wide.size):  # once, unless it is narrower than what is written
                self._add(key, (addresses + start) // wide.size * wide.size, active, times)

    def _views(self) -> tuple[str, ...]:
        return (WRITTEN, COMPILED) if self._disassemble is not None else (WRITTEN,)

    def _key(self, view: str, instruction: Instruction, op: str, *about) -> Count:
        return Count(view, self._launch, instruction.file, instruction.line, op, *about)

    def _sum(self, key: Count) -> _Sum:
        return self._sums.setdefault(key, _Sum())

    def _add(self, key: Count, addresses: np.ndarray, active: np.ndarray, times: np.ndarray) -> None:
        """Add requests of the patterns, (P, 32), each of which was made `times` (P,)."""
        total = self._sum(key)
        total.add(requests=times[active.any(axis=1)].sum(), lanes=np.count_nonzero(active, axis=1) @ times)
        if key.space != "shared":
            total.add(sectors=sectors(addresses, active) @ times)
            return
        matrix = key.op.startswith(("ldmatrix", "LDSM"))
        taken, ideal = wavefronts(addresses, active, key.size, pairs=key.kind == "load" and not matrix)
        total.add(wavefronts=taken @ times, ideal=ideal @ times)
        worst = int(np.argmax(taken - ideal))
        if (excess := int(taken[worst] - ideal[worst])) > total.excess:
            total.excess = excess
            pairs = zip(addresses[worst] // WORD, active[worst], strict=True)
            total.words = tuple(int(word) if here else None for word, here in pairs)

    def _touch(self, access: Access, addresses: np.ndarray) -> str:
        """The name of what these addresses lie in; of a tensor, remember which sectors were touched."""
        low, high = int(addresses.min()), int(addresses.max())
        if access.space == "shared":
            return next((name for place, name in self._shared.items() if low in place and high in place), "")
        for tensor in access.machine.memory.tensors if access.space == "global" else ():
            if tensor.holds(low, high, access.size):
                first, last = tensor.first // SECTOR, (tensor.first + tensor.size - 1) // SECTOR
                key = (self._launch, tensor.name, access.kind)
                self._touched.setdefault(key, np.zeros(last - first + 1, bool))[addresses // SECTOR - first] = True
                return tensor.name
        return ""


@functools.cache
def flops_of(name: str) -> int:
    """Floating-point operations a lane of an instruction: 2 for a multiply-add, 0 for what is no such arithmetic.

    A matrix product m x n x k has 2 m n k, shared by the 32 lanes of its warp, or the 128 of a warp group.
    """
    parts = name.split(".")
    if parts[0] == "wgmma" and "mma_async" in parts or parts[0] in ("mma", "wmma") and "mma" in parts:
        shape = next(sizes for part in parts if (sizes := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", part)))
        lanes = 4 * WARP if parts[0] == "wgmma" else WARP
        return 2 * math.prod(map(int, shape.groups())) // lanes
    return _FLOPS.get(parts[0], 0) if parts[-1] in ("f16", "f32", "f64") else 0


def _plain(name: str) -> str:
    """The name of a `__shared__` array in the source, without what C++ adds to it."""
    found = re.search(r".*E\d+([A-Za-z_]\w*)$", name)
    return found[1] if found else name


def _rows(values: np.ndarray, machine, missing: int | bool) -> np.ndarray:
    """One value a lane as (warps, 32); the lanes that a block's last warp lacks get `missing`."""
    launch = machine.launch
    if launch.threads % WARP == 0:
        return values.reshape(-1, WARP)
    blocks = values.reshape(-1, launch.threads)
    rows = np.full((len(blocks), launch.num_warps * WARP), missing, values.dtype)
    rows[:, : launch.threads] = blocks
    return rows.reshape(-1, WARP)


def _patterns(addresses: np.ndarray, active: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The warps' requests with how often each occurs: once each, or a single one where all look the same.

    Two look the same where all their addresses differ by one multiple of `step` bytes.
    """
    if active.all():
        offset = addresses - addresses[:, :1] // step * step
        if (offset == offset[0]).all():
            return addresses[:1], active[:1], np.array([len(addresses)])
    return addresses, active, np.ones(len(addresses), np.int64)


def _differences(found: list[Count]) -> dict[tuple[int, str, str], int]:
    """Bytes that the lanes ask for as compiled, less those as written, for each launch, space and kind."""
    off: dict[tuple[int, str, str], int] = {}
    for count in found:
        key = (count.launch, count.space, count.kind)
        sign = 1 if count.view == COMPILED else -1
        off[key] = off.get(key, 0) + sign * count.size * count.lanes
    return off
