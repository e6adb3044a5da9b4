"""All fault detectors in one observer: they find what is wrong with a kernel even if its result is right in lockstep.

    detectors = Detectors()
    with ptx.watched(detectors):
        cuda_kernels.gemm(a, b, stage="s04_shared_tile")
    for finding in detectors.findings: print(finding)

Accesses out of bounds or misaligned stop the machine by themselves (MemoryFault). mbarriers order what happens before
an arrival, and the bulk copies that complete there, before what follows a wait. The async proxy (wgmma, bulk stores)
sees writes of the generic proxy to shared memory only after a fence.proxy.async (PTX ISA, 8.7). Releases and acquires
in global memory order blocks (`gpu_order`). Limit: an order that flags in shared memory establish is not known, so such
kernels are reported as racing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core.events import Access, BarrierUse, BulkAccess, KernelInfo, Observer, Synchronisation
from gemm_ref.ptx.core.lanes import Lanes
from gemm_ref.ptx.core.memory import GlobalMemory
from gemm_ref.ptx.detect.barrier_faults import BarrierFaults
from gemm_ref.ptx.detect.finding import EARLY, Finding, Scene
from gemm_ref.ptx.detect.global_faults import GlobalFaults
from gemm_ref.ptx.detect.happens_before import Order
from gemm_ref.ptx.detect.lifetime_faults import LifetimeFaults, MBarrierFaults
from gemm_ref.ptx.detect.shared_faults import SharedFaults
from gemm_ref.ptx.text.parser import Instruction


class Detectors(Observer):
    """Collects findings over any number of launches.

    outputs: tensors that are undefined before a launch. Each element of them, and of every tensor that the launch
        writes to at all, must be written.
    tile: (BLOCK_M, BLOCK_N), to name the tile of an element.
    """

    def __init__(self, outputs: Sequence[str] = ("C",), tile: tuple[int, int] | None = None) -> None:
        self._outputs, self._tile = outputs, tile
        self._findings: dict[tuple, Finding] = {}
        self._machine: Lanes | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, in the order in which they were first made."""
        return tuple(self._findings.values())

    def on_launch(self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory) -> None:
        self._scene = Scene(kernel, launch, memory, self._findings)
        self._global = GlobalFaults(self._scene, self._outputs, self._tile)
        self._machine = None

    def _enter_machine(self, machine: Lanes) -> None:
        """Start anew with the next batch of blocks, which has memory and threads of its own."""
        if machine is not self._machine:
            self._machine = machine
            self._order = Order(machine)
            watched = machine, self._scene, self._order
            self._shared, self._barriers = SharedFaults(*watched), BarrierFaults(*watched)
            self._mbarriers, self._lifetimes = MBarrierFaults(*watched), LifetimeFaults(*watched)

    def on_instruction(self, instruction: Instruction, mask: np.ndarray | None, machine: Lanes) -> None:
        if instruction.parts[0] not in ("fence", "membar"):
            return
        self._enter_machine(machine)
        lanes = machine.access_mask(mask)
        if "proxy" not in instruction.parts:
            self._order.release(instruction, lanes)
            self._global.gpu_order.fence(instruction, lanes, machine, self._order)
        elif instruction.parts[:3] == ["fence", "proxy", "async"] and instruction.parts[-1] != "global":
            self._order.fence(lanes)

    def on_access(self, access: Access) -> None:
        self._enter_machine(access.machine)
        if access.space == "shared":
            self._lifetimes.on_access(access)
            self._shared.on_access(access)
        elif access.space == "global":
            self._global.on_access(access, self._order)

    def on_landing(self, access: Access) -> None:
        self._shared.on_landing(access)

    def on_bulk(self, access: BulkAccess) -> None:
        self._enter_machine(access.machine)
        if access.space == "shared":
            self._lifetimes.on_bulk(access)
            self._shared.on_bulk(access)
        else:
            self._global.on_bulk(access, self._order)

    def on_phase(self, barriers: list[tuple], machine: Lanes) -> None:
        self._enter_machine(machine)
        self._order.on_phase(barriers)

    def on_early_register(self, name: str, lanes: np.ndarray, issued: Instruction, machine: Lanes) -> None:
        here = machine.instruction
        (thread,) = machine.thread_in_grid[np.flatnonzero(lanes)[:1]]
        text = (
            f"reads {name}, an accumulator of the wgmma at {issued.line_seen_from(here)} that was not waited for: "
            "wait for its group (wgmma.wait_group) first"
        )
        self._scene.report(EARLY, here, thread, text, there=issued, count=int(lanes.sum()))

    def on_synchronisation(self, event: Synchronisation) -> None:
        self._enter_machine(event.machine)
        self._barriers.on_synchronisation(event)
        self._order.on_synchronisation(event)

    def on_mbarrier(self, use: BarrierUse) -> None:
        self._enter_machine(use.machine)
        self._mbarriers.on_mbarrier(use)
        self._lifetimes.on_mbarrier(use)

    def on_leave(self, instruction: Instruction, lanes: np.ndarray | None, machine: Lanes) -> None:
        self._enter_machine(machine)
        self._lifetimes.on_leave(instruction, lanes)

    def on_end(self) -> None:
        self._global.on_end()
