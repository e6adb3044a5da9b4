"""The reference GPU itself: all lanes of some thread blocks in lockstep, each register one NumPy vector.

A register that holds the same number in every lane (a size, a loop counter) is kept as one number. `schedule` has which
lanes execute what comes next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemm_ref.launch import Launch
from gemm_ref.ptx.core import cluster
from gemm_ref.ptx.core.coordinates import coordinates
from gemm_ref.ptx.core.decode import Operation
from gemm_ref.ptx.core.events import Access, Observer
from gemm_ref.ptx.core.memory import Block, Footprint, GlobalMemory, PerOwner
from gemm_ref.ptx.core.schedule import Schedule
from gemm_ref.ptx.isa.fused import Run
from gemm_ref.ptx.text.dtypes import Value
from gemm_ref.ptx.text.errors import EndlessLoop, UndefinedRegister
from gemm_ref.ptx.units.bulk_copies import BulkCopies
from gemm_ref.ptx.units.mbarriers import MBarriers
from gemm_ref.ptx.units.warpgroups import Warpgroups

_FOOTPRINTS_KEPT = 64
MAX_INSTRUCTIONS = 5_000_000  # of one batch of blocks: a K of 10^5 in these kernels takes fewer, some minutes


class Machine(Schedule):
    """Some thread blocks of one launch, from their first instruction to their last."""

    def __init__(
        self,
        program: Sequence[Operation],
        slots: int,
        launch: Launch,
        blocks: Sequence[int],
        parameters: Sequence[np.generic],
        memory: GlobalMemory,
        symbols: dict[str, int],
        shared_bytes: int,
        local_bytes: int,
        observers: Sequence[Observer] = (),
    ) -> None:
        super().__init__(program, launch, blocks, observers)
        self.parameters = parameters
        self.memory = memory
        self.symbols = symbols
        self._per_owner = {
            "shared": [PerOwner("shared memory", shared_bytes, self.block_index, len(blocks))],
            "local": [PerOwner("local memory", local_bytes, np.arange(self.lanes), self.lanes)],
        }
        self.shared = self._per_owner["shared"][0]
        self._special: dict[str, Value] = {}
        self._footprints: dict[int, Footprint] = {}
        self._kept: list[np.ndarray] = []  # keeps the ids in _footprints from being used again
        self.registers: list[Value | None] = [None] * slots
        self.pending: list = []  # cp.async copies that have not landed
        self.groups: Value = np.int64(0)  # cp.async groups each lane has committed
        self.mbarriers = MBarriers(self)
        self.bulk = BulkCopies(self)
        self.wgmma = Warpgroups(self)
        self.cluster_barrier = cluster.ClusterBarrier(self)
        self.executed = 0  # instructions, each counted once for all the lanes that execute it together

    def run(self) -> None:
        """Execute until every lane has left. Raises PtxError at the first fault."""
        place: int | None = 0
        registers, program = self.registers, self.program
        while True:
            if place >= self._stop:
                place = self._regroup(place)
                if place is None:
                    self.bulk.finish()
                    return
            operation = program[place]
            self._now = place
            mask = self.active
            if operation.guard is not None:
                guard = registers[operation.guard]
                if guard is None:
                    name = operation.instruction.guard.name
                    raise UndefinedRegister(f"{self.place()}: guard {name} is read before anything was written to it")
                if operation.negated:
                    guard = ~guard
                if guard.ndim == 0:
                    if not guard:
                        place += 1
                        continue
                else:
                    here = self.alive if mask is None else mask
                    if here is not None:
                        guard = guard & here  # what lanes that have left would do does not count
                    count = np.count_nonzero(guard)
                    if count == 0:
                        place += 1
                        continue
                    if count != (self.lanes if here is None else np.count_nonzero(here)):
                        mask = guard
            self.mask = mask
            self.executed += 1
            if self.executed > MAX_INSTRUCTIONS:
                raise EndlessLoop(
                    f"{self.place()}: still running after {MAX_INSTRUCTIONS} instructions: does the loop around this "
                    "line end? (gemm_ref.ptx.core.machine.MAX_INSTRUCTIONS is the limit)"
                )
            if operation.run is not None and mask is None and operation.run.possible(self):
                place += self._execute_run(operation.run)
                continue
            for observer in self.observers:
                observer.on_instruction(operation.instruction, mask, self)
            if operation.control is None:
                operation.execute(self, mask)
                place += 1
            else:
                place = operation.control(self, mask, place)

    def _execute_run(self, run: Run) -> int:
        """The instructions of a run for all lanes at once; how many they are."""
        for observer in self.observers:
            for instruction in run.instructions:
                observer.on_instruction(instruction, None, self)
        run.execute(self)
        self.executed += len(run.instructions) - 1  # the first has been counted
        return len(run.instructions)

    # --- what instructions ask of the machine ----------------------------------------------------------------

    def blocks(self, space: str) -> list[Block]:
        """The memory blocks that an address of this state space may lie in."""
        return self.memory.tensors if space == "global" else self._per_owner[space]

    def footprint(self, addresses: Value) -> Footprint:
        """The addresses' footprint, measured once as long as the register is not written again."""
        if addresses.ndim == 0:
            return Footprint(addresses)
        found = self._footprints.get(id(addresses))
        if found is None:
            if len(self._kept) >= _FOOTPRINTS_KEPT:
                self._footprints.clear()
                self._kept.clear()
            found = self._footprints[id(addresses)] = Footprint(addresses)
            self._kept.append(addresses)
        return found

    def observe(self, access: Access) -> None:
        for observer in self.observers:
            observer.on_access(access)

    def special(self, name: str) -> Value:
        """The value of a special register: PTX ISA, chapter 10."""
        if name not in self._special:
            self._special[name] = self._compute_special(name)
        return self._special[name]

    def _compute_special(self, name: str) -> Value:
        register, _, axis = name[1:].partition(".")
        if register.startswith(("cluster", "ncluster", "is_explicit")):
            values = np.asarray(cluster.special(self.launch, self.block_of_lane, register, axis))
            values = values.astype(bool if register == "is_explicit_cluster" else np.uint32)
            return values[()] if values.ndim == 0 else values[0] if (values == values[0]).all() else values
        if axis:
            extent = self.launch.block if register in ("tid", "ntid") else self.launch.grid
            if register in ("ntid", "nctaid"):
                return np.uint32(extent["xyz".index(axis)])
            linear = self.thread_of_lane if register == "tid" else self.block_of_lane
            values = coordinates(linear, extent)["xyz".index(axis)].astype(np.uint32)
            return values[0] if (values == values[0]).all() else values
        lane = (self.thread_of_lane % 32).astype(np.uint32)
        if register.startswith("lanemask"):
            one = np.uint32(1) << lane
            below = one - np.uint32(1)
            return {"eq": one, "lt": below, "le": below | one, "gt": ~(below | one), "ge": ~below}[register[-2:]]
        return {
            "laneid": lane,
            "warpid": (self.thread_of_lane // 32).astype(np.uint32),
            "nwarpid": np.uint32(self.launch.num_warps),
            "dynamic_smem_size": np.uint32(self.launch.shared_bytes),
            "total_smem_size": np.uint32(self.shared.size),
        }[register]
