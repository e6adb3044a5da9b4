"""All fault detectors in one observer: what is wrong with a kernel, though it may come out right in lockstep.

    detectors = Detectors()
    with ptx.watched(detectors):
        cuda_kernels.gemm(a, b, stage="s04_shared_tile")
    for finding in detectors.findings: print(finding)

Accesses out of bounds or misaligned stop the machine by themselves (MemoryFault). mbarriers are no part of the
reference GPU yet; an order that flags in global memory make is not known, so such kernels would be reported as racing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemm_ref.ptx.barrier_faults import BarrierFaults
from gemm_ref.ptx.finding import Finding, Findings, Scene
from gemm_ref.ptx.global_faults import GlobalFaults
from gemm_ref.ptx.memory import GlobalMemory
from gemm_ref.ptx.observe import Access, Observer, Synchronisation
from gemm_ref.ptx.order import Order
from gemm_ref.ptx.parser import Instruction
from gemm_ref.ptx.shared_faults import SharedFaults
from gemm_ref.stage import Launch


class Detectors(Observer):
    """Collects findings over any number of launches.

    outputs: tensors whose contents mean nothing before a launch, and which it must write whole; so must it any that it
        writes at all.
    tile: (BLOCK_M, BLOCK_N), to say in which tile an element is.
    """

    def __init__(self, outputs: Sequence[str] = ("C",), tile: tuple[int, int] | None = None) -> None:
        self._outputs, self._tile = outputs, tile
        self._findings = Findings()
        self._machine = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found, in the order in which it was first seen."""
        return tuple(self._findings)

    def on_launch(self, kernel, launch: Launch, memory: GlobalMemory) -> None:
        self._scene = Scene(kernel, launch, memory)
        self._global = GlobalFaults(self._scene, self._findings, self._outputs, self._tile)
        self._machine = None

    def _meet(self, machine) -> None:
        """The next batch of blocks has memory and threads of its own."""
        if machine is not self._machine:
            self._machine = machine
            self._order = Order(machine)
            self._shared = SharedFaults(machine, self._scene, self._order, self._findings)
            self._barriers = BarrierFaults(machine, self._scene, self._findings)

    def on_access(self, access: Access) -> None:
        self._meet(access.machine)
        if access.space == "shared":
            self._shared.on_access(access)
        elif access.space == "global":
            self._global.on_access(access, self._order)

    def on_landing(self, access: Access) -> None:
        self._shared.on_landing(access)

    def on_synchronisation(self, event: Synchronisation) -> None:
        self._meet(event.machine)
        self._barriers.on_synchronisation(event)
        self._order.on_synchronisation(event)

    def on_leave(self, instruction: Instruction, lanes: np.ndarray | None, machine) -> None:
        self._meet(machine)
        self._barriers.on_leave(instruction, lanes)

    def on_end(self) -> None:
        self._global.on_end()
