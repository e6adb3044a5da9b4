"""Events of the reference GPU for counters and fault detectors: launches, instructions, accesses and barriers.

An access is to the generic proxy (`Access`) or the async proxy (`BulkAccess`): PTX ISA, 8.7.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.core.memory import GlobalMemory, MemoryLayout
from gemm_ref.ptx.text.dtypes import Value
from gemm_ref.ptx.text.parser import Entry, Instruction


@dataclass(frozen=True, kw_only=True)
class KernelInfo:
    """What observers may know of a kernel."""

    entry: Entry
    static_shared: MemoryLayout
    dynamic_shared: tuple[str, ...]  # shared arrays whose size the launch decides; they begin where the static ones end
    cubin: Callable[[], bytes] | None = None  # returns the machine code made of the same PTX, where a package offers it

    @property
    def name(self) -> str:
        return self.entry.name


@dataclass(frozen=True)
class Access:
    """One memory instruction, executed by many lanes at once."""

    instruction: Instruction  # with its source file and line
    kind: str  # load, store, atomic, or async store (the shared side of a cp.async)
    space: str  # global, shared or local
    size: int  # bytes per lane
    addresses: np.ndarray  # of every lane, or one for all lanes; virtual for global, from 0 for the others
    lanes: np.ndarray | None  # the mask of the lanes that take part; None for all
    machine: Lanes  # its `block_of_lane` and `thread_of_lane` identify the lanes
    owners: np.ndarray | None = None  # of shared memory: the machine's block that owns it; None for each lane's own
    values: Sequence[Value] = ()  # what an `st` writes, as unsigned integers, one per element of its vector


@dataclass(frozen=True)
class BulkAccess:
    """One side of a bulk copy or a wgmma, which an asynchronous unit executes for the lane that issued it."""

    instruction: Instruction
    kind: str  # load or store in global memory, async load or async store in shared
    space: str  # global or shared
    size: int  # bytes at each address
    addresses: np.ndarray  # virtual for global, from 0 in the block for shared
    lane: int  # of the machine: the lane that issued it, or the first of a warpgroup
    block: int  # of the machine, whose shared memory is read or written
    started: bool  # true when it is issued, and may happen from now on; false when it happens
    machine: Lanes
    barrier: int | None = None  # the number of the mbarrier at which a copy completes its transaction


@dataclass(frozen=True)
class Synchronisation:
    """Lanes arrive at a barrier, or a barrier opens for them."""

    instruction: Instruction | None  # at which they arrive; None when the barrier opens
    barrier: tuple  # ("barrier", its number), ("warp",), or ("cluster" or "mbarrier", its number in the machine)
    expected: int | None  # count of threads it opens for; None for all of the block, and for a warp's
    member: Value | None  # of a warp's barrier: its member mask
    lanes: np.ndarray | None  # None for all
    machine: Lanes

    @property
    def opens(self) -> bool:
        return self.instruction is None


@dataclass(frozen=True)
class BarrierUse:
    """Lanes initialise mbarriers, or use them: arrive, expect a transaction, wait, or have a copy complete there."""

    instruction: Instruction
    lanes: np.ndarray  # numbers of lanes of the machine
    numbers: np.ndarray  # of the mbarriers, one per lane
    initialises: bool
    machine: Lanes


class Observer:
    """Receives the events of a kernel while it runs; a subclass overrides those that it needs."""

    def on_launch(self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory) -> None:
        """A kernel is about to run; its tensors are in `memory`."""

    def on_instruction(self, instruction: Instruction, mask: np.ndarray | None, machine: Lanes) -> None:
        """An instruction is about to be executed; `machine.access_mask(mask)` are its lanes."""

    def on_access(self, access: Access) -> None:
        """A memory instruction is about to be executed; its bounds are not checked yet."""

    def on_landing(self, access: Access) -> None:
        """Copies of an earlier `async store` complete, because these lanes have waited for them."""

    def on_bulk(self, access: BulkAccess) -> None:
        """A bulk copy or a wgmma accesses memory."""

    def on_phase(self, barriers: list[tuple], machine: Lanes) -> None:
        """The phases of these barriers of clusters or mbarriers have ended."""

    def on_early_register(self, name: str, lanes: np.ndarray, issued: Instruction, machine: Lanes) -> None:
        """These lanes are about to read an accumulator of a wgmma, issued there, that they have not waited for."""

    def on_synchronisation(self, event: Synchronisation) -> None:
        """Lanes arrive at a barrier, or go on because it opened."""

    def on_mbarrier(self, use: BarrierUse) -> None:
        """Lanes are about to initialise mbarriers, or to use them."""

    def on_print(self, text: str) -> None:
        """A thread has printed this text; without observers it goes to the terminal."""

    def on_leave(self, instruction: Instruction, lanes: np.ndarray | None, machine: Lanes) -> None:
        """These lanes (None: all) have exited."""

    def on_end(self) -> None:
        """The kernel has run to its end, without a fault that stops it."""


_watching: contextvars.ContextVar[tuple[Observer, ...]] = contextvars.ContextVar("watching", default=())


@contextlib.contextmanager
def watched(*observers: Observer) -> Iterator[None]:
    """Let these observers watch every kernel that runs on the reference GPU in this context, however it is started.

    `with watched(counter): cuda_kernels.gemm(a, b, stage="s04")`
    """
    token = _watching.set((*_watching.get(), *observers))
    try:
        yield
    finally:
        _watching.reset(token)


_places: contextvars.ContextVar[tuple[float, ...]] = contextvars.ContextVar("places", default=())


@contextlib.contextmanager
def some_blocks(*places: float) -> Iterator[None]:
    """Run only these blocks, or clusters, of every launch in this context, to watch them at little cost.

    places: where each lies among all, from 0 for the first to 1, which is excluded.
    """
    token = _places.set(places)
    try:
        yield
    finally:
        _places.reset(token)


def first_block() -> contextlib.AbstractContextManager[None]:
    """Run only the first block, or cluster, of every launch in this context."""
    return some_blocks(0.0)


def selected_places() -> tuple[float, ...]:
    """Return the places of the blocks that alone run in the context of a `some_blocks`; empty outside of one."""
    return _places.get()


def watching() -> tuple[Observer, ...]:
    """Return the observers of the `watched` contexts that this is in."""
    return _watching.get()
