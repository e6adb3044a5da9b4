"""An observer of one block: every step of its threads in order, and the contents of its shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from experiments.explore.traces.record import NOWHERE
from gemm_ref import ptx
from gemm_ref.launch import Launch
from gemm_ref.ptx.core.events import BarrierUse, KernelInfo
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.core.memory import GlobalMemory, Tensor
from gemm_ref.ptx.count.banks import WORD, line_passes
from gemm_ref.ptx.count.counts import flops_of
from gemm_ref.ptx.count.requests import rows, served
from gemm_ref.ptx.text.dtypes import per_lane
from gemm_ref.ptx.text.parser import Instruction

_WORD64 = 8  # bytes of an mbarrier
_PERIOD = 128  # bytes of a row of banks, of a line of global memory, and of a whole number of sectors
_MEMORY = ("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix")  # their accesses are reported by on_access


@dataclass(eq=False)
class ObservedStep:
    """A step while it is observed; `record.Steps` and `record.Operation` define the fields."""

    instruction: Instruction
    kind: str
    offsets: np.ndarray  # (threads or pieces,) bytes in the array, or in shared memory
    space: str = ""
    array: str = ""  # in global memory: the name of what is there
    size: int = 0
    counts: np.ndarray | None = None  # (warps, 2)
    contents: np.ndarray | None = None  # (threads or pieces, size): what is in shared memory after it, or what it reads
    ids: np.ndarray | None = None  # (threads or pieces, elements): ids of these elements, known after several runs
    times: int = 1
    done: int = NOWHERE
    thread: int = NOWHERE
    block: int = NOWHERE
    mbarrier: int = NOWHERE
    landed: np.ndarray = field(
        default_factory=lambda: np.zeros(0, bool)
    )  # of an async store: the threads whose copies have completed

    @property
    def active(self) -> np.ndarray:
        """Returns the mask of threads, or pieces, that take part."""
        return self.offsets != NOWHERE


@dataclass(frozen=True)
class GlobalStores:
    """Elements of global memory to which blocks stored."""

    array: str
    blocks: np.ndarray  # linear in the grid
    offsets: np.ndarray  # bytes from the array's start, one for each of `blocks`
    size: int  # bytes from each offset on


@dataclass(frozen=True)
class _Part:
    """The watched block within a machine that runs it."""

    lanes: slice
    index: int  # of the block in the machine


class Watcher(ptx.Observer):
    """Watches the block with this linear number in the first kernel that is run.

    names: of tensors, by their address; others have the names that the kernel's package gives them.
    again: the kernel was watched before, so only the contents of shared memory are recorded; `accesses` are the same.
    """

    def __init__(self, block: int, names: Mapping[int, str], again: bool = False) -> None:
        self.block = block
        self._names, self._again = names, again
        self.launches: list[tuple[KernelInfo, Launch]] = []
        self.arrays: dict[str, Tensor] = {}  # in global memory
        self.steps: list[ObservedStep] = []
        self.stored: list[GlobalStores] = []
        self._parts: dict[int, tuple[Lanes, _Part | None]] = {}  # by machine
        self._kinds: dict[int, tuple[str, tuple | None]] = {}  # by instruction
        self._written: list[tuple[ObservedStep, np.ndarray, Lanes]] = []  # to shared memory, by the instruction before
        self._flying: list[ObservedStep] = []  # copies and operands that are not done
        self._known: dict[tuple, np.ndarray] = {}  # key of an access (kind, size, relative addresses) -> its counts
        self._run: tuple | None = None  # the kind of arithmetic of the last step, if all threads executed it

    @property
    def accesses(self) -> list[ObservedStep]:
        """The steps that access memory."""
        return [seen for seen in self.steps if seen.space]

    def on_launch(self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory) -> None:
        self.launches.append((kernel, launch))
        if len(self.launches) == 1:
            self.arrays = {self._name(tensor): tensor for tensor in memory.tensors}

    def on_instruction(self, instruction: Instruction, mask: np.ndarray | None, machine: Lanes) -> None:
        if self._written:
            self._read_written()
        kind, look = self._kinds.get(id(instruction)) or self._classify(instruction)
        if not kind or self._again or (part := self._part(machine)) is None:
            return
        lanes = machine.access_mask(mask)
        if lanes is None and look and look == self._run and self.steps[-1].kind == kind:
            self.steps[-1].times += 1
            return
        active = _active(lanes, part, machine)
        if active.any():
            self.steps.append(ObservedStep(instruction, kind, np.where(active, 0, NOWHERE)))
            self._run = look if lanes is None else None

    def _classify(self, instruction: Instruction) -> tuple[str, tuple | None]:
        """Returns the kind of an instruction and, for arithmetic, the key that steps of one run have in common."""
        kind, look = _kind(instruction), None
        if kind == "multiply" and instruction.parts[0] != "wgmma":  # each wgmma has operand steps of its own before it
            look = (instruction.name, instruction.file, instruction.line, instruction.callers)
        self._kinds[id(instruction)] = kind, look
        return kind, look

    def on_end(self) -> None:
        self._read_written()

    # --- accesses of lanes ---------------------------------------------------------------------------------------

    def on_access(self, access: ptx.Access) -> None:
        machine = access.machine
        tensor = self._tensor(access) if access.space == "global" else None
        if tensor and access.kind in ("store", "atomic") and not self._again:
            self._store(access, tensor)
        if (part := self._part(machine)) is None:
            return
        active = _active(access.lanes, part, machine)
        if access.owners is not None:  # distributed shared memory: the address belongs to another block of the cluster
            active = active & (access.owners[part.lanes] == part.index)
        if not active.any():
            return
        first = tensor.first if tensor else 0
        offsets = np.where(active, per_lane(access.addresses, machine.lanes)[part.lanes] - first, NOWHERE)
        seen = ObservedStep(access.instruction, access.kind, offsets, access.space, size=access.size)
        seen.array = self._name(tensor) if tensor else ""
        copies = access.instruction.parts[0] == "cp"
        if copies and access.space == "global":  # the access to shared memory was reported just before
            seen.kind = "async load"
        if not self._again:
            seen.counts = self._count(access, seen)
        if seen.kind == "async load":
            if access.size >= WORD and not self._again:
                self.steps[-1].counts = self.steps[-1].counts + self._count(access, seen, lines=True)
            self.steps.insert(len(self.steps) - 1, seen)
            return
        self.steps.append(seen)
        if copies:
            seen.landed = ~active
            self._flying.append(seen)
        elif access.space == "shared":
            if access.kind == "load":
                seen.contents = _contents(machine, part, offsets, access.size)
            else:
                self._written.append((seen, active, machine))

    def _count(self, access: ptx.Access, seen: ObservedStep, lines: bool = False) -> np.ndarray:
        """Returns (warps, 2): sectors or wavefronts of each warp's request, and their count without bank conflicts.

        lines: returns the additional wavefronts for lines of global memory instead. Banks, sectors and lines repeat
        every 128 bytes, so steps whose addresses differ by a multiple of 128 have equal counts.
        """
        first = int(seen.offsets[seen.active].min()) // _PERIOD * _PERIOD
        places = np.where(seen.active, seen.offsets - first, NOWHERE)
        key = (lines, access.space, access.kind, access.instruction.parts[0], access.size, places.tobytes())
        if key not in self._known:
            addresses, active = (rows(x, access.machine, 0) for x in (places, seen.active))
            if lines:
                self._known[key] = line_passes(addresses, active, access.size)[:, None]
            else:
                self._known[key] = np.stack(served(access, addresses, active), axis=1)
        return self._known[key]

    def on_landing(self, access: ptx.Access) -> None:
        if (part := self._part(access.machine)) is None:
            return
        active = _active(access.lanes, part, access.machine)
        for seen in self._flying if active.any() else ():
            if seen.instruction is access.instruction and not (seen.landed & active).any():
                seen.landed |= active
                seen.done = len(self.steps) - 1
                self._written.append((seen, active, access.machine))
                if seen.landed.all():
                    self._flying.remove(seen)
                return

    def _read_written(self) -> None:
        """Reads back what the last instruction has written to shared memory."""
        for seen, lanes, machine in self._written:
            found = _contents(machine, self._part(machine), np.where(lanes, seen.offsets, NOWHERE), seen.size)
            seen.contents = found if seen.contents is None else np.where(lanes[:, None], found, seen.contents)
        self._written.clear()

    # --- bulk copies, operands of wgmma, mbarriers ---------------------------------------------------------------

    def on_bulk(self, access: ptx.BulkAccess) -> None:
        machine = access.machine
        if access.kind == "store" and (tensor := self._holder(access.addresses, access.size, machine)):
            block = machine.block_of_lane[access.lane]
            offsets = access.addresses - tensor.first
            self.stored.append(GlobalStores(self._name(tensor), np.full(offsets.size, block), offsets, access.size))
        part = self._part(machine)
        if part is None or access.space != "shared" or access.block != part.index:
            return
        if access.started:
            self._begin(access, part)
            return
        for seen in self._flying:
            if seen.instruction is access.instruction and np.array_equal(seen.offsets, access.addresses):
                self._flying.remove(seen)
                seen.done = len(self.steps) - 1
                if seen.kind == "bulk load":
                    seen.contents = _contents(machine, part, seen.offsets, seen.size)
                return

    def _begin(self, access: ptx.BulkAccess, part: _Part) -> None:
        machine = access.machine
        kind = "bulk load" if access.kind == "async store" else "bulk store"
        kind = "operand" if access.instruction.parts[0] == "wgmma" else kind
        seen = ObservedStep(access.instruction, kind, access.addresses, "shared", size=access.size)
        seen.thread = int(machine.thread_of_lane[access.lane])
        seen.block = int(machine.block_of_lane[access.lane])
        if access.barrier is not None:
            seen.mbarrier = _WORD64 * (access.barrier - part.index * (machine.shared.stride // _WORD64))
        if kind != "bulk load":
            seen.contents = _contents(machine, part, seen.offsets, seen.size)
        place = len(self.steps)
        if kind == "operand" and not self._again:  # operands come before their product, which the machine reports first
            place -= next(back for back, step in enumerate(reversed(self.steps)) if step.kind == "multiply") + 1
        self.steps.insert(place, seen)
        self._flying.append(seen)

    def on_mbarrier(self, use: BarrierUse) -> None:
        machine, part = use.machine, self._part(use.machine)
        if use.instruction.parts[0] != "mbarrier" or part is None:
            return
        own = (use.lanes >= part.lanes.start) & (use.lanes < part.lanes.stop)
        if own.any():
            offsets = np.full(machine.launch.threads, NOWHERE)
            per_block = max(machine.shared.stride // _WORD64, 1)
            offsets[machine.thread_of_lane[use.lanes[own]]] = use.numbers[own] % per_block * _WORD64
            self.steps.append(ObservedStep(use.instruction, "mbarrier", offsets, "shared", size=_WORD64))

    # --- blocks and tensors ---------------------------------------------------------------------------------------

    def _part(self, machine: Lanes) -> _Part | None:
        """Returns the lanes of the watched block in a machine of the first kernel; None if it does not run there."""
        if len(self.launches) > 1:
            return None
        if id(machine) not in self._parts:
            lanes = np.flatnonzero(machine.block_of_lane == self.block)
            part = None
            if lanes.size:
                part = _Part(slice(int(lanes[0]), int(lanes[-1]) + 1), int(machine.block_index[lanes[0]]))
            self._parts[id(machine)] = machine, part  # keeps the machine alive, so that no other object gets its id
        return self._parts[id(machine)][1]

    def _name(self, tensor: Tensor) -> str:
        return self._names.get(tensor.owner.data_ptr(), tensor.name)

    def _tensor(self, access: ptx.Access) -> Tensor | None:
        lanes = slice(None) if access.lanes is None else access.lanes
        addresses = per_lane(access.addresses, access.machine.lanes)[lanes]
        return self._holder(addresses, access.size, access.machine)

    def _holder(self, addresses: np.ndarray, size: int, machine: Lanes) -> Tensor | None:
        """Returns the tensor that holds all of these addresses; None if there is none."""
        if not addresses.size:
            return None
        low, high = int(addresses.min()), int(addresses.max())
        return next((tensor for tensor in machine.memory.tensors if tensor.holds(low, high, size)), None)

    def _store(self, access: ptx.Access, tensor: Tensor) -> None:
        machine = access.machine
        if len(self.launches) == 1:
            lanes = slice(None) if access.lanes is None else access.lanes
            offsets = per_lane(access.addresses, machine.lanes)[lanes] - tensor.first
            self.stored.append(GlobalStores(self._name(tensor), machine.block_of_lane[lanes], offsets, access.size))


def _kind(instruction: Instruction) -> str:
    """Returns the kind of step of an instruction that accesses no memory; empty if it is not recorded."""
    parts = instruction.parts
    if parts[0] in _MEMORY:
        return ""
    if parts[0] in ("bar", "barrier", "fence"):
        return "fence" if parts[0] == "fence" else "barrier"
    for word, kind in (("commit_group", "commit"), ("wait_group", "wait"), ("wait_all", "wait")):
        if parts[0] in ("cp", "wgmma") and word in parts:
            return kind
    if parts[:2] == ["wgmma", "fence"]:
        return "fence"
    return "multiply" if flops_of(instruction.name) else ""


def _active(lanes: np.ndarray | None, part: _Part, machine: Lanes) -> np.ndarray:
    """Returns the mask of the watched block's threads that take part."""
    return np.ones(machine.launch.threads, bool) if lanes is None else lanes[part.lanes]


def _contents(machine: Lanes, part: _Part | None, offsets: np.ndarray, size: int) -> np.ndarray:
    """Returns (places, size) bytes of the block's shared memory; the bytes of places that are NOWHERE are arbitrary."""
    assert part is not None
    start = part.index * machine.shared.stride
    return machine.shared.data[start + np.maximum(offsets, 0)[:, None] + np.arange(size)]
