"""All fault detectors in one observer: what is wrong with a kernel, though it may come out right in lockstep.

    detectors = Detectors()
    with ptx.watched(detectors):
        cuda_kernels.gemm(a, b, stage="s04_shared_tile")
    for finding in detectors.findings: print(finding)

Accesses out of bounds or misaligned stop the machine by themselves (MemoryFault). mbarriers order what happens before
an arrival, and bulk copies that complete there, before what follows a wait. What other instructions write to shared
memory, wgmma and bulk stores see behind a fence.proxy.async alone. Blocks are ordered by what is released and acquired
in global memory (`gpu_order`). Not known: an order that flags in shared memory make, so such kernels would be reported
as racing.
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

    outputs: tensors whose contents mean nothing before a launch, and which it must write whole; so must it any that it
        writes at all.
    tile: (BLOCK_M, BLOCK_N), to say in which tile an element is.
    """

    def __init__(self, outputs: Sequence[str] = ("C",), tile: tuple[int, int] | None = None) -> None:
        self._outputs, self._tile = outputs, tile
        self._findings: dict[tuple, Finding] = {}
        self._machine: Lanes | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found, in the order in which it was first seen."""
        return tuple(self._findings.values())

    def on_launch(self, kernel: KernelInfo, launch: Launch, memory: GlobalMemory) -> None:
        self._scene = Scene(kernel, launch, memory, self._findings)
        self._global = GlobalFaults(self._scene, self._outputs, self._tile)
        self._machine = None

    def _meet(self, machine: Lanes) -> None:
        """The next batch of blocks has memory and threads of its own."""
        if machine is not self._machine:
            self._machine = machine
            self._order = Order(machine)
            watched = machine, self._scene, self._order
            self._shared, self._barriers = SharedFaults(*watched), BarrierFaults(*watched)
            self._mbarriers, self._lifetimes = MBarrierFaults(*watched), LifetimeFaults(*watched)

    def on_instruction(self, instruction: Instruction, mask: np.ndarray | None, machine: Lanes) -> None:
        if instruction.parts[0] not in ("fence", "membar"):
            return
        self._meet(machine)
        lanes = machine.access_mask(mask)
        if "proxy" not in instruction.parts:
            self._order.release(instruction, lanes)
            self._global.gpu_order.fence(instruction, lanes, machine, self._order)
        elif instruction.parts[:3] == ["fence", "proxy", "async"] and instruction.parts[-1] != "global":
            self._order.fence(lanes)

    def on_access(self, access: Access) -> None:
        self._meet(access.machine)
        if access.space == "shared":
            self._lifetimes.on_access(access)
            self._shared.on_access(access)
        elif access.space == "global":
            self._global.on_access(access, self._order)

    def on_landing(self, access: Access) -> None:
        self._shared.on_landing(access)

    def on_bulk(self, access: BulkAccess) -> None:
        self._meet(access.machine)
        if access.space == "shared":
            self._lifetimes.on_bulk(access)
            self._shared.on_bulk(access)
        else:
            self._global.on_bulk(access, self._order)

    def on_phase(self, barriers: list[tuple], machine: Lanes) -> None:
        self._meet(machine)
        self._order.on_phase(barriers)

    def on_early_register(self, name: str, lanes: np.ndarray, issued: Instruction, machine: Lanes) -> None:
        here = machine.instruction
        (thread,) = self._scene.threads(machine, np.flatnonzero(lanes)[:1])
        text = (
            f"reads {name}, an accumulator of the wgmma at {issued.line_seen_from(here)} that was not waited for: "
            "wait for its group (wgmma.wait_group) first"
        )
        self._scene.report(EARLY, here, thread, text, there=issued, count=int(lanes.sum()))

    def on_synchronisation(self, event: Synchronisation) -> None:
        self._meet(event.machine)
        self._barriers.on_synchronisation(event)
        self._order.on_synchronisation(event)

    def on_mbarrier(self, use: BarrierUse) -> None:
        self._meet(use.machine)
        self._mbarriers.on_mbarrier(use)
        self._lifetimes.on_mbarrier(use)

    def on_leave(self, instruction: Instruction, lanes: np.ndarray | None, machine: Lanes) -> None:
        self._meet(machine)
        self._lifetimes.on_leave(instruction, lanes)

    def on_end(self) -> None:
        self._global.on_end()
