"""Faults in global memory: races, elements that two threads write or none, and reads of an output before its write.

Within a launch only releases and acquires order the accesses of different blocks (PTX ISA, 8; `gpu_order`); one launch
is ordered before the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemm_ref.ptx.core.events import Access, BulkAccess
from gemm_ref.ptx.core.memory import Tensor
from gemm_ref.ptx.detect.finding import MISSED, RACE, TWICE, UNWRITTEN, Scene
from gemm_ref.ptx.detect.gpu_order import ATOMIC, GpuOrder, is_strong, reaches_all
from gemm_ref.ptx.detect.happens_before import Order
from gemm_ref.ptx.detect.races import NOBODY, Mark, Races, Shadow, Touch
from gemm_ref.ptx.text.dtypes import per_lane
from gemm_ref.ptx.text.parser import Instruction

_BETWEEN_BLOCKS = (
    ": between blocks it takes a release behind a barrier (__threadfence(), then an atomic), and an acquire before one "
    "(an atomic at the same place, then __threadfence())"
)


class GlobalFaults:
    """Watches all tensors of a launch, over all batches of its blocks."""

    def __init__(self, scene: Scene, outputs: Sequence[str], tile: tuple[int, int] | None) -> None:
        self._scene, self._outputs, self._tile = scene, outputs, tile
        self.gpu_order = GpuOrder()
        self._tensors: dict[int, _TensorFaults] = {}

    def on_access(self, access: Access, order: Order) -> None:
        lanes = access.machine.every_lane if access.lanes is None else access.lanes.nonzero()[0]
        addresses = per_lane(access.addresses, access.machine.lanes)
        self._check(access, lanes, addresses if access.lanes is None else addresses[lanes], order)
        self.gpu_order.on_access(access, order)

    def on_bulk(self, access: BulkAccess, order: Order) -> None:
        """Check a bulk copy, which reads or writes a tensor."""
        self._check(access, np.full(access.addresses.size, access.lane), access.addresses, order)

    def _check(self, access: Access | BulkAccess, lanes: np.ndarray, addresses: np.ndarray, order: Order) -> None:
        if not addresses.size:
            return
        low, high = int(np.minimum.reduce(addresses)), int(np.maximum.reduce(addresses))
        for number, tensor in enumerate(self._scene.memory.tensors):
            whose, inside = lanes, addresses
            if not tensor.holds(low, high, access.size):  # only some of the addresses are in the tensor, or none
                if high < tensor.first or low >= tensor.first + tensor.size:
                    continue
                chosen = (addresses >= tensor.first) & (addresses + access.size <= tensor.first + tensor.size)
                if not np.count_nonzero(chosen):
                    continue
                whose, inside = lanes[chosen], addresses[chosen]
            if number not in self._tensors:
                output = tensor.name in self._outputs
                self._tensors[number] = _TensorFaults(tensor, output, self._scene, order, self.gpu_order)
            self._tensors[number].on_access(access, whose, inside - tensor.first, order)

    def on_end(self) -> None:
        """Report the elements that were never written of the outputs and of tensors that were written at all."""
        for number, tensor in enumerate(self._scene.memory.tensors):
            seen = self._tensors.get(number)
            if seen is not None and seen.stored is not None:
                self._report_unwritten(tensor, seen.stored, seen.unwritten())
            elif tensor.name in self._outputs and tensor.size:
                elements = np.arange(tensor.size // tensor.owner.element_size())
                self._report_unwritten(tensor, self._scene.kernel.entry.instructions[-1], elements)

    def _report_unwritten(self, tensor: Tensor, near: Instruction, elements: np.ndarray) -> None:
        """Report these elements; near: an instruction that stores to the tensor, or else the kernel's last one."""
        if elements.size and tensor.reached is not None:
            elements = elements[tensor.reached()[elements]]
        if not elements.size:
            return
        first, shape = int(elements[0]), tensor.owner.shape
        name = self._scene.describe_global(tensor, first * tensor.owner.element_size())
        rest = f" and {elements.size - 1} more are" if elements.size > 1 else " is"
        text = f"{name}{rest} never written, of {tensor.owner.numel()} elements of {tensor.name}"
        if len(shape) == 2 and self._tile:
            row, col = divmod(first, shape[1])
            text += f"; the first is in tile ({row // self._tile[0]}, {col // self._tile[1]})"
            text += f" of {self._tile[0]} x {self._tile[1]}"
        self._scene.report(MISSED, near, None, text, count=elements.size)


class _TensorFaults(Races):
    written_twice = TWICE
    advice = "nothing orders the two"

    def __init__(self, tensor: Tensor, output: bool, scene: Scene, order: Order, gpu: GpuOrder) -> None:
        super().__init__(scene, Shadow(tensor.size))
        self._tensor, self._output = tensor, output
        self._order = order  # of the machine whose access is looked at
        self._gpu = gpu
        self.stored: Instruction | None = None  # the first store to it

    def on_access(self, access: Access | BulkAccess, lanes: np.ndarray, bytes_: np.ndarray, order: Order) -> None:
        self._order = order
        touch = self._make_touch(access, lanes, bytes_, order.now)
        if access.kind == "load":
            self.load(touch)
        else:
            self.stored = self.stored or access.instruction
            self.store(touch)

    def load(self, touch: Touch) -> None:
        if self._output:
            self.report(UNWRITTEN, touch, None, self.shadow.writer.thread[touch.elements] == NOBODY)
        super().load(touch)
        self._check_other_writer(touch, RACE)

    def store(self, touch: Touch) -> None:
        """Check a write, and record it; of strong stores that may overlap, one more than the last.

        An acquire synchronizes with the store that it reads from, not with others that this one has replaced: another
        thread's store ends a release sequence, and an atomic continues it (PTX ISA, 8.8).
        """
        shadow, at, instruction = self.shadow, touch.elements, touch.access.instruction
        self._check_other_writer(touch, self.written_twice)
        if instruction.parts[0] in ATOMIC or (shadow.other_writer is None and not is_strong(instruction)):
            super().store(touch)
            return
        other = shadow.other_writer = shadow.other_writer or Mark(shadow.writer.thread.size)
        other.thread[at[~self.concurrent(touch, other)]] = NOBODY  # ordered before this write
        other.copy(shadow.writer, at[self.concurrent(touch, shadow.writer)])
        super().store(touch)
        other.set(touch, shadow.writer.thread[at] != touch.threads)  # lanes of this instruction

    def _check_other_writer(self, touch: Touch, kind: str) -> None:
        other = self.shadow.other_writer
        if other is not None:
            self.report(kind, touch, other, self._find_unordered(touch, other))

    def explain(self, kind: str, element: int, other: str, action: str, line: str) -> str:
        if kind == UNWRITTEN:
            return f"which no thread has written: {self._tensor.name} is undefined when a kernel starts"
        explanation = super().explain(kind, element, other, action, line)
        return f"{explanation}{_BETWEEN_BLOCKS}" if kind == RACE and other.startswith("block") else explanation

    def unwritten(self) -> np.ndarray:
        """Return the elements of the tensor of which some byte was never written."""
        size = self._tensor.owner.element_size()
        missed = np.repeat(self.shadow.writer.thread == NOBODY, self.shadow.width)[: self._tensor.size]
        return np.flatnonzero(missed.reshape(-1, size).any(1))

    def concurrent(self, touch: Touch, mark: Mark) -> np.ndarray:
        if mark.latest == NOBODY:
            return np.zeros(touch.threads.size, bool)
        thread, threads = mark.thread[touch.elements], self.scene.launch.threads
        other = (thread != NOBODY) & (thread != touch.threads)
        if not np.count_nonzero(other):
            return other
        entries = other.nonzero()[0]
        mine, theirs = touch.threads[entries], thread[entries]
        times = mark.time[touch.elements[entries]]
        unordered = self._order.concurrent(touch.lanes[entries], theirs, times)
        elsewhere = mine // threads != theirs // threads
        other[entries] = unordered | elsewhere
        if np.count_nonzero(elsewhere) and self._gpu.is_known_to(self._order):
            entries = entries[elsewhere]
            at = touch.elements[entries]
            strong = self.scene.test(is_strong)[mark.instruction[at]]
            places = np.where(strong, self._tensor.first + at * self.shadow.width, NOBODY)
            other[entries] = ~self._gpu.ordered(
                touch.lanes[entries], theirs[elsewhere], times[elsewhere], places, self._order
            )
        return other

    def _find_unordered(self, touch: Touch, mark: Mark) -> np.ndarray:
        fine = self.may_overlap(touch, mark) | (mark.thread[touch.elements] == NOBODY)
        return ~fine if fine.all() else super()._find_unordered(touch, mark)  # the order of many atomics takes minutes

    def may_overlap(self, touch: Touch, mark: Mark) -> np.ndarray:
        here, at = touch.access.instruction, touch.elements
        if not is_strong(here):
            return np.zeros(at.size, bool)
        strong, wide = (self.scene.test(holds)[mark.instruction[at]] for holds in (is_strong, reaches_all))
        together = touch.threads // self.scene.launch.threads == mark.thread[at] // self.scene.launch.threads
        return strong & (together | (wide & reaches_all(here)))

    def describe(self, element: int) -> str:
        return self.scene.describe_global(self._tensor, element * self.shadow.width)
